#include "tools/live_read.h"

#include "inspect/maps.h"
#include "os/os.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/magic.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#define PAGE_BYTES_MAX ((size_t)64 << 20)
#define TAKES_MAX 1000u
#define NAP_NS 500000
enum { STAT_STATE = 3, STAT_FLAGS = 9, STAT_THREADS = 20, KERNEL_EXITING = 4 }; /* proc(5); PF_EXITING */

bool live_wrong(struct live_process *process, enum live_problem problem, const char *format, ...) {
  va_list list;
  va_start(list, format);
  vsnprintf(process->sentence, sizeof process->sentence, format, list);
  va_end(list);
  process->problem = problem;
  return false;
}

/* --- memfds that a process keeps for others (inspect/shared.h) --- */

enum { LINK_BYTES = 128 };

static const char *link_of(const char *name, char link[LINK_BYTES]) {
  snprintf(link, LINK_BYTES, "/memfd:%s (deleted)", name);
  return link;
}

static int none_or_denied(void) { return errno == EACCES || errno == EPERM ? LIVE_FIND_DENIED : LIVE_FIND_NONE; }

static bool is_link_to(int folder, const char *name, const char *link) {
  char target[LINK_BYTES];
  ssize_t length = readlinkat(folder, name, target, sizeof target);
  return length == (ssize_t)strlen(link) && memcmp(target, link, (size_t)length) == 0;
}

/* Opens the file behind a descriptor in the list. The process may have closed it since its link was read, and got its
 * number for another file: then LIVE_FIND_NONE. */
static int open_link(int list_fd, const char *name, const char *link, int flags) {
  struct stat opened, listed;
  int fd = openat(list_fd, name, flags | O_CLOEXEC | O_NONBLOCK); /* a pipe may have such a name */
  if (fd < 0)
    return none_or_denied();
  if (is_link_to(list_fd, name, link) && fstat(fd, &opened) == 0 && fstatat(list_fd, name, &listed, 0) == 0 &&
      opened.st_dev == listed.st_dev && opened.st_ino == listed.st_ino)
    return fd;
  close(fd);
  return LIVE_FIND_NONE;
}

