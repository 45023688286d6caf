/* report.h: writes the summary of this process to a descriptor or a file. */
#pragma once

#include "base/options.h"
#include "inspect/file.h"

/* Writes the summary to fd, in one piece. Call outside slow paths, so that a fork does not wait for the reader. */
void stats_report(int fd, enum stats_mode mode);

/* Replaces the file by it, whole. */
enum os_file_error stats_report_file(const char *path, enum stats_mode mode);

/* Writes pattern with each "%p" replaced by the number and each "%%" by "%". False if it does not fit. */
bool stats_path(const char *pattern, uint64_t pid, char *out, size_t out_bytes);
