#include "base/options.h"

#include "base/text.h"

#include <limits.h>
#include <string.h>

#define SAME(v) {(v), (v), (v), (v)}
/* Only in the preset `secure`. */
#define SECURE(v) {0, 0, 0, (v)}

/* The preset columns are speed, balanced, lean, secure. */
/* clang-format off */
const struct option_row option_rows[OPTION_COUNT] = {
    [OPTION_PROFILE] = {
        "profile", "HAKMEM_PROFILE", "", SAME(HAK_PRESET_DEFAULT), 0, PRESET_COUNT - 1,
        {"speed", "balanced", "lean", "secure"},
        "Selects the preset: the column of this table that holds for each option that is not set.",
        OPTION_ANY_TIME,
        "Each option that is not set takes the preset's value, with the effect described for that option; "
        "secure: only at start."},
    [OPTION_STATS] = {
        "stats", "HAKMEM_STATS", "", SAME(STATS_OFF), 0, STATS_OPENMETRICS, {"off", "text", "json", "openmetrics"},
        "Print a summary on stderr when the program ends (docs/stats.md).",
        OPTION_ANY_TIME,
        "The value at the end of the program decides."},
    [OPTION_STATS_PID] = {
        "stats_pid", "HAKMEM_STATS_PID", "process id", SAME(0), 0, 0x7fffffff, {NULL},
        "If not 0, only the process with this id prints the summary; its children do not.",
        OPTION_ANY_TIME,
        "The value at the end of the program decides."},
    [OPTION_STATS_FILE] = {
        "stats_file", "HAKMEM_STATS_FILE", "path", SAME(0), 0, OPTION_TEXT_BYTES - 1, {NULL},
        "Write the summary to this file instead, as OpenMetrics if `stats` is not set; %p stands for the process id.",
        OPTION_AT_START,
        "A relative path starts in the folder that the program starts in."},
    [OPTION_BIN_SLOTS] = {
        "bin_slots", "HAKMEM_BIN_SLOTS", "blocks", {64, 16, 16, 16}, 4, 2048, {NULL},
        "Slots that a bin (thread cache of one size class) starts with; fewer for big blocks.",
        OPTION_ANY_TIME,
        "New bins start with this many slots; existing ones stay as they are."},
    [OPTION_BIN_KB_MAX] = {
        "bin_kb_max", "HAKMEM_BIN_KB_MAX", "KiB", {2048, 512, 32, 512}, 0, 1 << 20, {NULL},
        "A bin may double while its slots hold less than this.",
        OPTION_ANY_TIME,
        "Applies to the next growth; bigger bins shrink when they are little used."},
    [OPTION_HEAP_KB_MAX] = {
        "heap_kb_max", "HAKMEM_HEAP_KB_MAX", "KiB", {32768, 8192, 256, 8192}, 0, 1 << 24, {NULL},
        "Bound on the bytes that the grown bins of one thread hold together; lower while the thread works with less.",
        OPTION_ANY_TIME,
        "Applies to the next growth; bigger bins shrink when they are little used."},
    [OPTION_POOLS] = {
        "pools", "HAKMEM_POOLS", "pools", SAME(0), 0, 1024, {NULL},
        "Pools of slabs that threads share; 0: two for each CPU that the process may use.",
        OPTION_ANY_TIME,
        "Applies to threads that start from then on; the others stay in their pools."},
    [OPTION_KEEP_MB] = {
        "keep_mb", "HAKMEM_KEEP_MB", "MiB", {512, 8, 4, 8}, 0, 1 << 24, {NULL},
        "Free memory that stays resident for reuse, in addition to an eighth of the heap.",
        OPTION_ANY_TIME,
        "Memory above a lower value goes back after its decay time, or at once by malloc_trim."},
    [OPTION_PURGE_DELAY_MS] = {
        "purge_delay_ms", "HAKMEM_PURGE_DELAY_MS", "ms", {10000, 1000, 100, 1000}, 0, 3600000, {NULL},
        "Decay time: other free memory goes back when it was unused for this long.",
        OPTION_ANY_TIME,
        "Applies to memory that is already free too."},
    [OPTION_LARGE_CACHE_MB] = {
        "large_cache_mb", "HAKMEM_LARGE_CACHE_MB", "MiB", {4096, 512, 4, 512}, 0, 1 << 24, {NULL},
        "Freed objects over 256 KiB that are kept ready for reuse; they decay too.",
        OPTION_ANY_TIME,
        "Memory above a lower value goes back when large objects are freed, after its decay time, or by malloc_trim."},
    [OPTION_RESERVE_MB] = {
        "reserve_mb", "HAKMEM_RESERVE_MB", "MiB", SAME(1024), 4, 1 << 14, {NULL},
        "Upper bound on one reservation of address space; the first are smaller, all are where the system limits it.",
        OPTION_ANY_TIME,
        "Applies to the next reservation; reserved address space stays reserved."},
    [OPTION_DEEPBIND] = {
        "deepbind", "HAKMEM_DEEPBIND", "", SAME(DEEPBIND_DROP), 0, DEEPBIND_KEEP, {"drop", "keep"},
        "Whether the preloaded library drops RTLD_DEEPBIND from dlopen calls, so that malloc and free stay one pair.",
        OPTION_ANY_TIME,
        "Applies to the next dlopen; loaded libraries stay bound as they are."},
    [OPTION_FOREIGN] = {
        "foreign", "HAKMEM_FOREIGN", "", SAME(FOREIGN_ABORT), 0, FOREIGN_IGNORE, {"abort", "report", "ignore"},
        "A free of an address that hakmem did not allocate; always ignored, if not set, where malloc is not hakmem's.",
        OPTION_ANY_TIME,
        "Applies to the next such free."},
    [OPTION_PURGE] = {
        "purge", "HAKMEM_PURGE", "", SAME(PURGE_DONTNEED), 0, PURGE_OFF, {"dontneed", "free", "off"},
        "How free memory goes back: MADV_DONTNEED, MADV_FREE (the kernel takes it when it needs it), or not at all.",
        OPTION_ANY_TIME,
        "Applies to memory that goes back from then on."},
    [OPTION_TARGET_MB] = {
        "target_mb", "HAKMEM_TARGET_MB", "MiB", {0, 0, 10, 0}, 0, 1 << 24, {NULL},
        "Soft target: if hakmem holds more than this beyond live bytes, free memory goes back at once; 0: none.",
        OPTION_ANY_TIME,
        "Free memory over a lower target goes back in the next slow calls."},
    [OPTION_LIMIT_MB] = {
        "limit_mb", "HAKMEM_LIMIT_MB", "MiB", SAME(0), 0, 1 << 24, {NULL},
        "Hard limit on what hakmem holds; beyond it malloc returns NULL; 0: the cgroup's memory.max, if there is one.",
        OPTION_ANY_TIME,
        "Held memory stays: above a lower limit, malloc returns NULL until enough was freed."},
    [OPTION_CGROUP] = {
        "cgroup", "HAKMEM_CGROUP", "", SAME(CGROUP_ON), 0, CGROUP_OFF, {"on", "off"},
        "Take limits from the cgroup and give memory back under memory pressure.",
        OPTION_AT_START,
        "The cgroup's files are opened once."},
    [OPTION_BACKGROUND] = {
        "background", "HAKMEM_BACKGROUND", "", SAME(BACKGROUND_ON), 0, BACKGROUND_OFF, {"on", "off"},
        "A thread gives free memory back while the program is idle; it starts when the heap is big enough.",
        OPTION_ANY_TIME,
        "off: the thread ends; on: it may start again."},
    [OPTION_HUGE] = {
        "huge", "HAKMEM_HUGE", "", {HUGE_ALL, HUGE_LARGE, HUGE_OFF, HUGE_LARGE}, 0, HUGE_ALL, {"off", "large", "all"},
        "Ask for huge pages: never, for large objects, or for all of a big heap.",
        OPTION_ANY_TIME,
        "Applies to memory mapped from then on; mapped memory keeps its pages."},
    [OPTION_PREWARM] = {
        "prewarm", "HAKMEM_PREWARM", "", {PREWARM_ON, PREWARM_OFF, PREWARM_OFF, PREWARM_OFF}, 0, PREWARM_ON,
        {"off", "on"},
        "Fill the first thread's bins when the program starts.",
        OPTION_AT_START,
        "The program starts once."},
    [OPTION_POLICY] = {
        "policy", "HAKMEM_POLICY", "", SAME(POLICY_OFF), 0, POLICY_EVOLVING, {"off", "frozen", "evolving"},
        "How long freed memory stays: as the preset says (off), or as the policy engine learned by call site and size.",
        OPTION_ANY_TIME,
        "Applies to what is freed from then on; what was learned is kept."},
    [OPTION_POLICY_FILE] = {
        "policy_file", "HAKMEM_POLICY_FILE", "path", SAME(0), 0, OPTION_TEXT_BYTES - 1, {NULL},
        "File of the policy engine: read at program start if `policy` is on, written at the end if it is evolving.",
        OPTION_AT_START,
        "The file is read once."},
    [OPTION_COUNTING] = {
        "count", "HAKMEM_COUNT", "", SAME(COUNTING_OFF), 0, COUNTING_ON, {"off", "on"},
        "Count every malloc and free, by size class; exact, and a little slower.",
        OPTION_ANY_TIME,
        "Each thread follows at its next free; the counts stay."},
    [OPTION_HEAP_PROFILE] = {
        "heap_profile", "HAKMEM_HEAP_PROFILE", "", SAME(HEAP_PROFILE_OFF), 0, HEAP_PROFILE_LEAKS,
        {"off", "on", "leaks"},
        "Sample allocations by call stack; leaks: sample each one, and print at the end what is live.",
        OPTION_AT_START,
        "Read once; a program starts and stops profiles by hak_profile_start and hak_profile_stop."},
    [OPTION_HEAP_PROFILE_KB] = {
        "heap_profile_kb", "HAKMEM_HEAP_PROFILE_KB", "KiB", SAME(512), 0, 1 << 20, {NULL},
        "One sample for each interval of this many allocated bytes; 0: every allocation.",
        OPTION_AT_START,
        "Read once; hak_profile_start takes an interval."},
    [OPTION_HEAP_PROFILE_FILE] = {
        "heap_profile_file", "HAKMEM_HEAP_PROFILE_FILE", "path", SAME(0), 0, OPTION_TEXT_BYTES - 1, {NULL},
        "File of the profile at the end, for pprof; %p stands for the process id; without %p, children write none.",
        OPTION_AT_START,
        "Read once; hak_profile_dump takes a path."},
    [OPTION_CHECKED] = {
        "checked", "HAKMEM_CHECKED", "", SECURE(SWITCH_ON), 0, SWITCH_ON, {"off", "on"},
        "Check each free of a small block at once: double frees and addresses that are no block end the program.",
        OPTION_AT_START,
        "Blocks get their states from the start."},
    [OPTION_CANARY] = {
        "canary", "HAKMEM_CANARY", "", SECURE(SWITCH_ON), 0, SWITCH_ON, {"off", "on"},
        "With `checked`: a secret word behind each block, which free and realloc check.",
        OPTION_AT_START,
        "Each block has room for the word, or none has."},
    [OPTION_ZERO_FREED] = {
        "zero_freed", "HAKMEM_ZERO_FREED", "", SECURE(SWITCH_ON), 0, SWITCH_ON, {"off", "on"},
        "With `checked`: clear freed blocks, and check that they are still clear when they are used again.",
        OPTION_AT_START,
        "All free blocks are clear, or none is known to be."},
    [OPTION_QUARANTINE] = {
        "quarantine", "HAKMEM_QUARANTINE", "blocks", SECURE(8), 0, 64, {NULL},
        "With `checked`: so many blocks of a class, up to 64 KiB, wait in each thread before one of them is "
        "used again.",
        OPTION_AT_START,
        "The threads' caches get their length when checks begin."},
    [OPTION_RANDOM_ORDER] = {
        "random_order", "HAKMEM_RANDOM_ORDER", "", SECURE(SWITCH_ON), 0, SWITCH_ON, {"off", "on"},
        "With `checked`: malloc picks one of the thread's ready blocks at random.",
        OPTION_AT_START,
        "Read once, when checks begin."},
    [OPTION_GUARD_PAGES] = {
        "guard_pages", "HAKMEM_GUARD_PAGES", "", SECURE(SWITCH_ON), 0, SWITCH_ON, {"off", "on"},
        "Large objects lie between pages without access; freed ones lose access, and their addresses wait.",
        OPTION_AT_START,
        "Read once; each large object of the process has guards, or none has."},
    [OPTION_GUARD] = {
        "guard", "HAKMEM_GUARD", "bytes", SAME(0), 0, 1 << 30, {NULL},
        "Of so many allocated bytes, one on average lies in a block between pages without access; 0: none, 1: all "
        "up to 64 KiB.",
        OPTION_AT_START,
        "Read once; hak_guard_start and hak_guard_stop change it."},
    [OPTION_LIVE] = {
        "live", "HAKMEM_LIVE", "", SAME(LIVE_OFF), 0, LIVE_ON, {"off", "on"},
        "Keep a page with the heap's figures, which `hak stats PID` and `hak top` read while the program runs.",
        OPTION_AT_START,
        "The page is made when the program starts."},
};
/* clang-format on */

