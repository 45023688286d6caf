#include "tools/policy_disk.h"

#include "adapt/policy_store.h"

#include <stdlib.h>
#include <string.h>

#define BYTES_MAX ((size_t)64 << 20)

static enum os_file_error read_whole(const char *path, struct policy_file *file, void **bytes,
                                     enum policy_file_error *problem) {
  *bytes = malloc(BYTES_MAX); /* pages that are not read into stay untouched */
  return *bytes ? policy_store_open(path, *bytes, BYTES_MAX, file, problem) : OS_FILE_NO_MEMORY;
}

const char *policy_disk_read(const char *path, struct policy_file *file, void **bytes) {
  enum policy_file_error problem;
  enum os_file_error error = read_whole(path, file, bytes, &problem);
  if (!error && problem == POLICY_FILE_OK)
    return NULL;
  free(*bytes);
  return error ? os_file_words(error) : policy_file_words(problem);
}

const char *policy_disk_reason_to_keep(const char *path, const char *writer) {
  void *bytes;
  struct policy_file file;
  enum policy_file_error problem;
  enum os_file_error error = read_whole(path, &file, &bytes, &problem);
  free(bytes);
  if (error)
    return error == OS_FILE_ABSENT ? NULL : os_file_words(error);
  if (problem == POLICY_FILE_OK)
    return strcmp(file.writer, writer) == 0 ? NULL : "it holds what a program learned";
  return problem <= POLICY_FILE_DAMAGED ? NULL : policy_file_words(problem);
}
