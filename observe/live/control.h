/* control.h: other processes of the same user, and root, ask this one to start, write and stop a heap profile.
 *
 * They write the command into a memfd (control_page.h) and wake the background thread, which carries it out: no other
 * thread waits for it. What is to be written goes into the memfd too, and they put it where they want: so this process
 * opens no file by a name that comes from outside, and needs none of their folders.
 */
#ifndef HAK_LIVE_CONTROL_H
#define HAK_LIVE_CONTROL_H

#include "os/shared.h"

/* False: the system refuses. */
bool control_make(struct os_shared *out);

/* Carries out what was asked, if something was. One thread at a time, without a lock. */
void control_serve(const struct os_shared *shared);

#endif
