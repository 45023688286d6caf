/* summary.h: the summary at the program's end, on the stderr that it had at its start, or in a file. */
#ifndef HAK_STATS_SUMMARY_H
#define HAK_STATS_SUMMARY_H

/* When the program starts: notes where the file is to be, as the program may change its folder. */
void summary_begin(void);
/* When options about it were set: keeps a descriptor for it, if one is wanted. */
void summary_open(void);
void summary_write(void);

#endif