/* The values of options that are texts. */
static char policy_file[OPTION_TEXT_BYTES], stats_file[OPTION_TEXT_BYTES];
static char heap_profile_file[OPTION_TEXT_BYTES];
static char *const texts[OPTION_COUNT] = {
    [OPTION_POLICY_FILE] = policy_file,
    [OPTION_STATS_FILE] = stats_file,
    [OPTION_HEAP_PROFILE_FILE] = heap_profile_file,
};

/* Other names for values. */
const struct option_word option_words[] = {
    {OPTION_PROFILE, "MIXED_TINYV3_C7_SAFE", PRESET_SPEED},
    {OPTION_PROFILE, "MIXED_TINYV3_C7_BALANCED", PRESET_BALANCED},
};
const size_t option_word_count = sizeof option_words / sizeof option_words[0];

const struct option_alias option_aliases[] = {
    {"HAKMEM_SS_MEM_LEAN", OPTION_PROFILE, "lean"},
    {"HAKMEM_SS_MEM_LEAN_DECOMMIT", OPTION_PURGE, NULL},
    {"HAKMEM_SS_MEM_LEAN_TARGET_MB", OPTION_TARGET_MB, NULL},
    {"HAKMEM_SS_OS_STATS", OPTION_STATS, "text"},
};
const size_t option_alias_count = sizeof option_aliases / sizeof option_aliases[0];

