/* heap_profile.h: heap profiles that the options ask for: the steps at program start and end. */
#pragma once

void heap_profile_begin(void);
void heap_profile_end(void);
