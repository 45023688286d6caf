/* pprof: whichever of the system's calls fails, is interrupted or does half of its work, the file at the path is the
 * one before or a whole profile, nothing is left beside it, and errno is kept. A profile without the list of mappings
 * is a whole one, too. What a whole one is, is judged here: gzip's frame and checksum, and the fields of the message.
 * tests/profile has known answers and the real pprof.
 *
 * The control: each byte of a whole profile changed, and each beginning of it, must be refused.
 */
#include "unit.h"

#include "profile/pprof.h"
#include "profile/proto.h"

#include <dirent.h>

#define FILE_BYTES_MAX ((size_t)16 << 20)
#define STACKS 300u
#define NAME_BYTES 256

/* --- the system --- */

enum fault { FAULT_NONE, FAULT_ERROR, FAULT_INTERRUPT, FAULT_SHORT };

static struct {
  enum fault fault;
  unsigned at;    /* the call that has the fault, from 1 on; 0: each */
  unsigned calls; /* so far */
  unsigned maps;  /* calls of os_map so far */
  unsigned map_at;
} os;

static void all_is_well(void) { memset(&os, 0, sizeof os); }

static bool is_due(enum fault fault) { return os.fault == fault && (os.at == 0 || os.calls == os.at); }

TEST_WRAP(long, os_kernel, long number, long a, long b, long c, long d, long e, long f) {
  static bool was_interrupted;
  if (number == SYS_close || os.fault == FAULT_NONE) {
    os.calls++;
    return __real_os_kernel(number, a, b, c, d, e, f);
  }
  bool may_wait = number == SYS_openat || number == SYS_read || number == SYS_write;
  if (is_due(FAULT_INTERRUPT) && may_wait && (was_interrupted = !was_interrupted)) {
    errno = EINTR;
    return -1;
  }
  os.calls++;
  if (is_due(FAULT_ERROR)) {
    errno = ENOSPC;
    return -1;
  }
  if (is_due(FAULT_SHORT) && (number == SYS_write || number == SYS_read))
    c = (c + 1) / 2;
  return __real_os_kernel(number, a, b, c, d, e, f);
}

TEST_WRAP(int, renameat, int from_fd, const char *from, int to_fd, const char *to) {
  os.calls++;
  if (!is_due(FAULT_ERROR))
    return __real_renameat(from_fd, from, to_fd, to);
  errno = EIO;
  return -1;
}

TEST_WRAP(void *, os_map, size_t size, size_t alignment) {
  return ++os.maps == os.map_at ? NULL : __real_os_map(size, alignment);
}

/* --- the judge --- */

struct found {
  unsigned mappings, locations, samples, strings, figures[6];
  uint64_t sums[6];
};

struct bytes {
  const unsigned char *at, *end;
};

static bool number_in(struct bytes *bytes, uint64_t *number) {
  *number = 0;
  for (unsigned shift = 0; bytes->at < bytes->end && shift < 64; shift += 7) {
    *number |= (uint64_t)(*bytes->at & 0x7f) << shift;
    if ((*bytes->at++ & 0x80) == 0)
      return true;
  }
  return false;
}

/* The next field: its number, and its value or what it holds. */
static bool field_in(struct bytes *bytes, uint64_t *field, uint64_t *value, struct bytes *inner) {
  if (!number_in(bytes, field) || !number_in(bytes, value))
    return false;
  bool has_length = (*field & 7) == 2;
  *field >>= 3;
  if (!has_length)
    return true;
  if (*value > (uint64_t)(bytes->end - bytes->at))
    return false;
  *inner = (struct bytes){bytes->at, bytes->at + *value};
  bytes->at += *value;
  return true;
}

static bool sample_in(struct bytes sample, struct found *found) {
  uint64_t field, value;
  struct bytes inner;
  unsigned figures = 0;
  while (sample.at < sample.end) {
    if (!field_in(&sample, &field, &value, &inner))
      return false;
    while (inner.at < inner.end) {
      uint64_t number;
      if (!number_in(&inner, &number))
        return false;
      if (field == 1 && (number == 0 || number > found->locations)) /* each is written before it is used */
        return false;
      if (field == 2 && figures < 6)
        found->sums[figures++] += number;
    }
  }
  return figures == 6;
}

static bool profile_in(struct bytes profile, struct found *found) {
  uint64_t field, value;
  struct bytes inner = {0};
  while (profile.at < profile.end) {
    if (!field_in(&profile, &field, &value, &inner))
      return false;
    found->mappings += field == 3;
    found->locations += field == 4;
    found->samples += field == 2;
    found->strings += field == 6;
    if ((field == 2 && !sample_in(inner, found)) || field == 0 || field > 14)
      return false;
  }
  return true;
}

