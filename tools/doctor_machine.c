/* doctor_machine.c: settings of the kernel. */
#include "base/options.h"
#include "tools/doctor.h"
#include "tools/tool.h"

#include <stdio.h>
#include <string.h>

#define HUGE_FOLDER "/sys/kernel/mm/transparent_hugepage"
#define NEAR_PERCENT 90
#define MAPPINGS_NEAR_PERCENT 80
#define MAPPINGS_USUAL 65530u
#define SHORT_PERCENT 5           /* of memory or swap that is left */
#define NO_RANDOMISATION 0x40000u /* ADDR_NO_RANDOMIZE of personality(2) */

/* The word in brackets of "always [madvise] never"; "" if there is none. */
static void word_chosen(const char *text, char word[32]) {
  const char *open = text ? strchr(text, '[') : NULL;
  size_t length = open ? strcspn(open + 1, "]") : 0;
  length = length < 32 ? length : 0;
  memcpy(word, open ? open + 1 : "", length);
  word[length] = 0;
}

void doctor_look_proc(struct doctor *doctor) {
  if (doctor_has_proc(doctor))
    doctor_ok("/proc is mounted");
  else
    doctor_warn("/proc is not mounted: neither hakmem nor this program sees limits, control groups and the machine's "
                "settings\nmount it: mount -t proc proc /proc");
}

void doctor_look_huge(struct doctor *doctor) {
  char word[32];
  word_chosen(doctor_read(doctor, HUGE_FOLDER "/enabled"), word);
  long asked = option_value(OPTION_HUGE);
  bool is_asked = option_is_set(OPTION_HUGE) && asked != HUGE_OFF;
  if (*word == 0 || strcmp(word, "never") == 0) {
    enum severity severity = asked == HUGE_OFF ? SEVERITY_OK : is_asked ? SEVERITY_WARNING : SEVERITY_NOTE;
    if (*word == 0)
      doctor_report(severity, "huge pages are not in this kernel: HAKMEM_HUGE has no effect");
    else
      doctor_report(
          severity,
          "huge pages are switched off (transparent_hugepage/enabled is never): HAKMEM_HUGE has no effect\n" HUGE_FOLDER
          "/enabled: madvise");
  } else if (strcmp(word, "always") == 0) {
    doctor_note("huge pages are given without being asked for (transparent_hugepage/enabled is always): hakmem refuses "
                "them where HAKMEM_HUGE does not want them, the program's other memory does not\n" HUGE_FOLDER
                "/enabled: madvise");
  } else
    doctor_ok("huge pages are given where they are asked for (%s)", word);
}

void doctor_look_compaction(struct doctor *doctor) {
  char word[32], enabled[32];
  word_chosen(doctor_read(doctor, HUGE_FOLDER "/enabled"), enabled);
  word_chosen(doctor_read(doctor, HUGE_FOLDER "/defrag"), word);
  if (*word == 0 || *enabled == 0 || strcmp(enabled, "never") == 0)
    return;
  if (strcmp(word, "always") == 0)
    doctor_warn("first touches wait until the kernel has made a huge page (transparent_hugepage/defrag is always): "
                "stalls of milliseconds\n" HUGE_FOLDER "/defrag: madvise or defer+madvise, or HAKMEM_HUGE=off");
  else
    doctor_ok("transparent_hugepage/defrag is %s", word);
}

