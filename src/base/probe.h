/* probe.h: places that a tracer (bpftrace, perf, SystemTap) can attach to while the program runs. docs/probes.md lists
 * them.
 *
 * A probe without a tracer costs one `nop` and the computation of its arguments. So probes stand in slow paths only,
 * and their arguments are values that exist anyway. A build without sys/sdt.h has no probes.
 */
#pragma once

#if HAK_PROBES
#define SDT_USE_VARIADIC
#include <sys/sdt.h>
#define HAK_PROBE(name, ...) STAP_PROBEV(hakmem, name, __VA_ARGS__)
#else
/* Uses the arguments, so that no variable or parameter is left over, and evaluates none. */
static inline void probe_arguments(int none, ...) { (void)none; }
#define HAK_PROBE(name, ...) (0 ? probe_arguments(0, __VA_ARGS__) : (void)0)
#endif