/* The source of a value; a stronger source wins. */
enum rank { RANK_ALIAS = 1, RANK_ENVIRONMENT, RANK_CALL };
#define RANK_BITS 2
#define RANKS ((1L << RANK_BITS) - 1)
_Static_assert(RANK_CALL <= RANKS, "ranks fit their bits");
_Static_assert(LONG_MAX >> RANK_BITS > 0x7fffffff, "values and their rank fit a word");

/* value << RANK_BITS | rank; 0 = not set. Options are independent numbers: no order between them. */
static _Atomic long values[OPTION_COUNT];

bool option_is_set(enum option option) { return atomic_load_explicit(&values[option], memory_order_relaxed) != 0; }

long option_value(enum option option) {
  long set = atomic_load_explicit(&values[option], memory_order_relaxed);
  if (set != 0)
    return set >> RANK_BITS;
  long preset = atomic_load_explicit(&values[OPTION_PROFILE], memory_order_relaxed);
  return option_rows[option].defaults[preset ? preset >> RANK_BITS : HAK_PRESET_DEFAULT];
}

const char *option_string(enum option option) { return texts[option]; }

static void value_store(enum option option, long value, enum rank rank) {
  long set = atomic_load_explicit(&values[option], memory_order_relaxed);
  do
    if ((set & RANKS) > (long)rank)
      return;
  while (!atomic_compare_exchange_weak_explicit(&values[option], &set, value << RANK_BITS | (long)rank,
                                                memory_order_relaxed, memory_order_relaxed));
}

