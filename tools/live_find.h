/* live_find.h: the files without a name that a process keeps for others (os/shared.h), found through /proc/PID.
 *
 * `folder`: a descriptor of /proc/PID.
 */
#ifndef HAK_TOOLS_LIVE_FIND_H
#define HAK_TOOLS_LIVE_FIND_H

#include "base/words.h"

enum { LIVE_FIND_NONE = -1, LIVE_FIND_DENIED = -2 };

/* A descriptor of the file with this name, opened with these flags; or one of the above: the process has none open, or
 * it may not be seen. */
int live_find_file(int folder, const char *name, int flags);

/* Does the process have it mapped? */
bool live_maps_file(int folder, const char *name);

/* Not of huge pages: reading one that is not there ends the reader by a signal where the system is out of them. */
bool live_is_plain_memory(int fd);

/* A small file of the folder as a text; "" if it cannot be read. */
const char *live_proc_text(int folder, const char *name, char *text, size_t text_bytes);

#endif
