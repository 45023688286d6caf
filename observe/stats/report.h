/* report.h: the summary of this process, to a descriptor or a file. */
#ifndef HAK_STATS_REPORT_H
#define HAK_STATS_REPORT_H

#include "base/options.h"
#include "inspect/file.h"

/* Writes the summary to fd, in one go. Not in a slow path: a fork does not wait for the reader. */
void stats_report(int fd, enum stats_mode mode);

/* Puts it in the place of the file, whole. */
enum os_file_error stats_report_file(const char *path, enum stats_mode mode);

/* pattern with the number in the place of each "%p", and "%" in that of each "%%". False if it does not fit. */
bool stats_path(const char *pattern, uint64_t pid, char *out, size_t out_bytes);

#endif