static uint32_t crc_of(const unsigned char *bytes, size_t length) {
  uint32_t crc = UINT32_MAX;
  for (size_t i = 0; i < length; i++) {
    crc ^= bytes[i];
    for (unsigned bit = 0; bit < 8; bit++)
      crc = crc & 1 ? crc >> 1 ^ 0xedb88320u : crc >> 1;
  }
  return ~crc;
}

static uint32_t little(const unsigned char *at, unsigned bytes) {
  uint32_t number = 0;
  while (bytes-- > 0)
    number = number << 8 | at[bytes];
  return number;
}

static bool whole(const unsigned char *file, size_t length, struct found *found) {
  static const unsigned char head[] = {0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3};
  static unsigned char content[FILE_BYTES_MAX];
  size_t used = 0, at = sizeof head;
  bool is_last = false;
  memset(found, 0, sizeof *found);
  if (length < at || memcmp(file, head, sizeof head) != 0)
    return false;
  while (!is_last) {
    if (length - at < 5 || file[at] > 1)
      return false;
    is_last = file[at];
    uint32_t block = little(file + at + 1, 2);
    if (little(file + at + 3, 2) != (~block & 0xffff) || length - at - 5 < block)
      return false;
    memcpy(content + used, file + at + 5, block);
    used += block;
    at += 5 + block;
  }
  return length - at == 8 && little(file + at, 4) == crc_of(content, used) && little(file + at + 4, 4) == used &&
         profile_in((struct bytes){content, content + used}, found);
}

/* --- files of the test --- */

static char folder[NAME_BYTES], path[NAME_BYTES];
static const char before[] = "what lay there before";
static unsigned char file[FILE_BYTES_MAX];
static size_t file_bytes;
static struct samples samples;

static void put_before(void) {
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  assert_true(fd >= 0 && write(fd, before, sizeof before) == (ssize_t)sizeof before && close(fd) == 0);
}

static void read_file(void) {
  int fd = open(path, O_RDONLY);
  ssize_t got = fd < 0 ? 0 : read(fd, file, sizeof file);
  assert_true(got >= 0);
  file_bytes = (size_t)got;
  close(fd);
}

static bool is_as_before(void) {
  read_file();
  return file_bytes == sizeof before && memcmp(file, before, sizeof before) == 0;
}

static bool is_alone(void) {
  unsigned entries = 0;
  DIR *list = UNIT_GOT(opendir(folder));
  for (const struct dirent *entry; (entry = readdir(list)) != NULL;)
    entries += entry->d_name[0] != '.';
  closedir(list);
  return entries == 1;
}

static enum os_file_error write_to(const char *name, const struct pprof_about *about) {
  struct os_file_part file;
  if (!os_file_begin(&file, name))
    pprof_add(&file, &samples, about);
  return os_file_end(&file);
}

static enum os_file_error write_it(void) {
  const struct pprof_about about = {.period_bytes = 4096, .time_ns = 5, .duration_ns = 7, .version = "hakmem"};
  errno = EDOM;
  enum os_file_error error = write_to(path, &about);
  int left = errno;
  all_is_well();
  assert_int_equal(left, EDOM);
  return error;
}

static bool is_whole(struct found *found) {
  read_file();
  return whole(file, file_bytes, found) && found->samples == STACKS && found->sums[1] == samples.allocated.bytes &&
         found->sums[3] == samples.live.bytes && found->sums[5] == samples.peak_bytes;
}

static int begin(void **unused) {
  static char blocks[STACKS];
  unit_folder_make(folder, sizeof folder);
  snprintf(path, sizeof path, "%s/profile", folder);
  for (unsigned i = 0; i < STACKS; i++) {
    uintptr_t stack[20];
    for (unsigned at = 0; at < 20; at++) /* more addresses than the first table of them holds */
      stack[at] = at == 0 ? (uintptr_t)begin : 0x10000 + i * 20 + at;
    assert_true(samples_add(&samples, blocks + i, stack, 20, (struct sample_weight){i + 1, 2048}));
  }
  for (unsigned i = 0; i < STACKS; i += 3)
    assert_true(samples_remove(&samples, blocks + i));
  return 0;
}

static int end(void **unused) {
  unlink(path);
  rmdir(folder);
  samples_clear(&samples);
  return 0;
}

