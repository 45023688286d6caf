/* policy_disk.h: reads and writes policy files (adapt/policy_file.h), for programs outside the library. */
#pragma once

#include "adapt/policy_file.h"

enum { POLICY_DISK_SENTENCE = 256 };

/* Reads the file into memory of malloc, which *file points into. NULL: `problem` says why, as "PATH: ...". */
void *policy_disk_read(const char *path, struct policy_file *file, char problem[POLICY_DISK_SENTENCE]);

/* Tells whether a file of that name may be written: there is none, or it is a damaged policy file, or one that `writer`
 * made, not a program that learned. */
bool policy_disk_may_write(const char *path, const char *writer, char problem[POLICY_DISK_SENTENCE]);

/* Writes the whole file or nothing: the former file stays until all is written. */
bool policy_disk_write(const char *path, const void *bytes, size_t length, char problem[POLICY_DISK_SENTENCE]);
