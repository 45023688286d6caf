/* probe.h: places that a tracer (bpftrace, perf, SystemTap) can attach to while the program runs. docs/probes.md lists them.
 *
 * A probe that nobody is attached to costs one `nop` and the computing of its arguments, so it stands in slow paths only,
 * and its arguments are values that are there anyway. Where the system has no sys/sdt.h there are no probes.
 */
#ifndef HAK_BASE_PROBE_H
#define HAK_BASE_PROBE_H

#if HAK_PROBES
#define SDT_USE_VARIADIC
#include <sys/sdt.h>
#define HAK_PROBE(name, ...) STAP_PROBEV(hakmem, name, __VA_ARGS__)
#else
#define HAK_PROBE(name, ...) ((void)0)
#endif

#endif