int live_find_file(int folder, const char *name, int flags) {
  char link[LINK_BYTES];
  link_of(name, link);
  int list_fd = openat(folder, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *list = list_fd < 0 ? NULL : fdopendir(list_fd);
  if (list == NULL) {
    int result = none_or_denied();
    if (list_fd >= 0)
      close(list_fd);
    return result;
  }
  int found = LIVE_FIND_NONE;
  for (struct dirent *entry;
       found == LIVE_FIND_NONE && (entry = readdir(list)) != NULL;) // NOLINT(concurrency-mt-unsafe): one thread
    if (is_link_to(list_fd, entry->d_name, link))
      found = open_link(list_fd, entry->d_name, link, flags);
  closedir(list);
  return found;
}

static bool maps_file(int folder, const char *name) {
  struct os_maps maps;
  struct os_mapping mapping;
  char link[LINK_BYTES];
  bool found = false;
  os_maps_open_at(&maps, openat(folder, "maps", O_RDONLY | O_CLOEXEC));
  link_of(name, link);
  while (!found && os_maps_next(&maps, &mapping))
    found = strcmp(mapping.name, link) == 0;
  os_maps_close(&maps);
  return found;
}

bool live_is_safe(int fd) {
  struct statfs status;
  int seals = fcntl(fd, F_GET_SEALS);
  return seals >= 0 && (seals & F_SEAL_SHRINK) != 0 && fstatfs(fd, &status) == 0 && status.f_type != HUGETLBFS_MAGIC;
}

/* --- what the kernel shows --- */

/* Makes a name safe for a terminal, because processes choose their names. Bytes outside ASCII may be control characters
 * too. */
static void make_printable(char *text) {
  for (; *text; text++)
    if ((unsigned char)*text < ' ' || (unsigned char)*text >= 0x7f)
      *text = '?';
}

/* Reads a small file of the process's folder as a text; "" if it cannot be read. */
static const char *proc_text(const struct live_process *process, const char *name, char *text, size_t text_bytes) {
  int fd = openat(process->folder, name, O_RDONLY | O_CLOEXEC);
  ssize_t length = fd < 0 ? 0 : read(fd, text, text_bytes - 1);
  if (fd >= 0)
    close(fd);
  text[length < 0 ? 0 : length] = 0;
  return text;
}

/* Reads the name of the process, or of one of its threads. */
static void read_command(const struct live_process *process, const char *file, char command[LIVE_COMMAND]) {
  proc_text(process, file, command, LIVE_COMMAND);
  command[strcspn(command, "\n")] = 0;
  make_printable(command);
}

/* Finds a field of `stat`, from the third on, as proc(5) numbers them. Returns where the space before it is; NULL:
 * there is none. */
static const char *stat_field(const char *stat, unsigned number) {
  const char *at = strrchr(stat, ')'); /* the command before may have anything in it */
  at = at ? at + 1 : NULL;
  for (unsigned field = STAT_STATE; at && field < number; field++)
    at = strchr(at + 1, ' ');
  return at;
}

/* A process that is on its way out has no descriptors any more before the kernel calls it ended. */
char live_state(const struct live_process *process) {
  char text[1024];
  const char *state = stat_field(proc_text(process, "stat", text, sizeof text), STAT_STATE);
  const char *flags = stat_field(text, STAT_FLAGS);
  bool is_ending = flags && (strtoul(flags, NULL, 10) & KERNEL_EXITING) != 0;
  return (char)(state == NULL || *state == 0 || state[1] == 'X' || is_ending ? 'Z' : state[1]);
}

static void read_kernel(struct live_process *process) {
  char text[1024];
  const char *pages = strchr(proc_text(process, "statm", text, sizeof text), ' ');
  process->resident_bytes = pages ? strtoull(pages, NULL, 10) * (uint64_t)os_page_bytes() : 0;
  read_command(process, "comm", process->command);
  const char *threads = stat_field(proc_text(process, "stat", text, sizeof text), STAT_THREADS);
  process->threads = threads ? (unsigned)strtoul(threads, NULL, 10) : 0;
}

/* Returns the process id in its innermost namespace, which is the one that the process knows. */
static uint64_t own_pid(const struct live_process *process) {
  static const char key[] = "NSpid:";
  char bytes[OS_LINE_BYTES];
  struct os_lines in;
  uint64_t pid = (uint64_t)process->pid;
  if (!os_lines_open(&in, openat(process->folder, "status", O_RDONLY | O_CLOEXEC), bytes, sizeof bytes))
    return pid;
  const char *line = os_lines_next(&in); /* the line of the groups, which comes before, may be of any length */
  while (line && strncmp(line, key, sizeof key - 1) != 0)
    line = os_lines_next(&in);
  const char *last = line ? strrchr(line, '\t') : NULL;
  if (last)
    pid = strtoull(last, NULL, 10);
  close(in.fd);
  return pid;
}

/* --- checking it --- */

static bool table_is_sound(const struct live_head *head, const struct live_table *table) {
  uint64_t words = 1 + (uint64_t)table->columns * table->rows_max;
  return memchr(table->name, 0, sizeof table->name) != NULL && table->columns <= UINT16_MAX &&
         table->rows_max <= UINT16_MAX && table->words_at >= LIVE_HEADER_WORDS &&
         table->words_at + words <= head->slot_words && table->names_at >= sizeof *head &&
         table->names_at <= head->slot_at[0];
}

static bool head_is_sound(const struct live_head *head, size_t page_bytes) {
  uint64_t slot_bytes = (uint64_t)head->slot_words * sizeof(uint64_t);
  bool sound = head->page_bytes == page_bytes && head->table_count <= LIVE_TABLES_MAX &&
               head->slot_words >= LIVE_HEADER_WORDS && memchr(head->version, 0, sizeof head->version) != NULL &&
               head->slot_at[0] > sizeof *head;
  for (unsigned i = 0; i < 2; i++)
    sound = sound && head->slot_at[i] % sizeof(uint64_t) == 0 && head->slot_at[i] + slot_bytes <= page_bytes;
  for (uint32_t i = 0; sound && i < head->table_count; i++)
    sound = table_is_sound(head, &head->tables[i]);
  return sound;
}

/* Checks that the names of all columns end before the slots. */
static bool names_are_sound(const struct live_process *process) {
  const struct live_head *head = &process->head;
  for (uint32_t i = 0; i < head->table_count; i++) {
    uint32_t at = head->tables[i].names_at;
    for (uint32_t column = 0; column < head->tables[i].columns; column++) {
      const char *end = at < head->slot_at[0] ? memchr(process->names + at, 0, head->slot_at[0] - at) : NULL;
      if (end == NULL)
        return false;
      at = (uint32_t)(end + 1 - process->names);
    }
  }
  return true;
}

static bool copy_head(struct live_process *process) {
  const struct live_head *head = &process->head;
  if (process->page_bytes < sizeof *head)
    return live_unreadable(process, "the live page of process %ld is too short");
  memcpy(&process->head, process->page, sizeof *head);
  if (memcmp(head->mark, LIVE_MARK, sizeof head->mark) != 0)
    return live_unreadable(process, "what process %ld calls its live page is none");
  if (head->layout != LIVE_LAYOUT)
    return live_unreadable(
        process,
        "the live page of process %ld has layout %u, and this program reads layout %u: they are of different versions",
        head->layout, LIVE_LAYOUT);
  if (!head_is_sound(head, process->page_bytes))
    return live_unreadable(process, "the live page of process %ld is damaged");
  make_printable(process->head.version);
  if (head->pid != own_pid(process))
    return live_unreadable(
        process, "process %ld was forked from one with a live page and has taken no memory since: it has none yet");
  process->names = malloc(head->slot_at[0]);
  process->words = calloc(head->slot_words, sizeof *process->words);
  process->spare = calloc(head->slot_words, sizeof *process->spare);
  if (process->names == NULL || process->words == NULL || process->spare == NULL)
    return live_unreadable(process, "no memory for the live page of process %ld");
  memcpy(process->names, process->page, head->slot_at[0]);
  if (!names_are_sound(process))
    return live_unreadable(process, "the live page of process %ld is damaged");
  return true;
}

static bool map_page(struct live_process *process, int fd) {
  struct stat status;
  if (!live_is_safe(fd))
    return live_unreadable(process, "what process %ld calls its live page is none: it is not sealed, or of huge pages");
  if (fstat(fd, &status) != 0 || (size_t)status.st_size > PAGE_BYTES_MAX || status.st_size == 0)
    return live_unreadable(process, "the live page of process %ld has no sensible length");
  void *page = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_SHARED, fd, 0);
  if (page == MAP_FAILED)
    return live_unreadable(process, "the live page of process %ld: %m");
  process->page = page;
  process->page_bytes = (size_t)status.st_size;
  return copy_head(process);
}

