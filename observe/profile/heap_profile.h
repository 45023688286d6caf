/* heap_profile.h: heap profiles that the options ask for: what is done when the program starts and when it ends. */
#ifndef HAK_PROFILE_HEAP_PROFILE_H
#define HAK_PROFILE_HEAP_PROFILE_H

void heap_profile_begin(void);
void heap_profile_end(void);

#endif
