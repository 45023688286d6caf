#include "os/nodes.h"

#include "base/text.h"
#include "os/filter.h"
#include "os/kernel.h"
#include "os/os.h"
#include "os/text_file.h"

#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/syscall.h>

#define CPUS_MAX 8192u
#define CPU_WORDS (CPUS_MAX / 64)
#define SYSTEM_NODES_MAX 1024u /* the largest number that the kernel can be built for */
#define STAT_PROCESSOR 37u     /* fields of /proc/self/stat from the one behind the name to this one */

_Atomic uint32_t os_nodes_counted;
static uint8_t node_of_cpu[CPUS_MAX] SPARSE;
static unsigned long cpus_known[CPU_WORDS] SPARSE;

/* Parses the next range of a list like "0-3,8". False at its end; *text is NULL then if the list is malformed. */
static bool range_parse(const char **text, size_t *first, size_t *last) {
  const char *at = *text;
  if (at == NULL || *at == 0)
    return false;
  bool is_good = text_number_parse(at, first, &at);
  *last = *first;
  if (is_good && *at == '-')
    is_good = text_number_parse(at + 1, last, &at) && *last >= *first;
  if (*at == ',')
    is_good &= *++at != 0;
  else
    is_good &= *at == 0;
  *text = is_good ? at : NULL;
  return is_good;
}

static const char *line_read(const char *path, char line[OS_LINE_BYTES]) {
  return os_line_read(os_text_open(path, O_RDONLY), line, OS_LINE_BYTES);
}

/* Gives the processors in a node's list their number. False if it is malformed, or empty. */
static bool cpus_number(const char *list, uint8_t number) {
  size_t first, last;
  bool any = false;
  for (; range_parse(&list, &first, &last); any = true)
    for (size_t cpu = first; cpu <= last && cpu < CPUS_MAX; cpu++)
      node_of_cpu[cpu] = number;
  return any && list != NULL;
}

/* Returns how many nodes have processors, and numbers them; 0 if the system does not tell. */
static uint32_t nodes_read(char bytes[OS_LINE_BYTES]) {
  char list[256], path[64];
  size_t first, last;
  uint32_t count = 0;
  const char *line = line_read("/sys/devices/system/node/has_cpu", bytes);
  if (line == NULL || strlen(line) >= sizeof list)
    return 0;
  strcpy(list, line);
  const char *nodes = list;
  if (!range_parse(&nodes, &first, &last) || (first == last && nodes && *nodes == 0))
    return 1;
  for (nodes = list; range_parse(&nodes, &first, &last);)
    for (; first <= last; first++, count++) {
      if (first >= SYSTEM_NODES_MAX)
        return 0;
      struct text name = TEXT_IN(path);
      text_format(&name, "/sys/devices/system/node/node%lu/cpulist", (uint64_t)first);
      line = line_read(path, bytes);
      if (line == NULL || !cpus_number(line, (uint8_t)(count % NODES_MAX)))
        return 0;
    }
  return nodes ? count : 0;
}

/* Returns the processor that the main thread ran on last: field 39 of its state. The name in brackets may hold
 * anything. */
static size_t cpu_of_main(char bytes[OS_LINE_BYTES]) {
  const char *line = line_read("/proc/self/stat", bytes), *at = line ? strrchr(line, ')') : NULL;
  size_t cpu = 0;
  for (unsigned i = 0; at != NULL && i < STAT_PROCESSOR; i++)
    at = strchr(at + 1, ' ');
  return at && text_number_parse(at + 1, &cpu, &at) && cpu < CPUS_MAX ? cpu : 0;
}

/* What was allocated so far is mostly the main thread's: its node gets number 0. */
static void first_is_mains(size_t cpu) {
  uint8_t of_main = node_of_cpu[cpu];
  for (size_t i = 0; i < CPUS_MAX; i++)
    if (node_of_cpu[i] == of_main || node_of_cpu[i] == 0)
      node_of_cpu[i] = node_of_cpu[i] == of_main ? 0 : of_main;
}

/* Tells whether to ask for a thread's processor takes no system call, or may be one. */
static bool can_ask(void) {
#ifdef __x86_64__
  return getauxval(AT_SYSINFO_EHDR) != 0; /* the vDSO answers */
#else
  return os_may_call();
#endif
}

COLD void os_nodes_count(void) {
  if (load_relaxed(&os_nodes_counted) != 0)
    return;
  KEEP_ERRNO;
  char line[OS_LINE_BYTES];
  uint32_t count = os_may_read_files() && can_ask() ? nodes_read(line) : 0;
  if (count > 1)
    first_is_mains(cpu_of_main(line));
  count = count == 0 ? 1 : (uint32_t)min_size(count, NODES_MAX);
  atomic_store_explicit(&os_nodes_counted, count, memory_order_release);
}

COLD unsigned os_node_of_thread(void) {
  KEEP_ERRNO;
  int cpu = can_ask() ? sched_getcpu() : -1;
  return cpu >= 0 && cpu < (int)CPUS_MAX ? node_of_cpu[cpu] : 0;
}

/* glibc asks the same at the second thread's first malloc, so filters that are there before allow it. */
COLD unsigned os_cpus_add(void) {
  KEEP_ERRNO;
  unsigned long words[CPU_WORDS];
  long bytes = os_filter_is_own() ? -1 : os_kernel(SYS_sched_getaffinity, 0L, (long)sizeof words, words);
  size_t count = bytes > 0 ? (size_t)bytes / sizeof words[0] : 0;
  unsigned cpus = 0;
  for (size_t i = 0; i < CPU_WORDS; i++) {
    cpus_known[i] |= i < count ? words[i] : 0;
    cpus += (unsigned)__builtin_popcountl(cpus_known[i]);
  }
  return cpus;
}

COLD unsigned os_cpus_of_node(unsigned node) {
  unsigned cpus = 0;
  for (size_t cpu = 0; cpu < CPUS_MAX; cpu++)
    cpus += (cpus_known[cpu / 64] >> cpu % 64 & 1) && node_of_cpu[cpu] == node;
  return cpus;
}
