/* heap_profile.h: heap profiles that the options ask for: the steps at program start and end. */
#ifndef HAK_PROFILE_HEAP_PROFILE_H
#define HAK_PROFILE_HEAP_PROFILE_H

void heap_profile_begin(void);
void heap_profile_end(void);

#endif
