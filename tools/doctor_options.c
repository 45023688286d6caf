/* doctor_options.c: checks for options in the subject's environment that have no effect, or another one than
 * expected. */
#include "base/options.h"
#include "base/text.h"
#include "tools/doctor.h"
#include "tools/tool.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PREFIX "HAKMEM_"
#define NAME_BYTES 64
#define CLOSE_EDITS 3 /* a name with at most this many wrong letters counts as a typing error */

bool doctor_is_option(const char *variable) { return strncmp(variable, PREFIX, strlen(PREFIX)) == 0; }

static enum option_error parse_variable(const char *variable) {
  const char *equals = strchr(variable, '=');
  return equals ? options_parse(variable, (size_t)(equals - variable), equals + 1) : OPTION_OK;
}

void doctor_take_options(struct doctor *doctor) {
  for (char **variable = doctor->environment; variable && *variable; variable++)
    if (doctor_is_option(*variable))
      parse_variable(*variable);
}

/* The name of a variable as a string. */
static void name_of(const char *variable, char name[NAME_BYTES]) {
  snprintf(name, NAME_BYTES, "%.*s", (int)strcspn(variable, "="), variable);
}

/* Returns the edit distance of two names: letters to add, drop or change. */
static unsigned edit_distance(const char *a, const char *b) {
  unsigned row[NAME_BYTES + 1];
  size_t length = strnlen(b, NAME_BYTES);
  for (unsigned i = 0; i <= length; i++)
    row[i] = i;
  for (unsigned line = 1; *a; a++, line++) {
    unsigned before = row[0];
    row[0] = line;
    for (size_t i = 1; i <= length; i++) {
      unsigned changed = before + (*a != b[i - 1] ? 1 : 0);
      before = row[i];
      unsigned least = row[i] < row[i - 1] ? row[i] + 1 : row[i - 1] + 1;
      row[i] = changed < least ? changed : least;
    }
  }
  return row[length];
}

/* Returns the option that was probably meant; NULL if none is similar. */
static const char *name_meant(const char *name) {
  const char *best = NULL;
  unsigned least = CLOSE_EDITS + 1;
  for (unsigned i = 0; i < OPTION_COUNT; i++) {
    unsigned count = edit_distance(name, option_rows[i].environment);
    if (count < least) {
      least = count;
      best = option_rows[i].environment;
    }
  }
  return best;
}

void doctor_look_option_names(struct doctor *doctor) {
  unsigned known = 0;
  for (char **variable = doctor->environment; variable && *variable; variable++) {
    char name[NAME_BYTES];
    if (!doctor_is_option(*variable))
      continue;
    name_of(*variable, name);
    if (parse_variable(*variable) != OPTION_UNKNOWN)
      known++;
    else if (name_meant(name))
      doctor_warn("%s is no option of hakmem and has no effect\n%s may be meant", name, name_meant(name));
    else
      doctor_warn("%s is no option of hakmem and has no effect\nhak options lists all", name);
  }
  if (known)
    doctor_ok("%u option%s set", known, known == 1 ? " is" : "s are");
}

/* Returns the option that a variable sets, by its own name or an alias. */
static enum option option_of(const char *name) {
  enum option option = OPTION_PROFILE;
  for (unsigned i = 0; i < option_alias_count; i++)
    if (strcmp(option_aliases[i].environment, name) == 0)
      return option_aliases[i].option;
  option_find(name, &option);
  return option;
}

void doctor_look_option_values(struct doctor *doctor) {
  for (char **variable = doctor->environment; variable && *variable; variable++) {
    char name[NAME_BYTES], allowed[256], kept[64];
    enum option_error error = doctor_is_option(*variable) ? parse_variable(*variable) : OPTION_OK;
    if (error != OPTION_BAD)
      continue;
    name_of(*variable, name);
    enum option option = option_of(name);
    struct text values = TEXT_IN(allowed), value = TEXT_IN(kept);
    option_allowed(name, strlen(name), &values);
    option_text(option, option_value(option), &value);
    doctor_warn("%s is not taken: %s stays in force\n%s takes %s", *variable, kept, name, allowed);
  }
}

