/* os_file: a file is replaced whole or not at all, whichever of the calls fails, is interrupted, does half of its work,
 * or is the process's last; only regular files are touched; errno is kept. The system's calls are wrapped.
 */
#include "unit.h"

#include "inspect/figures.h"
#include "inspect/file.h"
#include "inspect/shared.h"
#include "os/text_file.h"

#include <dirent.h>
#include <sys/stat.h>

#define FILE_BYTES ((size_t)3000)
#define NAME_BYTES 256
#define CALLS_MAX 64u

enum fault { FAULT_NONE, FAULT_ERROR, FAULT_DEATH, FAULT_INTERRUPT, FAULT_SHORT };

static struct {
  enum fault fault;
  int error;
  unsigned at;    /* the call that has the fault, from 1 on; 0: each of those that can */
  unsigned calls; /* so far */
  bool in_place;  /* the control: what should be a part is the file itself */
} os;

static char folder[NAME_BYTES], path[NAME_BYTES];
static unsigned char before[FILE_BYTES], after[FILE_BYTES];

static bool is_due(enum fault fault) { return os.fault == fault && (os.at == 0 || os.calls == os.at); }

/* Counts a call. True if it is to fail, with errno set. */
static bool refused(void) {
  os.calls++;
  if (is_due(FAULT_DEATH))
    _exit(0);
  errno = os.error;
  return is_due(FAULT_ERROR);
}

long __real_os_kernel(long number, ...);

static long opened(const long *a) {
  const char *name = (const char *)a[1];
  bool is_part = strlen(name) > 5 && strcmp(name + strlen(name) - 5, ".part") == 0;
  if (os.in_place && is_part)
    return open(path, ((int)a[2] & ~O_EXCL) | O_TRUNC, 0600);
  return __real_os_kernel(SYS_openat, a[0], a[1], a[2], a[3]);
}

/* Reading and writing. */
static long moved(long number, const long *a) {
  /* One who dies at the next call has done half of it. */
  bool half = is_due(FAULT_SHORT) || (number == SYS_write && os.fault == FAULT_DEATH);
  return __real_os_kernel(number, a[0], a[1], half ? (a[2] + 1) / 2 : a[2]);
}

TEST_WRAP(long, os_kernel, long number, ...) {
  va_list list;
  long a[6];
  va_start(list, number);
  for (unsigned i = 0; i < 6; i++)
    a[i] = va_arg(list, long);
  va_end(list);
  if (number != SYS_openat && number != SYS_read && number != SYS_write && number != SYS_fdatasync &&
      number != SYS_close && number != SYS_fallocate)
    return __real_os_kernel(number, a[0], a[1], a[2], a[3], a[4], a[5]);
  if (refused()) {
    if (number == SYS_close) /* the number is given back all the same */
      __real_os_kernel(number, a[0]);
    errno = os.error;
    return -1;
  }
  static bool was_interrupted; /* every second call is; a number that is closed is given back all the same */
  if (is_due(FAULT_INTERRUPT) && (was_interrupted = !was_interrupted)) {
    if (number == SYS_close)
      __real_os_kernel(number, a[0]);
    errno = EINTR;
    return -1;
  }
  if (number == SYS_openat)
    return opened(a);
  return number == SYS_read || number == SYS_write ? moved(number, a)
                                                   : __real_os_kernel(number, a[0], a[1], a[2], a[3]);
}

TEST_WRAP(int, renameat, int from_fd, const char *from, int to_fd, const char *to) {
  return refused() ? -1 : os.in_place ? 0 : __real_renameat(from_fd, from, to_fd, to);
}
TEST_WRAP(int, fchmod, int fd, mode_t mode) { return refused() ? -1 : __real_fchmod(fd, mode); }
TEST_WRAP(int, unlinkat, int fd, const char *name, int flags) {
  os.calls++;
  if (is_due(FAULT_DEATH))
    _exit(0);
  return __real_unlinkat(fd, name, flags);
}

static void all_is_well(void) { memset(&os, 0, sizeof os); }

/* --- files of the test --- */

static void put_before(void) {
  all_is_well();
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  assert_true(fd >= 0 && write(fd, before, FILE_BYTES) == (ssize_t)FILE_BYTES && close(fd) == 0);
}

/* 1: as before; 2: as after; 0: neither. */
static int content(void) {
  static unsigned char found[2 * FILE_BYTES];
  int fd = open(path, O_RDONLY);
  assert_true(fd >= 0);
  ssize_t length = read(fd, found, sizeof found);
  close(fd);
  if (length != (ssize_t)FILE_BYTES)
    return 0;
  return memcmp(found, before, FILE_BYTES) == 0 ? 1 : 2 * (memcmp(found, after, FILE_BYTES) == 0);
}