static char to_lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c; }

/* Compares two words and ignores the case of A to Z. */
static bool same_word(const char *a, const char *b) {
  while (*a && to_lower(*a) == to_lower(*b))
    a++, b++;
  return to_lower(*a) == to_lower(*b);
}

enum answer { ANSWER_NO, ANSWER_YES, ANSWER_NONE };

static enum answer parse_answer(const char *text) {
  static const char *const words[][4] = {
      [ANSWER_NO] = {"off", "no", "false", "0"}, [ANSWER_YES] = {"on", "yes", "true", "1"}};
  for (int answer = ANSWER_NO; answer <= ANSWER_YES; answer++)
    for (unsigned i = 0; i < 4; i++)
      if (same_word(words[answer][i], text))
        return (enum answer)answer;
  return ANSWER_NONE;
}

static long choice_find(const struct option_row *row, const char *word) {
  for (long i = 0; i < OPTION_CHOICES_MAX && row->choices[i]; i++)
    if (same_word(row->choices[i], word))
      return i;
  return -1;
}

static enum option_error parse_choice(enum option option, const char *text, long *out) {
  const struct option_row *row = &option_rows[option];
  if ((*out = choice_find(row, text)) >= 0)
    return OPTION_OK;
  for (unsigned i = 0; i < option_word_count; i++)
    if (option_words[i].option == option && same_word(option_words[i].word, text)) {
      *out = option_words[i].value;
      return OPTION_OK;
    }
  long off = choice_find(row, "off");
  enum answer answer = off < 0 ? ANSWER_NONE : parse_answer(text);
  if (answer == ANSWER_NONE)
    return OPTION_BAD;
  *out = answer == ANSWER_NO ? off : off == 0;
  return OPTION_OK;
}

