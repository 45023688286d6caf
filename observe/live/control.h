/* control.h: executes commands of other processes: start, write and stop a heap profile.
 *
 * Access is limited to the process's user and root. A client writes the command into a memfd (control_page.h) and wakes
 * the background thread, which executes it. No other thread waits. A profile is written into the memfd too, and the
 * client copies it. So this process opens no file by a name from outside, and needs no access to the client's folders.
 */
#pragma once

#include "inspect/shared.h"

/* False: the system refuses. */
bool control_make(struct os_shared *out);

/* Executes the pending command, if there is one. One thread at a time may call, without a lock. */
void control_serve(const struct os_shared *shared);