/* Files in the folder; with `remove` those that are parts go. */
static unsigned names(bool remove) {
  unsigned count = 0;
  DIR *entries = UNIT_GOT(opendir(folder));
  for (struct dirent *entry; (entry = readdir(entries)) != NULL;) {
    if (entry->d_name[0] == '.')
      continue;
    count++;
    if (remove && strstr(entry->d_name, ".part"))
      unlinkat(dirfd(entries), entry->d_name, 0);
  }
  closedir(entries);
  return count;
}

static int begin(void **unused) {
  for (size_t i = 0; i < FILE_BYTES; i++) {
    before[i] = (unsigned char)(i * 7);
    after[i] = (unsigned char)(i * 5 + 1);
  }
  unit_folder_make(folder, sizeof folder);
  snprintf(path, sizeof path, "%.200s/file", folder);
  return 0;
}

static int end(void **unused) {
  all_is_well();
  names(true);
  unlink(path);
  return rmdir(folder);
}

static enum os_file_error replace(void) {
  errno = 77;
  enum os_file_error error = os_file_replace(path, after, FILE_BYTES);
  assert_int_equal(errno, 77);
  return error;
}

/* --- what is tested --- */

UNIT_TEST(the_nth_call_fails) {
  unsigned failures = 0;
  for (unsigned n = 1; n < CALLS_MAX; n++) {
    put_before();
    os.fault = FAULT_ERROR;
    os.error = ENOSPC;
    os.at = n;
    enum os_file_error error = replace();
    bool failed = os.calls >= n && error != OS_FILE_OK;
    assert_int_equal(content(), failed ? 1 : 2);
    assert_true(error == (failed ? OS_FILE_NO_SPACE : OS_FILE_OK));
    assert_int_equal(names(false), 1);
    failures += failed;
    if (os.calls < n)
      break;
  }
  unsigned folders = 0; /* on the way, the root too */
  for (const char *at = path; *at; at++)
    folders += *at == '/';
  assert_int_equal(failures, folders + 6); /* open, write, sync, permissions, close, rename */
}

static void dies(void *unused) { os_file_replace(path, after, FILE_BYTES); }

/* How often a process that dies at a call leaves a file that is neither. */
static unsigned torn_files(bool in_place) {
  unsigned torn = 0, replaced = 0;
  for (unsigned n = 1; n < CALLS_MAX && !replaced; n++) {
    put_before();
    os.fault = FAULT_DEATH;
    os.at = n;
    os.in_place = in_place;
    unit_passes_in_child(dies, NULL);
    all_is_well();
    torn += content() == 0;
    replaced += content() == 2 && !in_place;
    names(true);
  }
  assert_true(in_place || replaced);
  return torn;
}

UNIT_TEST(the_nth_call_is_the_last) {
  assert_int_equal(torn_files(false), 0);
  assert_true(torn_files(true) > 1); /* the control */
}

UNIT_TEST(interrupted_and_half_done) {
  for (enum fault fault = FAULT_INTERRUPT; fault <= FAULT_SHORT; fault++) {
    static unsigned char found[FILE_BYTES + 1];
    size_t length;
    put_before();
    os.fault = fault;
    assert_int_equal(replace(), OS_FILE_OK);
    assert_int_equal(content(), 2);
    assert_int_equal(os_file_read(path, found, sizeof found, &length), OS_FILE_OK);
    assert_int_equal(length, FILE_BYTES);
    assert_memory_equal(found, after, FILE_BYTES);
  }
  all_is_well();
  os.fault = FAULT_INTERRUPT;
  for (unsigned i = 0; i < 2; i++) { /* in one of the two, fallocate is the call that is interrupted */
    struct os_shared shared;
    assert_true(os_shared_make(&shared, "unit", 1, OS_SHARED_READ));
    os_shared_drop(&shared);
  }
}