/* --- options that leave others without effect --- */

static const struct pair {
  enum option option, other;
  long value; /* value of the other option that makes this one ineffective */
} pairs[] = {
    {OPTION_PURGE_DELAY_MS, OPTION_PURGE, PURGE_OFF},  {OPTION_KEEP_MB, OPTION_PURGE, PURGE_OFF},
    {OPTION_TARGET_MB, OPTION_PURGE, PURGE_OFF},       {OPTION_POLICY, OPTION_PURGE, PURGE_OFF},
    {OPTION_POLICY_FILE, OPTION_POLICY, POLICY_OFF},   {OPTION_STATS_PID, OPTION_STATS, STATS_OFF},
    {OPTION_STATS_FILE, OPTION_STATS, STATS_OFF},      {OPTION_CANARY, OPTION_CHECKED, SWITCH_OFF},
    {OPTION_ZERO_FREED, OPTION_CHECKED, SWITCH_OFF},   {OPTION_QUARANTINE, OPTION_CHECKED, SWITCH_OFF},
    {OPTION_RANDOM_ORDER, OPTION_CHECKED, SWITCH_OFF}, {OPTION_HEAP_PROFILE_KB, OPTION_HEAP_PROFILE, HEAP_PROFILE_OFF},
};

/* A path alone switches the summary and the profile on (observe/stats/summary.c, observe/profile/heap_profile.c). */
static bool other_is_off(const struct pair *pair) {
  enum option path = pair->other == OPTION_STATS ? OPTION_STATS_FILE : OPTION_HEAP_PROFILE_FILE;
  bool has_path = (pair->other == OPTION_STATS || pair->other == OPTION_HEAP_PROFILE) && !option_is_set(pair->other) &&
                  *option_string(path) != 0;
  return option_value(pair->other) == pair->value && !has_path;
}

static void look_pairs(void) {
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
    const struct pair *pair = &pairs[i];
    const struct option_row *row = &option_rows[pair->option], *other = &option_rows[pair->other];
    bool is_on = row->choices[0][0] == 0 || option_value(pair->option) != 0;
    bool is_idle = option_is_set(pair->option) && is_on && other_is_off(pair);
    if (is_idle)
      doctor_warn("%s has no effect while %s is %s\nset %s to another value, or leave %s out", row->environment,
                  other->environment, other->choices[pair->value], other->environment, row->environment);
  }
}

/* Reports an alias that is set together with the option's own name, which beats it. */
static void look_aliases(const struct doctor *doctor) {
  for (unsigned i = 0; i < option_alias_count; i++) {
    const struct option_alias *alias = &option_aliases[i];
    const char *own = option_rows[alias->option].environment;
    if (doctor_variable(doctor, alias->environment) && doctor_variable(doctor, own))
      doctor_warn("%s has no effect beside %s\nleave %s out", alias->environment, own, alias->environment);
  }
}

