/* policy_process.c: finds what hakmem has learned (adapt/view.h) in the memory of a process, and copies it.
 *
 * The process runs on meanwhile. A copy is whole if `changes` was even and stayed the same. If the data change too
 * often for that, the parts are copied one after another. Everything that comes from the process is validated.
 */
#include "os/os.h"
#include "tools/policy_view.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LIBRARY_NAME "libhakmem"
#define MARK_ALIGNMENT ((size_t)8)
#define STEP_BYTES ((size_t)64 << 10) /* of the search */
#define SEARCH_BYTES_MAX ((uintptr_t)1 << 30)
#define ARMS_MAX ((uint32_t)1 << 20)
#define PIECE_ITEMS 8u
#define TRIES_AT_ONCE 8u
#define TRIES_BEFORE_NAPS 200u
#define TRIES (TRIES_BEFORE_NAPS + 2000u)
#define NAP_NS 1000000

struct range {
  uintptr_t start, end;
  bool is_library; /* of a file that is named as hakmem's */
};

struct target {
  long pid;
  int memory, pagemap; /* pagemap: -1 if it cannot be read */
  struct range *ranges;
  size_t range_count, range_room;
  bool has_memory, has_library;
  bool has_other; /* found data in the layout of another version */
  uintptr_t view;
  char *problem;
};

/* Writes a sentence, in which %m stands for errno. Returns false. */
__attribute__((format(printf, 2, 3))) static bool wrong(struct target *target, const char *format, ...) {
  va_list list;
  va_start(list, format);
  vsnprintf(target->problem, POLICY_VIEW_SENTENCE, format, list);
  va_end(list);
  return false;
}

/* --- the process's mappings --- */

static bool note_range(struct target *target, struct range range) {
  if (target->range_count == target->range_room) {
    size_t room = target->range_room ? 2 * target->range_room : 64;
    struct range *grown = reallocarray(target->ranges, room, sizeof *grown);
    if (grown == NULL)
      return wrong(target, "no memory for the list of mappings");
    target->ranges = grown;
    target->range_room = room;
  }
  target->ranges[target->range_count++] = range;
  return true;
}

/* Keeps mappings that may contain variables: writable parts of files, and unnamed mappings that follow them. */
static bool note_mappings(struct target *target, FILE *maps) {
  char line[4096 + 128];
  uintptr_t module_end = 0; /* of a file's mappings and what follows them without a gap */
  bool is_library = false;
  while (fgets(line, sizeof line, maps)) {
    uintptr_t start = 0, end = 0;
    char access[5] = "";
    int name_at = 0;
    if (sscanf(line, "%lx-%lx %4s %*s %*s %*s %n", &start, &end, access, &name_at) < 3 || name_at == 0)
      continue;
    const char *name = line + name_at, *slash = strrchr(name, '/');
    bool is_named = *name != 0 && *name != '\n';
    target->has_memory = true;
    if (is_named) {
      is_library = *name == '/' && strncmp(slash + 1, LIBRARY_NAME, strlen(LIBRARY_NAME)) == 0;
      module_end = *name == '/' ? end : 0;
    } else if (start == module_end) {
      module_end = end;
    }
    target->has_library |= is_library;
    if (module_end == end && access[1] == 'w' &&
        !note_range(target, (struct range){.start = start, .end = end, .is_library = is_library}))
      return false;
  }
  return true;
}

static bool not_permitted(struct target *target) {
  char scope[8] = "";
  FILE *file = fopen("/proc/sys/kernel/yama/ptrace_scope", "re");
  if (file) {
    if (fgets(scope, sizeof scope, file))
      scope[strcspn(scope, "\n")] = 0;
    fclose(file);
  }
  return wrong(target,
               "not permitted to read the memory of process %ld: that takes the same user, or root with the right to "
               "trace%s%s",
               target->pid, *scope ? "; for others than root kernel.yama.ptrace_scope must be 0, and is " : "", scope);
}

static bool cannot_open(struct target *target) {
  if (errno == ENOENT || errno == ESRCH)
    return wrong(target, "there is no process %ld", target->pid);
  if (errno == EACCES || errno == EPERM)
    return not_permitted(target);
  return wrong(target, "process %ld: %m", target->pid);
}

static int open_of(const struct target *target, const char *name) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%ld/%s", target->pid, name);
  return open(path, O_RDONLY | O_CLOEXEC);
}