UNIT_TEST(reading) {
  unsigned char found[16];
  size_t length = 0;
  char name[NAME_BYTES + 8];
  put_before();
  errno = 77;
  assert_int_equal(os_file_read(path, found, sizeof found, &length), OS_FILE_OK);
  assert_int_equal(length, sizeof found);
  assert_memory_equal(found, before, sizeof found);
  assert_int_equal(os_file_read(folder, found, sizeof found, &length), OS_FILE_IRREGULAR);
  assert_int_equal(os_file_read("/dev/zero", found, sizeof found, &length), OS_FILE_IRREGULAR);
  snprintf(name, sizeof name, "%s.none", path);
  assert_int_equal(os_file_read(name, found, sizeof found, &length), OS_FILE_ABSENT);
  assert_int_equal(mkfifo(name, 0600), 0);
  assert_int_equal(os_file_read(name, found, sizeof found, &length), OS_FILE_IRREGULAR); /* at once */
  assert_int_equal(os_file_replace(name, after, FILE_BYTES), OS_FILE_IRREGULAR);
  unlink(name);
  os.fault = FAULT_ERROR;
  os.calls = 0;
  os.error = EIO;
  os.at = 2;
  assert_int_equal(os_file_read(path, found, sizeof found, &length), OS_FILE_REFUSED);
  assert_int_equal(errno, 77);
  all_is_well();
}

UNIT_TEST(replacing) {
  struct stat status;
  char name[NAME_BYTES + 8];
  put_before();
  assert_int_equal(chmod(path, 0642), 0);
  assert_int_equal(replace(), OS_FILE_OK);
  assert_true(stat(path, &status) == 0 && (status.st_mode & 07777) == 0642);
  unlink(path);
  assert_int_equal(replace(), OS_FILE_OK);
  assert_int_equal(content(), 2);
  assert_int_equal(os_file_replace(folder, after, FILE_BYTES), OS_FILE_IRREGULAR);
  snprintf(name, sizeof name, "%s.link", path);
  put_before();
  assert_int_equal(symlink(path, name), 0);
  assert_int_equal(os_file_replace(name, after, FILE_BYTES),
                   OS_FILE_IRREGULAR); /* what it points to stays, and it too */
  assert_true(lstat(name, &status) == 0 && S_ISLNK(status.st_mode));
  assert_int_equal(content(), 1);
  unlink(name);
  snprintf(name, sizeof name, "%s/below", path);
  assert_int_equal(os_file_replace(name, after, FILE_BYTES), OS_FILE_ABSENT);
  assert_int_equal(names(false), 1);
}

/* In a folder where everybody may make files, the user who makes the file first would own what a process of root
 * writes. In other folders the owner stays. */
UNIT_TEST(files_of_others) {
  enum { OTHER = 65534 };
  struct stat status;
  put_before();
  unit_skip_if(geteuid() != 0, "only root can make a file of another user");
  assert_int_equal(chown(path, OTHER, OTHER), 0);
  assert_int_equal(chmod(folder, 01777), 0);
  assert_int_equal(replace(), OS_FILE_DENIED);
  assert_int_equal(content(), 1);
  assert_int_equal(chmod(folder, 0700), 0);
  assert_int_equal(replace(), OS_FILE_OK);
  assert_int_equal(content(), 2);
  assert_true(stat(path, &status) == 0 && status.st_uid == OTHER);
}

/* --- links on the way: folder/inner/way -> ../real/way, with the file in real/way/to --- */

static char inner[NAME_BYTES], link_name[NAME_BYTES], beyond[NAME_BYTES], through[NAME_BYTES];

static void path_in(char *out, const char *in, const char *name) { snprintf(out, NAME_BYTES, "%.200s/%s", in, name); }
static int open_descriptors(void) {
  int count = 0;
  for (int fd = 0; fd < 64; fd++)
    count += fcntl(fd, F_GETFD) >= 0;
  return count;
}

static void put_link(const char *text) {
  unlink(link_name);
  assert_int_equal(symlink(text, link_name), 0);
}

static enum os_file_error replace_through(void) {
  int before_fds = open_descriptors();
  errno = 77;
  enum os_file_error error = os_file_replace(through, after, FILE_BYTES);
  assert_int_equal(errno, 77);
  assert_int_equal(open_descriptors(), before_fds);
  bool is_there = access(beyond, F_OK) == 0;
  assert_true(is_there == (error == OS_FILE_OK));
  assert_true(!is_there || unlink(beyond) == 0);
  return error;
}

static void links_begin(void) {
  char name[NAME_BYTES];
  all_is_well();
  path_in(inner, folder, "inner");
  path_in(link_name, inner, "way");
  path_in(through, link_name, "to/file");
  assert_int_equal(mkdir(inner, 0700), 0);
  path_in(name, folder, "real");
  assert_int_equal(mkdir(name, 0777), 0);
  path_in(name, folder, "real/way");
  assert_int_equal(mkdir(name, 0777), 0);
  path_in(name, folder, "real/way/to");
  assert_int_equal(mkdir(name, 0777), 0);
  path_in(beyond, name, "file");
  put_link("../real/way");
}