void doctor_look_option_pairs(struct doctor *doctor) {
  long bin_kb = option_value(OPTION_BIN_KB_MAX), heap_kb = option_value(OPTION_HEAP_KB_MAX);
  uint64_t group = doctor_hard_limit(doctor, 0);
  uint64_t own = (uint64_t)option_value(OPTION_LIMIT_MB) << 20;
  look_pairs();
  look_aliases(doctor);
  if (option_is_set(OPTION_BIN_KB_MAX) && bin_kb > heap_kb)
    doctor_warn("HAKMEM_BIN_KB_MAX=%ld has no effect above HAKMEM_HEAP_KB_MAX, which is %ld\nraise HAKMEM_HEAP_KB_MAX",
                bin_kb, heap_kb);
  if (own > group && option_value(OPTION_CGROUP) == CGROUP_ON)
    doctor_note("HAKMEM_LIMIT_MB=%ld is above what the control group leaves, which holds: %s\nlower it, or raise the "
                "group's limit",
                option_value(OPTION_LIMIT_MB), tool_size(group));
  if (option_value(OPTION_POLICY) == POLICY_FROZEN && *option_string(OPTION_POLICY_FILE) == 0)
    doctor_warn("HAKMEM_POLICY=frozen without HAKMEM_POLICY_FILE has nothing to go by\nset HAKMEM_POLICY_FILE, or "
                "HAKMEM_POLICY=evolving");
  if (option_value(OPTION_HEAP_PROFILE) == HEAP_PROFILE_ON && *option_string(OPTION_HEAP_PROFILE_FILE) == 0 &&
      option_value(OPTION_LIVE) == SWITCH_OFF)
    doctor_note("HAKMEM_HEAP_PROFILE=on alone writes no profile at the end\nset HAKMEM_HEAP_PROFILE_FILE, unless the "
                "program calls hak_profile_dump");
  if (doctor->has_hakmem && option_is_set(OPTION_DEEPBIND))
    doctor_warn("HAKMEM_DEEPBIND has no effect where hakmem is linked in\nleave it out");
}

/* --- the file of what was learned --- */

void doctor_look_policy_file(struct doctor *doctor) {
  char folder[PATH_MAX];
  const char *path = option_string(OPTION_POLICY_FILE);
  if (*path == 0 || option_value(OPTION_POLICY) == POLICY_OFF)
    return;
  snprintf(folder, sizeof folder, "%.*s", (int)(doctor_base_name(path) - path), path);
  bool has_folder = access(doctor_file(doctor, *folder ? folder : "."), W_OK) == 0;
  const char *seen = doctor_file(doctor, path);
  bool is_there = access(seen, F_OK) == 0;
  if (*path != '/' && doctor->pid)
    doctor_note("HAKMEM_POLICY_FILE=%s depends on the folder the program is started in\ngive a whole path", path);
  else if (!is_there && option_value(OPTION_POLICY) == POLICY_FROZEN)
    doctor_warn("HAKMEM_POLICY_FILE=%s: there is no such file, and HAKMEM_POLICY=frozen makes none\nlet it be written "
                "by HAKMEM_POLICY=evolving, or by hak policy fixed",
                path);
  else if (is_there && access(seen, R_OK) != 0)
    doctor_warn("HAKMEM_POLICY_FILE=%s cannot be read\nchmod, chown", path);
  else if (option_value(OPTION_POLICY) == POLICY_EVOLVING && !has_folder)
    doctor_warn("HAKMEM_POLICY_FILE=%s cannot be written: its folder is not there, or not ours\ngive another path",
                path);
  else
    doctor_ok("%s can be read%s", path, option_value(OPTION_POLICY) == POLICY_EVOLVING ? " and written" : "");
}

/* --- options of other allocators --- */

void doctor_look_foreign_options(struct doctor *doctor) {
  static const struct {
    const char *beginning, *whose;
  } foreign[] = {
      {"MALLOC_CONF=", "jemalloc"}, {"MALLOC_", "glibc"}, {"MIMALLOC_", "mimalloc"},
      {"TCMALLOC_", "tcmalloc"},    {"SCUDO_", "Scudo"},
  };
  for (char **variable = doctor->environment; variable && *variable; variable++) {
    char name[NAME_BYTES];
    const char *equals = strchr(*variable, '=');
    if (equals == NULL || equals[1] == 0) /* sets nothing */
      continue;
    name_of(*variable, name);
    if (strcmp(name, "GLIBC_TUNABLES") == 0 && strstr(*variable, "glibc.malloc."))
      doctor_note("GLIBC_TUNABLES has glibc.malloc., which acts on glibc's malloc and not on hakmem\nhak options lists "
                  "what acts on hakmem");
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
      if (strncmp(*variable, foreign[i].beginning, strlen(foreign[i].beginning)) == 0) {
        doctor_note("%s acts on %s's malloc and not on hakmem\nhak options lists what acts on hakmem", name,
                    foreign[i].whose);
        break;
      }
  }
}
