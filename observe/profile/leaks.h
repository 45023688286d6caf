/* leaks.h: reports what is live when the program ends, by call stack. */
#pragma once

/* Writes sentences for people on stderr (os/say.h): how much is live in how many stacks, then the biggest stacks, with
 * module and offset of each frame for addr2line. */
void leaks_report(void);