static void links_end(void) {
  static const char *const folders[] = {"real/way/to", "real/way", "real", "inner"};
  char name[NAME_BYTES];
  unlink(link_name);
  for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
    path_in(name, folder, folders[i]);
    assert_int_equal(rmdir(name), 0);
  }
}

UNIT_TEST(own_links_are_followed) {
  char text[NAME_BYTES];
  links_begin();
  assert_int_equal(replace_through(), OS_FILE_OK);
  path_in(text, folder, "real/./way/"); /* from the root on */
  put_link(text);
  assert_int_equal(replace_through(), OS_FILE_OK);
  path_in(text, inner, "other"); /* to another link */
  assert_int_equal(symlink("../real//way", text), 0);
  put_link("other");
  assert_int_equal(replace_through(), OS_FILE_OK);
  unlink(text);
  assert_int_equal(replace_through(), OS_FILE_ABSENT);
  put_link("way");
  assert_int_equal(replace_through(), OS_FILE_LINK);
  links_end();
}

/* What is no link may be anybody's. */
UNIT_TEST(links_that_others_may_change) {
  links_begin();
  assert_int_equal(chmod(inner, 01777), 0);
  assert_int_equal(replace_through(), OS_FILE_LINK);
  assert_int_equal(chmod(inner, 0777), 0);
  assert_int_equal(replace_through(), OS_FILE_LINK);
  assert_int_equal(chmod(inner, 0755), 0);
  assert_int_equal(replace_through(), OS_FILE_OK);
  links_end();
}

UNIT_TEST(links_of_others) {
  enum { OTHER = 65534 };
  char name[NAME_BYTES];
  unit_skip_if(geteuid() != 0, "only root can make a link of another user");
  links_begin();
  assert_int_equal(lchown(link_name, OTHER, OTHER), 0);
  assert_int_equal(replace_through(), OS_FILE_LINK);
  assert_int_equal(lchown(link_name, 0, 0), 0);
  assert_int_equal(chown(inner, OTHER, OTHER), 0);
  assert_int_equal(replace_through(), OS_FILE_LINK);
  assert_int_equal(chown(inner, 0, 0), 0);
  path_in(name, folder, "real/way");
  assert_int_equal(chown(name, OTHER, OTHER), 0);
  assert_int_equal(replace_through(), OS_FILE_OK);
  links_end();
}

/* The folder is exchanged for a link while the file is being written. */
UNIT_TEST(a_folder_that_becomes_a_link) {
  struct os_file_part part;
  char moved_away[NAME_BYTES], name[NAME_BYTES];
  links_begin();
  path_in(name, folder, "real");
  path_in(moved_away, folder, "moved");
  path_in(through, name, "file");
  assert_int_equal(os_file_begin(&part, through), OS_FILE_OK);
  os_file_add(&part, after, FILE_BYTES);
  assert_int_equal(rename(name, moved_away), 0);
  assert_int_equal(symlink("inner", name), 0);
  assert_int_equal(os_file_end(&part), OS_FILE_OK);
  path_in(through, inner, "file");
  assert_int_equal(access(through, F_OK), -1);
  path_in(through, moved_away, "file");
  assert_int_equal(unlink(through), 0);
  assert_int_equal(unlink(name), 0);
  assert_int_equal(rename(moved_away, name), 0);
  links_end();
}

/* Into a file that is open, in its middle; then the program closes it and opens another under its number. */
UNIT_TEST(into_an_open_file) {
  struct os_file_part part;
  char name[NAME_BYTES + 8], byte = 0;
  put_before();
  snprintf(name, sizeof name, "%s.open", path);
  int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600), other = open(path, O_RDWR);
  assert_true(fd >= 0 && other >= 0);
  assert_int_equal(os_file_begin_at(&part, fd, 100), OS_FILE_OK);
  assert_int_equal(os_file_add(&part, after, FILE_BYTES), OS_FILE_OK);
  assert_int_equal(part.length, 100 + FILE_BYTES);
  assert_int_equal(lseek(fd, 0, SEEK_END), 100 + (off_t)FILE_BYTES);
  assert_true(pread(fd, &byte, 1, 100 + FILE_BYTES - 1) == 1 && (unsigned char)byte == after[FILE_BYTES - 1]);
  assert_int_equal(dup2(other, fd), fd);
  os_file_add(&part, after, FILE_BYTES);
  assert_int_equal(os_file_end(&part), OS_FILE_REFUSED);
  assert_true(fcntl(fd, F_GETFD) >= 0); /* not closed */
  assert_int_equal(content(), 1);
  close(fd);
  close(other);
  unlink(name);
}