void doctor_look_overcommit(struct doctor *doctor) {
  uint64_t mode = doctor_number(doctor_read(doctor, "/proc/sys/vm/overcommit_memory"));
  const char *memory = doctor_read(doctor, "/proc/meminfo");
  uint64_t limit = doctor_line_number(memory, "CommitLimit:"), promised = doctor_line_number(memory, "Committed_AS:");
  if (mode == UINT64_MAX)
    return;
  if (mode != 2 || limit == UINT64_MAX || promised == UINT64_MAX)
    doctor_ok("overcommit_memory is %lu: addresses are not charged", mode);
  else if (doctor_percent(promised, limit) >= NEAR_PERCENT)
    doctor_warn("strict overcommit: %s of %s are promised, and beyond that malloc returns NULL\nraise "
                "vm.overcommit_ratio, add swap, or set vm.overcommit_memory to 0",
                tool_size(promised * 1024), tool_size(limit * 1024));
  else
    doctor_note("strict overcommit (overcommit_memory is 2): %s of %s are promised\nexpect NULL from malloc at the "
                "limit; docs/deployment.md, Overcommit 2",
                tool_size(promised * 1024), tool_size(limit * 1024));
}

void doctor_look_memory(struct doctor *doctor) {
  const char *memory = doctor_read(doctor, "/proc/meminfo");
  uint64_t total = doctor_line_number(memory, "MemTotal:"), left = doctor_line_number(memory, "MemAvailable:");
  if (total == UINT64_MAX || left == UINT64_MAX)
    return;
  if (doctor_percent(left, total) < SHORT_PERCENT)
    doctor_warn("%s of %s of memory are left\nend other programs, or HAKMEM_PROFILE=lean", tool_size(left * 1024),
                tool_size(total * 1024));
  else
    doctor_ok("%s of %s of memory are available", tool_size(left * 1024), tool_size(total * 1024));
}

void doctor_look_swap(struct doctor *doctor) {
  const char *memory = doctor_read(doctor, "/proc/meminfo");
  uint64_t total = doctor_line_number(memory, "SwapTotal:"), left = doctor_line_number(memory, "SwapFree:");
  if (total == UINT64_MAX || left == UINT64_MAX)
    return;
  if (total > 0 && doctor_percent(left, total) < SHORT_PERCENT)
    doctor_warn("swap is full: %s of %s are left\nless memory in use, or more swap", tool_size(left * 1024),
                tool_size(total * 1024));
  else if (total > 0)
    doctor_ok("%s of %s of swap are free", tool_size(left * 1024), tool_size(total * 1024));
  else
    doctor_ok("there is no swap");
}

void doctor_look_randomisation(struct doctor *doctor) {
  uint64_t mode = doctor_number(doctor_read(doctor, "/proc/sys/kernel/randomize_va_space"));
  const char *personality = doctor_read(doctor, "%s/personality", doctor->proc);
  unsigned bits = 0;
  bool is_off = personality && sscanf(personality, "%x", &bits) == 1 && (bits & NO_RANDOMISATION);
  if (mode == 0 || is_off)
    doctor_note("addresses are the same in each run (%s): hakmem works, but its addresses can be guessed\n%s",
                mode == 0 ? "kernel.randomize_va_space is 0" : "personality, as by setarch -R or a debugger",
                mode == 0 ? "sysctl kernel.randomize_va_space=2" : "start the program without it");
  else if (mode != UINT64_MAX)
    doctor_ok("addresses are drawn anew in each run");
}

void doctor_look_mappings(struct doctor *doctor) {
  uint64_t most = doctor_number(doctor_read(doctor, "/proc/sys/vm/max_map_count")), count = 0;
  if (most == UINT64_MAX)
    return;
  for (const char *at = doctor->maps; at && *at; at++)
    count += *at == '\n';
  if (doctor_percent(count, most) >= MAPPINGS_NEAR_PERCENT)
    doctor_problem("the process has %lu of at most %lu mappings: beyond that malloc fails\nraise vm.max_map_count, "
                   "and look in /proc/%ld/maps which library maps so much",
                   count, most, doctor->pid);
  else if (most < MAPPINGS_USUAL)
    doctor_warn("a process may have only %lu mappings (vm.max_map_count)\nraise it to %u, the kernel's own value", most,
                MAPPINGS_USUAL);
  else
    doctor_ok("%lu mappings of at most %lu", count, most);
}