static bool open_target(struct target *target) {
  int fd = open_of(target, "maps");
  FILE *maps = fd < 0 ? NULL : fdopen(fd, "r");
  if (maps == NULL)
    return cannot_open(target);
  bool is_read = note_mappings(target, maps);
  fclose(maps);
  if (!is_read)
    return false;
  if (!target->has_memory)
    return wrong(target, "process %ld has no memory of its own: it has ended, or is a part of the kernel", target->pid);
  target->memory = open_of(target, "mem");
  if (target->memory < 0)
    return cannot_open(target);
  target->pagemap = open_of(target, "pagemap");
  return true;
}

/* --- its memory --- */

static bool copy_memory(const struct target *target, uintptr_t address, void *into, size_t bytes) {
  for (size_t at = 0; at < bytes;) {
    ssize_t count = pread(target->memory, (char *)into + at, bytes - at, (off_t)(address + at));
    if (count < 0 && errno == EINTR)
      continue;
    if (count <= 0)
      return false;
    at += (size_t)count;
  }
  return true;
}

/* Tells whether these pages were touched. Reading untouched ones would make the kernel allocate them for the
 * process. */
static bool is_touched(const struct target *target, uintptr_t address, size_t bytes) {
  const uint64_t present_or_swapped = (uint64_t)3 << 62;
  uint64_t pages[STEP_BYTES / 4096];
  size_t page = (size_t)sysconf(_SC_PAGESIZE), count = (bytes + page - 1) / page;
  ssize_t wanted = (ssize_t)(count * sizeof *pages);
  if (pread(target->pagemap, pages, (size_t)wanted, (off_t)(address / page * sizeof *pages)) != wanted)
    return true;
  for (size_t i = 0; i < count; i++)
    if (pages[i] & present_or_swapped)
      return true;
  return false;
}

static bool judge_mark(struct target *target, uintptr_t address) {
  struct learned_view view;
  uint32_t bytes[2]; /* view_bytes and arm_bytes: every version has them there */
  _Static_assert(offsetof(struct learned_view, arm_bytes) == offsetof(struct learned_view, view_bytes) + 4, "together");
  if (!copy_memory(target, address + offsetof(struct learned_view, view_bytes), bytes, sizeof bytes))
    return false;
  if (bytes[0] != sizeof view || bytes[1] != sizeof(struct site_arm)) {
    target->has_other = true;
    return false;
  }
  target->view = address;
  return true;
}

static bool search_range(struct target *target, struct range range) {
  static char step[STEP_BYTES];
  if (range.end - range.start > SEARCH_BYTES_MAX)
    range.end = range.start + SEARCH_BYTES_MAX;
  for (uintptr_t at = range.start; at < range.end; at += STEP_BYTES) {
    size_t bytes = min_size(range.end - at, STEP_BYTES);
    if (!is_touched(target, at, bytes) || !copy_memory(target, at, step, bytes))
      continue;
    for (size_t i = 0; i + sizeof LEARNED_MARK <= bytes; i += MARK_ALIGNMENT)
      if (step[i] == LEARNED_MARK[0] && memcmp(step + i, LEARNED_MARK, sizeof LEARNED_MARK) == 0 &&
          judge_mark(target, at + i))
        return true;
  }
  return false;
}

static bool find_view(struct target *target) {
  for (unsigned turn = 0; turn < 2; turn++) /* the library first */
    for (size_t i = 0; i < target->range_count; i++)
      if (target->ranges[i].is_library == (turn == 0) && search_range(target, target->ranges[i]))
        return true;
  if (target->has_other)
    return wrong(target, "process %ld is on another version of hakmem than this program is of", target->pid);
  if (target->has_library)
    return wrong(target,
                 "process %ld is on hakmem and has learned nothing: HAKMEM_POLICY is off, or no large object was freed",
                 target->pid);
  return wrong(target, "process %ld is not on hakmem, or has it linked in and has learned nothing", target->pid);
}

/* --- copies that are whole --- */

static bool changes_of(const struct target *target, uint32_t *changes) {
  return copy_memory(target, target->view + offsetof(struct learned_view, changes), changes, sizeof *changes);
}

enum steadiness { STEADY, MOVED, GONE };

/* A part of the data: each item must be whole, but the items need not be of one moment. */
struct part {
  uintptr_t address;
  void *into;
  size_t item_bytes;
  uint32_t count;
};