static void limited(void *unused) {
  struct rlimit limit = {100, 100};
  CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0 && os_file_replace(path, after, FILE_BYTES) == OS_FILE_NO_SPACE);
}

UNIT_TEST(a_limit_of_file_size_sends_no_signal) {
  put_before();
  unit_passes_in_child(limited, NULL);
  assert_int_equal(content(), 1);
  assert_int_equal(names(false), 1);
}

UNIT_TEST(a_field_behind_a_long_line) {
  static const char text[] = "\nKey:\t12 kB\nKey: 13\nnone:\n";
  char bytes[4 * OS_LINE_BYTES];
  memset(bytes, '7', sizeof bytes);
  memcpy(bytes, "Key", 3);
  memcpy(bytes + sizeof bytes - sizeof text, text, sizeof text);
  assert_int_equal(os_file_replace(path, bytes, sizeof bytes - 1), OS_FILE_OK);
  assert_int_equal(os_file_field(path, "Key:"), 12);
  assert_int_equal(os_file_field(path, "none:"), 0);
  assert_int_equal(os_file_field(path, "other:"), 0);
  assert_int_equal(os_file_field("/none/such", "Key:"), 0);
}

static void gone_folder(void *unused) {
  char name[NAME_BYTES + 8], out[NAME_BYTES];
  snprintf(name, sizeof name, "%.200s/gone", folder);
  CHECK(mkdir(name, 0700) == 0 && chdir(name) == 0 && rmdir(name) == 0);
  CHECK(!os_path_absolute("a", out, sizeof out) && os_path_absolute("/a", out, sizeof out));
}

UNIT_TEST(paths) {
  char out[64], wanted[NAME_BYTES], here[NAME_BYTES];
  assert_non_null(getcwd(here, sizeof here));
  assert_true(os_path_absolute("/a/b", out, sizeof out));
  assert_string_equal(out, "/a/b");
  assert_int_equal(chdir("/usr"), 0);
  assert_true(os_path_absolute("a/b", out, sizeof out));
  assert_string_equal(out, "/usr/a/b");
  assert_int_equal(chdir("/"), 0);
  assert_true(os_path_absolute("a/b", out, sizeof out));
  assert_string_equal(out, "/a/b");
  memset(wanted, 'x', sizeof wanted);
  wanted[sizeof wanted - 1] = 0;
  assert_false(os_path_absolute(wanted, out, sizeof out));
  unit_passes_in_child(gone_folder, NULL);
  assert_int_equal(chdir(here), 0);
}

UNIT_TEST(the_longest_name) {
  char name[2 * NAME_BYTES + 8];
  int length = snprintf(name, sizeof name, "%.200s/", folder);
  memset(name + length, 'n', NAME_MAX + 1);
  name[length + NAME_MAX + 1] = 0;
  assert_int_equal(os_file_replace(name, after, FILE_BYTES), OS_FILE_NAME_TOO_LONG);
  name[length + NAME_MAX] = 0;
  for (unsigned i = 0; i < 2; i++) /* made, then replaced */
    assert_int_equal(os_file_replace(name, after, FILE_BYTES), OS_FILE_OK);
  assert_int_equal(unlink(name), 0);
}

UNIT_TEST(a_folder_is_no_pattern) {
  char name[NAME_BYTES + 8], out[2 * NAME_BYTES], written[2 * NAME_BYTES], wanted[2 * NAME_BYTES], here[NAME_BYTES];
  snprintf(name, sizeof name, "%.200s/100%%%%p%%", folder);
  assert_non_null(getcwd(here, sizeof here));
  assert_int_equal(mkdir(name, 0700), 0);
  assert_int_equal(chdir(name), 0);
  assert_true(os_pattern_absolute("a%p", out, sizeof out));
  bool has_id;
  assert_true(text_path(out, 7, written, sizeof written, &has_id) && has_id);
  snprintf(wanted, sizeof wanted, "%s/a7", name);
  assert_string_equal(written, wanted);
  for (size_t bytes = 1; bytes <= strlen(out); bytes++)
    assert_false(os_pattern_absolute("a%p", written, bytes));
  assert_true(os_pattern_absolute("/a%p", out, sizeof out));
  assert_string_equal(out, "/a%p");
  assert_int_equal(chdir(here), 0);
  assert_int_equal(rmdir(name), 0);
}

int main(void) { return unit_run(begin, end); }
