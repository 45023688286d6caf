#include "map/usage.h"

_Atomic size_t usage_bytes;
_Atomic size_t usage_peak_bytes;