static enum option_error parse_number(const struct option_row *row, const char *text, long *out) {
  long value = 0;
  if (*text == 0)
    return OPTION_BAD;
  for (; *text; text++) {
    if (*text < '0' || *text > '9' || value > row->maximum)
      return OPTION_BAD;
    value = value * 10 + (*text - '0');
  }
  *out = value;
  return value >= row->minimum && value <= row->maximum ? OPTION_OK : OPTION_BAD;
}

static enum option_error parse_text(enum option option, const char *text, long *out) {
  size_t length = strlen(text);
  if (length > (size_t)option_rows[option].maximum)
    return OPTION_BAD;
  memcpy(texts[option], text, length + 1);
  *out = (long)length;
  return OPTION_OK;
}

static enum option_error value_parse(enum option option, const char *text, enum rank rank) {
  const struct option_row *row = &option_rows[option];
  long value;
  enum option_error error = texts[option]     ? parse_text(option, text, &value)
                            : row->choices[0] ? parse_choice(option, text, &value)
                                              : parse_number(row, text, &value);
  if (error == OPTION_OK)
    value_store(option, value, rank);
  return error;
}

static enum option_error alias_parse(const struct option_alias *alias, const char *text) {
  if (alias->value_if_yes == NULL)
    return value_parse(alias->option, text, RANK_ALIAS);
  enum answer answer = parse_answer(text);
  if (answer == ANSWER_YES)
    return value_parse(alias->option, alias->value_if_yes, RANK_ALIAS);
  return answer == ANSWER_NO ? OPTION_OK : OPTION_BAD;
}

static bool is_name(const char *name, const char *text, size_t length) {
  return strlen(name) == length && memcmp(name, text, length) == 0;
}

enum option_error options_parse(const char *environment, size_t name_length, const char *value) {
  for (unsigned i = 0; i < OPTION_COUNT; i++)
    if (is_name(option_rows[i].environment, environment, name_length))
      return *value == 0 && !texts[i] ? OPTION_OK : value_parse((enum option)i, value, RANK_ENVIRONMENT);
  for (unsigned i = 0; i < option_alias_count; i++)
    if (is_name(option_aliases[i].environment, environment, name_length))
      return alias_parse(&option_aliases[i], value);
  return OPTION_UNKNOWN;
}

bool option_find(const char *name, enum option *out) {
  for (unsigned i = 0; i < OPTION_COUNT; i++)
    if (strcmp(option_rows[i].name, name) == 0 || strcmp(option_rows[i].environment, name) == 0) {
      *out = (enum option)i;
      return true;
    }
  return false;
}

enum option_error option_set(enum option option, const char *value) {
  if (option_rows[option].time == OPTION_AT_START)
    return OPTION_FIXED;
  if (option == OPTION_PROFILE && value != NULL && same_word(value, option_rows[option].choices[PRESET_SECURE]))
    return OPTION_FIXED; /* its parts are set at start only */
  if (value != NULL)
    return value_parse(option, value, RANK_CALL);
  atomic_store_explicit(&values[option], 0, memory_order_relaxed);
  return OPTION_OK;
}

static void write_allowed(enum option option, struct text *text) {
  const struct option_row *row = &option_rows[option];
  for (unsigned i = 0; i < OPTION_CHOICES_MAX && row->choices[i]; i++) {
    text_string(text, i ? ", " : "");
    text_string(text, row->choices[i]);
  }
  if (texts[option])
    text_string(text, "a shorter ");
  else if (row->choices[0] == NULL) {
    text_decimal(text, (uint64_t)row->minimum);
    text_string(text, " to ");
    text_decimal(text, (uint64_t)row->maximum);
    text_string(text, *row->unit ? " " : "");
  }
  text_string(text, row->unit);
}

void option_allowed(const char *environment, size_t name_length, struct text *text) {
  for (unsigned i = 0; i < OPTION_COUNT; i++)
    if (is_name(option_rows[i].environment, environment, name_length))
      write_allowed((enum option)i, text);
  for (unsigned i = 0; i < option_alias_count; i++)
    if (is_name(option_aliases[i].environment, environment, name_length)) {
      if (option_aliases[i].value_if_yes)
        text_string(text, "off, on");
      else
        write_allowed(option_aliases[i].option, text);
    }
}

void option_text(enum option option, long value, struct text *text) {
  const struct option_row *row = &option_rows[option];
  if (texts[option])
    text_string(text, value ? texts[option] : "");
  else if (row->choices[0])
    text_string(text, row->choices[value]);
  else
    text_decimal(text, (uint64_t)value);
}