static enum steadiness copy_once(const struct target *target, const struct part *parts, unsigned count) {
  uint32_t before, after;
  if (!changes_of(target, &before))
    return GONE;
  if (before % 2 != 0)
    return MOVED;
  for (unsigned i = 0; i < count; i++)
    if (!copy_memory(target, parts[i].address, parts[i].into, parts[i].item_bytes * parts[i].count))
      return GONE;
  if (!changes_of(target, &after))
    return GONE;
  return before == after ? STEADY : MOVED;
}

static enum steadiness copy_steady(const struct target *target, const struct part *parts, unsigned count,
                                   unsigned tries) {
  enum steadiness result = MOVED;
  for (unsigned i = 0; i < tries && result == MOVED; i++) {
    if (i > TRIES_BEFORE_NAPS)
      nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
    result = copy_once(target, parts, count);
  }
  return result;
}

/* Shorter pieces are less likely to change during the copy. */
static enum steadiness copy_in_pieces(const struct target *target, const struct part *part) {
  enum steadiness result = STEADY;
  for (uint32_t at = 0; at < part->count && result == STEADY; at += PIECE_ITEMS) {
    struct part piece = {.address = part->address + at * part->item_bytes,
                         .into = (char *)part->into + at * part->item_bytes,
                         .item_bytes = part->item_bytes,
                         .count = (uint32_t)min_size(PIECE_ITEMS, part->count - at)};
    result = copy_steady(target, &piece, 1, TRIES);
  }
  return result;
}

struct found {
  struct learned_view view;
  struct site_arm *places;
};

#define VIEW_AT(member) offsetof(struct learned_view, member)

/* Copies the head up to the table's size and address, which are constant. */
static struct part part_head(const struct target *target, struct found *found) {
  return (struct part){target->view, &found->view, VIEW_AT(table.priors), 1};
}

static bool is_plausible(const struct learned_view *view) {
  return view->arm_count >= SITE_WAYS && view->arm_count <= ARMS_MAX && is_power_of_two(view->arm_count) &&
         view->table.set_count == view->arm_count / SITE_WAYS && view->table.places;
}

static enum steadiness copy_all(const struct target *target, struct found *found, bool *is_skewed) {
  struct learned_view *view = &found->view;
  const struct part parts[] = {
      part_head(target, found),
      {target->view + VIEW_AT(table.priors), view->table.priors, sizeof *view->table.priors, SITE_RANGES},
      {target->view + VIEW_AT(table.rests), view->table.rests, sizeof *view->table.rests, SITE_RANGES},
      {target->view + VIEW_AT(table.gone), view->table.gone, VIEW_AT(modules) - VIEW_AT(table.gone), 1},
      {target->view + VIEW_AT(modules), view->modules, sizeof *view->modules, LEARNED_MODULES},
      {(uintptr_t)view->table.places, found->places, sizeof *found->places, view->arm_count},
  };
  const unsigned count = sizeof parts / sizeof *parts;
  enum steadiness result = copy_steady(target, parts, count, TRIES_AT_ONCE);
  if (result != MOVED)
    return result;
  *is_skewed = true;
  result = STEADY;
  for (unsigned i = 0; i < count && result == STEADY; i++)
    result = copy_in_pieces(target, &parts[i]);
  return result;
}
_Static_assert(VIEW_AT(table.priors) < VIEW_AT(table.rests) && VIEW_AT(table.rests) < VIEW_AT(table.gone) &&
                   VIEW_AT(table.gone) < VIEW_AT(modules),
               "the parts are all there is");

static bool copy_found(struct target *target, struct found *found, bool *is_skewed) {
  struct part head = part_head(target, found);
  enum steadiness result = copy_steady(target, &head, 1, TRIES);
  if (result == STEADY) {
    uint32_t arm_count = found->view.arm_count;
    if (!is_plausible(&found->view))
      return wrong(target, "what process %ld has learned is damaged", target->pid);
    found->places = calloc(arm_count, sizeof *found->places);
    if (found->places == NULL)
      return wrong(target, "no memory for %u arms", arm_count);
    result = copy_all(target, found, is_skewed);
    found->view.arm_count = arm_count;
  }
  if (result == GONE)
    return wrong(target, "process %ld has ended, or became another program", target->pid);
  if (result == MOVED)
    return wrong(target, "process %ld does not hold still for long enough, or was stopped while it learned",
                 target->pid);
  if (!is_plausible(&found->view))
    return wrong(target, "what process %ld has learned is damaged", target->pid);
  return true;
}

