#include "base/counters.h"

struct process_counters process_counters;