/* --- tests --- */

UNIT_TEST(written_and_replaced) {
  struct found found;
  for (unsigned i = 0; i < 2; i++) {
    assert_int_equal(write_it(), OS_FILE_OK);
    assert_true(is_whole(&found) && is_alone());
    assert_true(found.mappings > 0 && found.locations == 1 + 19 * STACKS);
  }
  assert_true(file_bytes > 50000);
}

UNIT_TEST(damage_is_seen) {
  struct found found;
  assert_int_equal(write_it(), OS_FILE_OK);
  assert_true(is_whole(&found));
  size_t step = file_bytes / 300;
  for (size_t at = 0; at < file_bytes; at += at < 200 || file_bytes - at < 30 ? 1 : step) {
    file[at] ^= 1;
    assert_false(whole(file, file_bytes, &found));
    file[at] ^= 1;
    assert_false(whole(file, at, &found));
  }
  assert_true(whole(file, file_bytes, &found));
}

UNIT_TEST(the_nth_call_fails) {
  struct found found;
  unsigned calls, refused = 0, with_fewer_mappings = 0;
  const struct pprof_about about = {.version = "hakmem"};
  put_before();
  os.calls = 0;
  assert_int_equal(write_to(path, &about), OS_FILE_OK);
  calls = os.calls;
  assert_true(is_whole(&found));
  unsigned mappings = found.mappings;
  assert_true(calls > 10);
  for (unsigned at = 1; at <= calls; at++) {
    put_before();
    os.fault = FAULT_ERROR;
    os.at = at;
    os.calls = 0;
    enum os_file_error error = write_it();
    refused += error != OS_FILE_OK;
    if (error != OS_FILE_OK) {
      assert_true(is_as_before());
    } else {
      assert_true(is_whole(&found));
      with_fewer_mappings += found.mappings < mappings;
    }
    assert_true(is_alone());
  }
  assert_true(refused >= 5 && with_fewer_mappings >= 2);
}

UNIT_TEST(interrupted_and_half_done) {
  struct found found;
  for (enum fault fault = FAULT_INTERRUPT; fault <= FAULT_SHORT; fault++) {
    put_before();
    os.fault = fault;
    assert_int_equal(write_it(), OS_FILE_OK);
    assert_true(is_whole(&found) && is_alone());
    assert_true(found.mappings > 0);
  }
}

UNIT_TEST(memory_runs_out) {
  for (unsigned at = 1; at <= 3; at++) { /* what is needed to write, the table of addresses, a larger one */
    put_before();
    os.map_at = at;
    assert_int_equal(write_it(), OS_FILE_NO_MEMORY);
    assert_true(is_as_before() && is_alone());
  }
}

UNIT_TEST(a_limit_of_file_size_sends_no_signal) {
  struct rlimit kept, limit;
  put_before();
  getrlimit(RLIMIT_FSIZE, &kept);
  limit = kept;
  limit.rlim_cur = 40000;
  setrlimit(RLIMIT_FSIZE, &limit);
  enum os_file_error error = write_it();
  setrlimit(RLIMIT_FSIZE, &kept);
  assert_int_equal(error, OS_FILE_NO_SPACE);
  assert_true(is_as_before() && is_alone());
}

UNIT_TEST(no_such_folder) {
  const struct pprof_about about = {.version = "hakmem"};
  char name[2 * NAME_BYTES];
  snprintf(name, sizeof name, "%s/none/profile", folder);
  assert_int_equal(write_to(name, &about), OS_FILE_ABSENT);
  assert_int_equal(write_to(folder, &about), OS_FILE_IRREGULAR);
}

/* Examples of the encoding's documentation, and the bounds. */
UNIT_TEST(the_encoding) {
  unsigned char bytes[40];
  struct proto message = PROTO_IN(bytes);
  const uint64_t numbers[] = {3, 270, 86942};
  proto_number(&message, 1, 150);
  proto_numbers(&message, 6, numbers, 3);
  proto_number(&message, 2, 0);
  assert_int_equal(message.length, 11);
  assert_memory_equal(bytes, "\x08\x96\x01\x32\x06\x03\x8e\x02\x9e\xa7\x05", 11);
  proto_number(&message, 15, UINT64_MAX);
  assert_int_equal(message.length, 22);
  assert_memory_equal(bytes + 11, "\x78\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11);
  message.capacity = 30;
  proto_number(&message, 1, UINT64_MAX);
  assert_true(message.length <= 30);
}

int main(void) { return unit_run(begin, end); }
