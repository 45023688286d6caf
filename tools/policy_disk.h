/* policy_disk.h: files of policy_file.h, as the programs that are no part of the library read and write them. */
#ifndef HAK_TOOLS_POLICY_DISK_H
#define HAK_TOOLS_POLICY_DISK_H

#include "adapt/policy_file.h"

enum { POLICY_DISK_SENTENCE = 256 };

/* What is in the file, in memory of malloc's, which *file uses; NULL: `problem` says why, as "PATH: ...". */
void *policy_disk_read(const char *path, struct policy_file *file, char problem[POLICY_DISK_SENTENCE]);

/* Whether a file of that name may be written: there is none, or it is one of these, damaged or not. */
bool policy_disk_may_write(const char *path, char problem[POLICY_DISK_SENTENCE]);

/* The whole file or nothing: what was there stays until all is written. */
bool policy_disk_write(const char *path, const void *bytes, size_t length, char problem[POLICY_DISK_SENTENCE]);

#endif
