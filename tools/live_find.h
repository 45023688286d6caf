/* live_find.h: finds the memfds that a process keeps for others (inspect/shared.h), through /proc/PID.
 *
 * `folder`: a descriptor of /proc/PID.
 */
#pragma once

#include "base/words.h"

enum { LIVE_FIND_NONE = -1, LIVE_FIND_DENIED = -2 };

/* Opens the memfd of this name with these flags and returns a descriptor; or one of the values above: the process has
 * none open, or access is denied. */
int live_find_file(int folder, const char *name, int flags);

/* Tells whether the process has the file mapped. */
bool live_maps_file(int folder, const char *name);

/* Tells whether no access to a mapping of the file kills this program by a signal: nobody can truncate the file, and it
 * is not of huge pages, of which the system may have none left. */
bool live_is_safe(int fd);
