#define WIDE_BYTES ((size_t)3 << 20)
#include "wide.c"
