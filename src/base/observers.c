#include "base/observers.h"

_Atomic bool observers_large_made, observers_large_freed, observers_libraries_told;
