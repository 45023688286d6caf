/* leaks.h: reports what is live when the program ends, by call stack. */
#pragma once

/* Passes sentences for people to say: how much is live in how many stacks, then the biggest stacks, with module and
 * offset of each frame for addr2line. */
void leaks_report(void (*say)(const char *sentence));
