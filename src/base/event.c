#include "base/event.h"

_Atomic uint64_t event_counts[EVENT_KINDS];
