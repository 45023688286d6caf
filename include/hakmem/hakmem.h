/* hakmem.h: the public interface of the hakmem allocator.
 *
 * A program that preloads or links libhakmem needs none of this: malloc, free and the rest of the
 * family are hakmem then. The names here are for programs that want both allocators side by side,
 * or the extras.
 *
 * All functions may be called from any thread at any time: before constructors, in destructors of
 * thread-local objects, in atexit handlers, after fork. None is async-signal-safe. A handler that interrupts the slow path
 * of an allocation all the same gets memory, what it frees is freed later, and nothing is damaged; one that interrupts
 * the few instructions with which malloc takes a ready block, or free puts it back, may get a block that the program
 * gets, too. A handler that jumps out of a slow path leaves its thread with slow calls for good. Sizes are bytes.
 * A function that returns memory returns NULL and sets errno to ENOMEM when memory is out, the size
 * is over PTRDIFF_MAX or a product overflows. Memory is aligned to 16 bytes or to what was asked.
 */
#ifndef HAKMEM_H
#define HAKMEM_H

#include "stats.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HAKMEM_VERSION_MAJOR 0
#define HAKMEM_VERSION_MINOR 1
#define HAKMEM_VERSION_PATCH 0

#ifndef HAK_API
#define HAK_API __attribute__((visibility("default")))
#endif

/* A block of at least `size` bytes; malloc(0) gives a unique pointer that can be freed. */
HAK_API void *hak_malloc(size_t size) __attribute__((malloc, alloc_size(1)));

/* A zeroed block of at least count * size bytes. */
HAK_API void *hak_calloc(size_t count, size_t size) __attribute__((malloc, alloc_size(1, 2)));

/* Resizes; the content up to the smaller size is kept. On failure the block stays as it is.
 * block NULL: as hak_malloc. size 0: frees and returns NULL (as glibc). */
HAK_API void *hak_realloc(void *block, size_t size) __attribute__((alloc_size(2)));
HAK_API void *hak_reallocarray(void *block, size_t count, size_t size) __attribute__((alloc_size(2, 3)));

/* Frees; NULL is allowed; errno is kept. A pointer that hakmem never gave out is ignored; a pointer
 * into hakmem's memory that is no live block ends the program, see docs/misuse.md. */
HAK_API void hak_free(void *block);

/* A block whose address is a multiple of `alignment`, a power of two (else NULL and EINVAL). */
HAK_API void *hak_aligned_alloc(size_t alignment, size_t size) __attribute__((malloc, alloc_align(1), alloc_size(2)));

/* As POSIX posix_memalign: returns 0, EINVAL or ENOMEM, and sets errno too for the last; writes *out only on success. */
HAK_API int hak_posix_memalign(void **out, size_t alignment, size_t size);

/* Bytes usable at `block`, at least what was asked for, constant while the block lives.
 * 0 for NULL and for memory that is not hakmem's. */
HAK_API size_t hak_usable_size(const void *block);

/* The size a request of `size` bytes is rounded up to: at least so much is usable. 0 when the request
 * can never be served. */
HAK_API size_t hak_good_size(size_t size);

/* Gives free memory back to the kernel, keeping about `keep_bytes` of it for reuse. Returns 1 if
 * something was given back, else 0. keep_bytes 0: all that can be reached, free pages inside slabs too.
 * What other threads hold ready for themselves is theirs until their next slow path, which gives it up;
 * a thread that sleeps keeps it. */
HAK_API int hak_trim(size_t keep_bytes);

/* Options: docs/options.md has the table, and for each option what a change does to what is held already.
 * `name` is an option's name ("purge_delay_ms") or its environment name ("HAKMEM_PURGE_DELAY_MS"). Both functions
 * allocate nothing, take no lock and keep errno; they may be called from several threads at once, and from signal
 * handlers. They return 0, ENOENT when there is no such option, or what is said below.
 *
 * hak_option_set takes the same text as the environment; NULL leaves the option to the profile again. What is set
 * by this call stands, also if the environment is read later. Threads act on it from their next slow call on.
 * EINVAL: the value is bad, nothing is changed. EPERM: this option is read once, when the program starts. */
HAK_API int hak_option_set(const char *name, const char *value);

/* Bytes that hold the text of every option's value and its terminator, but for a path. */
#define HAK_OPTION_BYTES 32

/* Writes the value in force, as text that hak_option_set takes, to the `size` bytes at `value`. ERANGE: they do
 * not suffice, nothing is written. */
HAK_API int hak_option_get(const char *name, char *value, size_t size);

/* Sets what is asked to give memory up when a request of wanted_bytes can be served neither by the system
 * nor within the hard limit (HAKMEM_LIMIT_MB, or the cgroup's). It may free and allocate, and is called
 * on the thread that asks, which may hold locks of the program; not while it runs already on that thread.
 * It returns 1 if it freed something: then the request is tried once more. Compilers take malloc for a
 * function that calls nothing back, so what the callback shares with its program must be atomic or volatile.
 * NULL: none. In a signal handler that interrupted a slow path nothing is set. */
typedef int (*hak_limit_callback)(size_t wanted_bytes, void *context);
HAK_API void hak_limit_callback_set(hak_limit_callback callback, void *context);

/* What the allocator holds and has done, by the rows of hakmem/stats.h; docs/stats.md explains each. The first and the
 * last take the heaps' slow-path locks one after another; none allocates. In a signal handler that interrupted a slow path,
 * and in a fork handler, hak_stats_get returns EBUSY and writes zeros, and hak_stats_classes_get returns 0; else
 * hak_stats_get returns 0. Both keep errno. Sums are taken heap by heap while other threads
 * run: each number is right at some time during the call, and all together to within moving_bytes.
 * hak_process_stats_get asks the kernel, which walks the process's page tables: milliseconds for gigabytes. What cannot be
 * read is 0. hak_stats_classes_get writes the size classes that have slabs, at most `count` of them, the smallest first,
 * and returns how many those are; HAK_STATS_CLASSES places suffice for all. */
HAK_API int hak_stats_get(struct hak_stats *out);
HAK_API void hak_process_stats_get(struct hak_process_stats *out);
HAK_API size_t hak_stats_classes_get(struct hak_class_stats *out, size_t count);

/* Heap profiles (docs/profiling.md). hak_profile_start begins one, empty, with one sample for each interval_bytes that are
 * allocated (0: 512 KiB; 1: every allocation); each thread follows at its next free or slow call. hak_profile_stop ends
 * sampling; what was sampled stays in the profile and leaves it when it is freed. hak_profile_dump writes a file for pprof
 * (gzip'ed profile.proto): what was allocated, what is live, and what was live at the peak, by call stack; the file is
 * replaced whole or stays as it is. They allocate nothing and keep errno. They return 0; ENOMEM; EBUSY: called in a
 * signal handler that interrupted an allocation, nothing is done; or why there is no file: EINVAL (no path, or no regular
 * file), ENOENT, EACCES, ENOSPC, EROFS, ENAMETOOLONG, EIO. */
HAK_API int hak_profile_start(size_t interval_bytes);
HAK_API int hak_profile_stop(void);
HAK_API int hak_profile_dump(const char *path);

/* "hakmem 0.1.0 (...)": version and build. Static storage. */
HAK_API const char *hak_version(void);

#ifdef __cplusplus
}
#endif
#endif