static bool no_page(struct live_process *process, int why) {
  if (live_state(process) == 'Z')
    return live_ended(process);
  if (why == LIVE_FIND_DENIED)
    return live_unreadable(process, "not permitted to look at process %ld: it is another user's, runs with raised "
                                    "privileges, or forbids it (PR_SET_DUMPABLE)");
  if (maps_file(process->folder, LIVE_FILE_NAME))
    return live_unreadable(process, "process %ld has closed the descriptor of its live page");
  return live_unreadable(
      process, "process %ld keeps no live page: it is not on hakmem, or HAKMEM_LIVE=1 is not in its environment");
}

bool live_is_possible(void) { return access("/proc/self", F_OK) == 0; }

bool live_open(struct live_process *process, long pid) {
  *process = (struct live_process){.pid = pid, .folder = -1};
  char path[32];
  snprintf(path, sizeof path, "/proc/%ld", pid);
  process->folder = pid > 0 ? open(path, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
  if (process->folder < 0 && !live_is_possible())
    return live_wrong(process, LIVE_UNREADABLE, LIVE_IMPOSSIBLE);
  if (process->folder < 0)
    return live_unreadable(process, "there is no process %ld");
  int fd = live_find_file(process->folder, LIVE_FILE_NAME, O_RDONLY);
  bool opened = fd >= 0 ? map_page(process, fd) : no_page(process, fd);
  if (fd >= 0)
    close(fd);
  if (!opened)
    live_close(process);
  return opened;
}

void live_close(struct live_process *process) {
  free(process->names);
  free(process->words);
  free(process->spare);
  if (process->page)
    munmap((void *)(uintptr_t)process->page, process->page_bytes);
  if (process->folder >= 0)
    close(process->folder);
  process->names = NULL;
  process->words = process->spare = NULL;
  process->page = NULL;
  process->folder = -1;
}

/* --- snapshots --- */

static const struct live_head *page_head(const struct live_process *process) {
  return (const struct live_head *)(const void *)process->page;
}

static uint64_t sequence_of(const struct live_process *process) {
  return atomic_load_explicit(&page_head(process)->sequence, memory_order_acquire);
}

bool live_wake(const struct live_process *process) {
  /* A wake needs no right to write. */
  return syscall(SYS_futex, &page_head(process)->awake, FUTEX_WAKE, 1, NULL, NULL, 0) > 0;
}

static void ask_fresh(const struct live_process *process, unsigned wait_ms) {
  uint64_t before = sequence_of(process);
  if (!live_wake(process))
    return;
  for (uint64_t until_ns = os_nanoseconds() + (uint64_t)wait_ms * 1000000; os_nanoseconds() < until_ns;) {
    uint64_t now = sequence_of(process);
    if (live_snapshot_of(now) > live_snapshot_of(before))
      return;
    nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
  }
}

enum copied { COPIED, TORN, DAMAGED, NOTHING };

static enum copied copy_once(struct live_process *process) {
  uint64_t snapshot = live_snapshot_of(sequence_of(process));
  if (snapshot == 0)
    return NOTHING;
  if (snapshot == process->words[LIVE_NUMBER])
    return COPIED;
  const _Atomic uint64_t *slot =
      (const _Atomic uint64_t *)(const void *)(process->page + process->head.slot_at[snapshot % 2]);
  uint64_t sum = 0;
  for (uint32_t i = 0; i < process->head.slot_words; i++) {
    process->spare[i] =
        atomic_load_explicit(slot + i, memory_order_acquire); /* before the second read of the sequence */
    if (i > LIVE_CHECKSUM)
      sum = live_checksum_on(sum, process->spare[i]);
  }
  if (!live_is_whole(snapshot, sequence_of(process)))
    return TORN;
  if (process->spare[LIVE_CHECKSUM] != sum || process->spare[LIVE_NUMBER] != snapshot)
    return DAMAGED;
  uint64_t *taken = process->spare;
  process->spare = process->words;
  process->words = taken;
  return COPIED;
}

bool live_take(struct live_process *process, unsigned wait_ms) {
  enum copied result = TORN;
  if (wait_ms > 0)
    ask_fresh(process, wait_ms);
  for (unsigned i = 0; i < TAKES_MAX && result == TORN; i++)
    result = copy_once(process);
  if (result == TORN || result == DAMAGED)
    memset(process->spare, 0, process->head.slot_words * sizeof *process->spare);
  if (live_state(process) == 'Z')
    return live_ended(process);
  if (result == TORN)
    return live_unreadable(process, "the live page of process %ld does not hold still");
  if (result == NOTHING)
    return live_unreadable(process, "process %ld has not written its live page yet");
  if (result == DAMAGED)
    return live_unreadable(process, "the live page of process %ld is damaged");
  read_kernel(process);
  return true;
}

struct live_rows live_table(const struct live_process *process, const char *name) {
  for (uint32_t i = 0; i < process->head.table_count; i++) {
    const struct live_table *table = &process->head.tables[i];
    if (strcmp(table->name, name) != 0)
      continue;
    const uint64_t *words = process->words + table->words_at;
    return (struct live_rows){.table = table,
                              .words = words + 1,
                              .count = (uint32_t)(words[0] < table->rows_max ? words[0] : table->rows_max),
                              .columns = table->columns};
  }
  return (struct live_rows){.table = NULL};
}

const char *live_column_name(const struct live_process *process, const struct live_table *table, uint32_t column) {
  const char *name = process->names + table->names_at;
  while (column-- > 0)
    name += strlen(name) + 1;
  return name;
}

uint64_t live_value(const struct live_process *process, const struct live_rows *rows, uint32_t row,
                    const char *column) {
  for (uint32_t i = 0; row < rows->count && i < rows->columns; i++)
    if (strcmp(live_column_name(process, rows->table, i), column) == 0)
      return rows->words[(size_t)row * rows->columns + i];
  return 0;
}

uint64_t live_total(const struct live_process *process, const char *column) {
  struct live_rows totals = live_table(process, "totals");
  return live_value(process, &totals, 0, column);
}

uint64_t live_time_ns(const struct live_process *process) {
  struct live_rows moment = live_table(process, "moment");
  return live_value(process, &moment, 0, "time_ns");
}

double live_age_s(const struct live_process *process) {
  return (double)sub_sat(os_nanoseconds(), live_time_ns(process)) / 1e9;
}

/* --- what else there is to know --- */

void live_thread_name(const struct live_process *process, uint64_t thread_id, char name[LIVE_COMMAND]) {
  char path[64];
  snprintf(path, sizeof path, "task/%lu/comm", thread_id);
  read_command(process, path, name);
}

void live_place(const struct live_process *process, uint64_t address, char place[LIVE_PLACE]) {
  struct os_maps maps;
  struct os_mapping mapping;
  char file[4096] = "";
  uint64_t base = 0;
  snprintf(place, LIVE_PLACE, "0x%lx", address);
  os_maps_open_at(&maps, openat(process->folder, "maps", O_RDONLY | O_CLOEXEC));
  while (os_maps_next(&maps, &mapping)) {
    if (strcmp(mapping.name, file) != 0) {
      snprintf(file, sizeof file, "%s", mapping.name);
      base = mapping.start - mapping.offset;
    }
    if (address < mapping.start || address >= mapping.limit)
      continue;
    const char *slash = strrchr(file, '/');
    if (slash)
      snprintf(place, LIVE_PLACE, "%.48s+0x%lx", slash + 1, address - base);
    break;
  }
  make_printable(place);
  os_maps_close(&maps);
}

void live_list(unsigned wait_ms, void (*each)(struct live_process *process, void *context), void *context) {
  DIR *list = opendir("/proc");
  for (struct dirent *entry; list && (entry = readdir(list)) != NULL;) { // NOLINT(concurrency-mt-unsafe): one thread
    struct live_process process;
    char *end;
    long pid = strtol(entry->d_name, &end, 10);
    if (*end != 0 || pid <= 0 || !live_open(&process, pid))
      continue;
    if (live_take(&process, wait_ms))
      each(&process, context);
    live_close(&process);
  }
  if (list)
    closedir(list);
}
