#include "tools/policy_disk.h"

#include "adapt/policy_store.h"

#include <stdlib.h>
#include <string.h>

#define BYTES_MAX ((size_t)64 << 20)

static const char *read_whole(const char *path, struct policy_file *file, void **bytes,
                              enum policy_file_error *problem) {
  *bytes = malloc(BYTES_MAX); /* pages that are not read into stay untouched */
  *problem = POLICY_FILE_UNREADABLE;
  return *bytes ? policy_store_open(path, *bytes, BYTES_MAX, file, problem) : os_file_words(OS_FILE_NO_MEMORY);
}

const char *policy_disk_read(const char *path, struct policy_file *file, void **bytes) {
  enum policy_file_error problem;
  const char *words = read_whole(path, file, bytes, &problem);
  if (words)
    free(*bytes);
  return words;
}

const char *policy_disk_reason_to_keep(const char *path, const char *writer) {
  void *bytes;
  struct policy_file file;
  enum policy_file_error problem;
  const char *words = read_whole(path, &file, &bytes, &problem);
  free(bytes);
  if (problem == POLICY_FILE_OK)
    return strcmp(file.writer, writer) == 0 ? NULL : "it holds what a program learned";
  return problem <= POLICY_FILE_DAMAGED ? NULL : words;
}
