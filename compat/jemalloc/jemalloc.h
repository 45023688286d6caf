/* jemalloc.h: the calls of jemalloc 5 that libhakmem-jemalloc.so has, beside the malloc family.
 *
 *   #include <jemalloc/jemalloc.h>      cc -I/usr/include/hakmem program.c -lhakmem-jemalloc
 *
 * docs/coming-from/jemalloc.md says what each does on hakmem, and lists the names that mallctl knows.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define JEMALLOC_VERSION "5.3.0-hakmem"
#define JEMALLOC_VERSION_MAJOR 5
#define JEMALLOC_VERSION_MINOR 3
#define JEMALLOC_VERSION_BUGFIX 0

/* Flags: the logarithm of the alignment in bits 0 to 5, ZERO, tcache + 2 in bits 8 to 19, arena + 1 above. */
#define MALLOCX_LG_ALIGN(lg) ((int)(lg))
#define MALLOCX_ALIGN(bytes) ((int)__builtin_ctzll(bytes))
#define MALLOCX_ZERO ((int)0x40)
#define MALLOCX_TCACHE(tcache) ((int)(((tcache) + 2) << 8))
#define MALLOCX_TCACHE_NONE MALLOCX_TCACHE(-1)
#define MALLOCX_ARENA(arena) ((int)(((unsigned)(arena) + 1) << 20))

/* In the place of an arena's number in a name of mallctl. */
#define MALLCTL_ARENAS_ALL 4096
#define MALLCTL_ARENAS_DESTROYED 4097

void *mallocx(size_t size, int flags) __attribute__((malloc, alloc_size(1)));
void *rallocx(void *block, size_t size, int flags) __attribute__((alloc_size(2)));
size_t xallocx(void *block, size_t size, size_t extra, int flags);
size_t sallocx(const void *block, int flags);
void dallocx(void *block, int flags);
void sdallocx(void *block, size_t size, int flags);
size_t nallocx(size_t size, int flags);

int mallctl(const char *name, void *old, size_t *old_bytes, void *set, size_t set_bytes);
int mallctlnametomib(const char *name, size_t *mib, size_t *length);
int mallctlbymib(const size_t *mib, size_t length, void *old, size_t *old_bytes, void *set, size_t set_bytes);

void malloc_stats_print(void (*write)(void *context, const char *text), void *context, const char *options);

extern const char *malloc_conf;
extern void (*malloc_message)(void *context, const char *text);

#ifdef __cplusplus
}
#endif
