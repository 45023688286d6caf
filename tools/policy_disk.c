#include "tools/policy_disk.h"

#include "inspect/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES_MAX ((size_t)64 << 20)

/* Writes a sentence. Returns false. */
static bool problem_set(char problem[POLICY_DISK_SENTENCE], const char *path, const char *words) {
  snprintf(problem, POLICY_DISK_SENTENCE, "%.128s: %s", path, words);
  return false;
}

/* Reads an ordinary file; NULL on failure, with *is_there false if there is none. */
static void *read_content(const char *path, size_t *length, bool *is_there, char problem[POLICY_DISK_SENTENCE]) {
  char *bytes = malloc(BYTES_MAX); /* pages that are not read into stay untouched */
  enum os_file_error error = bytes ? os_file_read(path, bytes, BYTES_MAX, length) : OS_FILE_REFUSED;
  *is_there = error != OS_FILE_ABSENT;
  if (bytes && error == OS_FILE_OK && *length < BYTES_MAX)
    return bytes;
  problem_set(problem, path,
              bytes == NULL         ? "no memory to read it"
              : error != OS_FILE_OK ? os_file_words(error)
                                    : "is too large for a policy file");
  free(bytes);
  return NULL;
}

static const char *const faults[] = {
    [POLICY_FILE_FOREIGN] = "is not a policy file",
    [POLICY_FILE_DAMAGED] = "is a policy file that is damaged",
    [POLICY_FILE_NEWER] = "is a policy file of a later version of hakmem",
    [POLICY_FILE_OTHER] = "is a policy file of other strategies than this hakmem has",
};

void *policy_disk_read(const char *path, struct policy_file *file, char problem[POLICY_DISK_SENTENCE]) {
  size_t length = 0;
  bool is_there;
  void *bytes = read_content(path, &length, &is_there, problem);
  if (bytes == NULL)
    return NULL;
  enum policy_file_error error = length == 0 ? POLICY_FILE_FOREIGN : policy_file_open(file, bytes, length);
  if (error == POLICY_FILE_OK)
    return bytes;
  problem_set(problem, path, faults[error]);
  free(bytes);
  return NULL;
}

bool policy_disk_may_write(const char *path, const char *writer, char problem[POLICY_DISK_SENTENCE]) {
  size_t length = 0;
  bool is_there;
  struct policy_file file;
  void *bytes = read_content(path, &length, &is_there, problem);
  if (bytes == NULL)
    return !is_there;
  enum policy_file_error error = length == 0 ? POLICY_FILE_DAMAGED : policy_file_open(&file, bytes, length);
  free(bytes);
  return error == POLICY_FILE_DAMAGED || (error == POLICY_FILE_OK && strcmp(file.writer, writer) == 0) ||
         problem_set(problem, path,
                     error == POLICY_FILE_FOREIGN ? "is not a policy file, so it is not overwritten"
                                                  : "holds what a program learned, so it is not overwritten");
}

bool policy_disk_write(const char *path, const void *bytes, size_t length, char problem[POLICY_DISK_SENTENCE]) {
  enum os_file_error error = os_file_replace(path, bytes, length);
  return error == OS_FILE_OK || problem_set(problem, path, os_file_words(error));
}
