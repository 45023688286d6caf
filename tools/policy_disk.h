/* policy_disk.h: reads policy files (adapt/policy_file.h), for programs outside the library. */
#pragma once

#include "adapt/policy_file.h"

/* Reads the file into memory of malloc, *bytes, which *file points into. Returns why not; NULL: it did. */
const char *policy_disk_read(const char *path, struct policy_file *file, void **bytes);

/* Returns why a file of that name must stay as it is; NULL if there is none, or it is empty or a damaged policy file,
 * or one that `writer` made, not a program that learned. */
const char *policy_disk_reason_to_keep(const char *path, const char *writer);
