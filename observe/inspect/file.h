/* file.h: reads and replaces whole files. It touches regular files only, so no call waits for the reader or writer of a
 * pipe, and no device is opened. errno is kept.
 */
#pragma once

#include "os/os.h"

#include <errno.h>
#include <limits.h>
#include <sys/stat.h>

/* The numbers are those of errno. */
enum os_file_error {
  OS_FILE_OK = 0,
  OS_FILE_ABSENT = ENOENT,
  OS_FILE_IRREGULAR = EINVAL, /* a folder, a device, a pipe; to be written: a symbolic link */
  OS_FILE_LINK = ELOOP,       /* on the way to the file; to be written */
  OS_FILE_DENIED = EACCES,
  OS_FILE_NO_SPACE = ENOSPC,
  OS_FILE_NAME_TOO_LONG = ENAMETOOLONG,
  OS_FILE_READ_ONLY = EROFS,
  OS_FILE_NO_MEMORY = ENOMEM, /* the system's, or the maker of the content had none */
  OS_FILE_REFUSED = EIO,      /* for any other reason */
};
/* Returns "there is no such folder" and similar words. */
const char *os_file_words(enum os_file_error error);

/* Reads the first `capacity` bytes at most. */
enum os_file_error os_file_read(const char *path, void *bytes, size_t capacity, size_t *length);

/* Replaces or makes the file at path; the permissions of an existing file stay. On the way, symbolic links are followed
 * only where root or the process's user made them, in folders of theirs that others may not write. The bytes are on
 * disk before the rename. So path names either the former or the present file, whole, at any time and after any crash.
 * A process that is killed meanwhile leaves a file PATH.NUMBER-NUMBER.part, with the beginning of a long name only. On
 * failure nothing changes. */
enum os_file_error os_file_replace(const char *path, const void *bytes, size_t length);

/* Around reading, merging and replacing one file by several processes: waits for the lock (flock) of the file's folder,
 * OS_FILE_LOCK_WAIT_MS at most. What it returns goes to os_file_unlock; -1: there is no lock, go on without. */
#define OS_FILE_LOCK_WAIT_MS 2000u
int os_file_lock(const char *path);
void os_file_unlock(int lock);

/* The same in pieces: os_file_begin, any number of os_file_add, then os_file_end, even after an error. The part keeps
 * the first error, which the caller may set too. After it nothing is written, and os_file_end changes nothing. All of
 * them return it. path must stay valid until the end. */
#define OS_FILE_ENDING_BYTES 64 /* of ".NUMBER-NUMBER.part" */
struct os_file_part {
  enum os_file_error error;
  const char *path;  /* NULL: the file was open */
  int fd, folder_fd; /* the folder, so that nobody exchanges it meanwhile */
  bool replaces;     /* true: a file of this status is replaced */
  struct stat status;
  uint64_t length;
  struct os_file file; /* that was open */
  char name[PATH_MAX + OS_FILE_ENDING_BYTES];
};
enum os_file_error os_file_begin(struct os_file_part *part, const char *path);
/* Alternative to os_file_begin: the bytes go into an open file, from `at` on, and the file stays open. If the program
 * closes it and gets the number for another file, nothing more is written. */
enum os_file_error os_file_begin_at(struct os_file_part *part, int fd, uint64_t at);
enum os_file_error os_file_add(struct os_file_part *part, const void *bytes, size_t length);
enum os_file_error os_file_end(struct os_file_part *part);

/* Writes path, preceded by the working folder if path is relative. False if it does not fit. */
bool os_path_absolute(const char *path, char *out, size_t out_bytes);
/* The same for a pattern (inspect/figures.h): what looks like a pattern in the name of the folder is none. */
bool os_pattern_absolute(const char *pattern, char *out, size_t out_bytes);
