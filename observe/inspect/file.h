/* file.h: files, read whole and replaced whole. Only regular files are touched: nothing here waits for a reader
 * or a writer, and no device is taken for a file. errno is kept.
 */
#ifndef HAK_INSPECT_FILE_H
#define HAK_INSPECT_FILE_H

#include "os/os.h"

#include <limits.h>
#include <sys/types.h>

enum os_file_error {
  OS_FILE_OK,
  OS_FILE_ABSENT,
  OS_FILE_IRREGULAR, /* a folder, a device, a pipe */
  OS_FILE_DENIED,
  OS_FILE_NO_SPACE,
  OS_FILE_NAME_TOO_LONG,
  OS_FILE_READ_ONLY,
  OS_FILE_NO_MEMORY, /* of who makes the content */
  OS_FILE_REFUSED,   /* for any other reason */
};
/* "there is no such folder", and the like. */
const char *os_file_words(enum os_file_error error);

/* Reads the first `capacity` bytes at most. */
enum os_file_error os_file_read(const char *path, void *bytes, size_t capacity, size_t *length);

/* Puts a file with these bytes in the place of the one at path, or where none is; its permissions stay. The bytes are
 * on the disk before it takes the place, so whoever opens path, at any time and after any crash, finds the one or the
 * other whole. A process that is killed meanwhile leaves a file PATH.NUMBER-NUMBER.part. On failure nothing is
 * changed. */
enum os_file_error os_file_replace(const char *path, const void *bytes, size_t length);

/* The same in pieces: begin, any number of add, end, whatever the others said. To end, the first error so far is told,
 * and comes back: then nothing is changed. path stays the caller's until the end. */
#define OS_FILE_ENDING_BYTES 64 /* of ".NUMBER-NUMBER.part" */
struct os_file_part {
  const char *path; /* NULL: the file was open */
  int fd;
  bool replaces; /* a file of these permissions and owner */
  mode_t mode;
  uid_t user;
  gid_t group;
  uint64_t length;
  struct os_file file; /* that was open */
  char name[PATH_MAX + OS_FILE_ENDING_BYTES];
};
enum os_file_error os_file_begin(struct os_file_part *part, const char *path);
/* Instead: the bytes go into an open file, from `at` on, as they come; it is not closed. If the program closes it and
 * gets the number for another file, nothing more is written. */
enum os_file_error os_file_begin_at(struct os_file_part *part, int fd, uint64_t at);
enum os_file_error os_file_add(struct os_file_part *part, const void *bytes, size_t length);
enum os_file_error os_file_end(struct os_file_part *part, enum os_file_error error);

/* path, or, if that does not begin with a slash, the working folder and path. False if it does not fit. */
bool os_path_absolute(const char *path, char *out, size_t out_bytes);

#endif