/* --- records --- */

static bool arm_is_sound(const struct evolve_arm *arm) {
  bool sound = arm->idle_count <= EVOLVE_IDLE_MAX && arm->leader < KEEP_STRATEGIES;
  for (unsigned i = 0; sound && i < arm->idle_count; i++)
    sound = arm->idle[i].acted < KEEP_STRATEGIES;
  return sound;
}

/* A prior that is not sound is not used. */
static void add_record(struct policy_view *view, const struct site_table *table, struct evolve_arm arm,
                       enum policy_record_kind kind, uint64_t site, unsigned range, uint32_t now_ms) {
  const struct evolve_arm *prior = arm_is_sound(&table->priors[range]) ? &table->priors[range] : NULL;
  const struct evolve_costs *costs = range < view->costs.mapping_range ? &view->costs.part : &view->costs.mapping;
  evolve_tick(&arm, costs, now_ms);
  struct policy_record *record = &view->records[view->record_count++];
  *record = policy_record_of(&arm, kind, site, range);
  if (kind != POLICY_RECORD_PRIOR)
    record->leader = (uint8_t)evolve_leader(&arm, prior);
}

static void add_range(struct policy_view *view, struct site_table *table, unsigned range, uint32_t now_ms) {
  if (!arm_is_sound(&table->priors[range]))
    view->unsound++;
  else if (table->priors[range].epochs > 0)
    add_record(view, table, table->priors[range], POLICY_RECORD_PRIOR, 0, range, now_ms);
  struct evolve_arm *rest = &table->rests[range];
  if (!arm_is_sound(rest)) {
    evolve_arm_begin(rest, KEEP_AT_ONCE);
    view->unsound++;
  } else if (rest->epochs > 0 || rest->events > 0)
    add_record(view, table, *rest, POLICY_RECORD_REST, 0, range, now_ms);
}

static void note_modules(struct policy_view *view, const struct learned_view *from) {
  for (unsigned i = 0; i < LEARNED_MODULES && from->modules[i].tag; i++) {
    struct policy_module *module = &view->modules[view->module_count++];
    module->tag = from->modules[i].tag;
    memcpy(module->name, from->modules[i].name, sizeof module->name - 1);
    for (char *at = module->name; *at; at++)
      *at = (unsigned char)*at < ' ' || *at == 127 ? '?' : *at;
  }
}

static bool make_records(struct policy_view *view, struct found *found) {
  struct site_table *table = &found->view.table;
  uint32_t now_ms = (uint32_t)os_milliseconds();
  view->records = calloc(found->view.arm_count + (size_t)2 * SITE_RANGES, sizeof *view->records);
  if (view->records == NULL)
    return false;
  table->places = found->places;
  view->costs = found->view.costs;
  note_modules(view, &found->view);
  for (unsigned range = 0; range < SITE_RANGES; range++)
    add_range(view, table, range, now_ms);
  for (uint32_t i = 0; i < found->view.arm_count; i++) {
    struct site_arm *place = &found->places[i];
    if (place->taken && (place->range >= SITE_RANGES || !arm_is_sound(&place->arm))) {
      place->taken = false;
      view->unsound++;
    }
    if (!place->taken)
      continue;
    view->arms++;
    add_record(view, table, place->arm, POLICY_RECORD_SITE, place->site, place->range, now_ms);
  }
  view->arms_displaced = table->displaced;
  view->totals = site_totals(table, &view->costs, now_ms);
  return true;
}

bool policy_view_of_process(struct policy_view *view, long pid, char problem[POLICY_VIEW_SENTENCE]) {
  struct target target = {.pid = pid, .memory = -1, .pagemap = -1, .problem = problem};
  struct found found = {.places = NULL};
  *view = (struct policy_view){.is_process = true};
  bool is_shown = open_target(&target) && find_view(&target) && copy_found(&target, &found, &view->is_skewed);
  if (is_shown && !make_records(view, &found))
    is_shown = wrong(&target, "no memory for the records");
  free(found.places);
  free(target.ranges);
  if (target.memory >= 0)
    close(target.memory);
  if (target.pagemap >= 0)
    close(target.pagemap);
  return is_shown;
}
