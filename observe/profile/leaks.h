/* leaks.h: what is live when the program ends, by the call stacks that allocated it. */
#ifndef HAK_PROFILE_LEAKS_H
#define HAK_PROFILE_LEAKS_H

/* Sentences for people, by say: how much in how many stacks, and the biggest of them, with module and offset of each
 * frame, for addr2line. */
void leaks_report(void (*say)(const char *sentence));

#endif
