/* hakmem.h: the public interface of the hakmem allocator.
 *
 * A program that preloads or links libhakmem does not need this header: its malloc, free and the rest of the family are
 * hakmem's. The names here are for programs that use both allocators side by side, and for the extras.
 *
 * Words: a *bin* is a thread cache of one size class. The *purge delay* is the decay time: how long free memory stays
 * resident. An *envelope* is a batch of remote frees. A *slow path* is a call that malloc or free cannot serve from
 * a bin. ARCHITECTURE.md has all words.
 *
 * Threads: all functions may be called from any thread at any time: before constructors, in destructors of
 * thread-local objects, in atexit handlers, after fork.
 *
 * Signal handlers: no function that allocates, frees or trims is async-signal-safe.
 *   - A handler that interrupts a slow path gets memory. What it frees is freed later. Nothing is damaged.
 *   - A handler may interrupt the few instructions with which malloc takes a block from a bin or free puts one back.
 *     If it allocates then, it may get a block that the program gets too. While another thread trims, this is far more
 *     likely: the handler's call then empties the bins that the interrupted call uses.
 *   - A handler that jumps out of a slow path (longjmp) leaves its thread with slow calls for good.
 *
 * Memory: sizes are bytes. A function that returns memory returns NULL and sets errno to ENOMEM when memory is out,
 * when the size is over PTRDIFF_MAX, or when a product overflows. Blocks are aligned to 16 bytes or to what was asked.
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

/* Resizes a block and keeps its content up to the smaller size. On failure the block stays as it is.
 * block NULL: as hak_malloc. size 0: frees and returns NULL (as glibc). */
HAK_API void *hak_realloc(void *block, size_t size) __attribute__((alloc_size(2)));
HAK_API void *hak_reallocarray(void *block, size_t count, size_t size) __attribute__((alloc_size(2, 3)));

/* Frees a block; NULL is allowed; errno is kept. A pointer into hakmem's memory that is no live block ends the program.
 * So does any other pointer where malloc is hakmem's in the whole process; elsewhere it is ignored (HAKMEM_FOREIGN,
 * docs/misuse.md). */
HAK_API void hak_free(void *block) __attribute__((nothrow));

/* A block whose address is a multiple of `alignment`, a power of two (else NULL and EINVAL). */
HAK_API void *hak_aligned_alloc(size_t alignment, size_t size) __attribute__((malloc, alloc_align(1), alloc_size(2)));

/* As POSIX posix_memalign: returns 0, EINVAL or ENOMEM, and for ENOMEM sets errno too. Writes *out only on success. */
HAK_API int hak_posix_memalign(void **out, size_t alignment, size_t size);

/* Returns the bytes usable at `block`: at least what was asked for, and constant while the block lives.
 * Returns 0 for NULL and for memory that is not hakmem's. */
HAK_API size_t hak_usable_size(const void *block);

/* Returns the size that a request of `size` bytes is rounded up to: a request of that size wastes least. Where memory
 * is short, less may be usable, and the first blocks of a class may have more; hak_usable_size tells what a block has.
 * Returns 0 when the request can never be served. */
HAK_API size_t hak_good_size(size_t size);

/* Gives free memory back to the kernel, but for about `keep_bytes` of it. Returns 1 if something was given back, else
 * 0. With keep_bytes 0 it gives back everything that it can reach, free pages inside slabs too. Other threads empty
 * their bins at their next slow path; a thread that sleeps keeps its bins. */
HAK_API int hak_trim(size_t keep_bytes);

/* Options. docs/options.md has the table, and says for each option what a change does to memory that is held already.
 * `name` is an option's name ("purge_delay_ms") or its environment name ("HAKMEM_PURGE_DELAY_MS"). Both functions
 * allocate nothing, take no lock and keep errno. Several threads and signal handlers may call them at once. They return
 * 0, ENOENT when there is no such option, or an error described below.
 *
 * hak_option_set takes the same text as the environment. NULL returns the option to the preset's value
 * (HAKMEM_PROFILE). A value set by this call beats the environment, even if the environment is read later. Each thread
 * acts on it from its next slow path on. EINVAL: the value is bad, nothing is changed. EPERM: the option is read once,
 * at program start. */
HAK_API int hak_option_set(const char *name, const char *value);

/* A buffer of this many bytes holds every option's value and its terminator, unless the value is a path. */
#define HAK_OPTION_BYTES 32

/* Writes the value in force to the `size` bytes at `value`, as text that hak_option_set takes. ERANGE: the buffer is
 * too small, nothing is written. */
HAK_API int hak_option_get(const char *name, char *value, size_t size);

/* Sets the function that malloc calls when a request of wanted_bytes fails: the system has no memory, or the hard limit
 * (HAKMEM_LIMIT_MB, or the cgroup's) leaves none. The callback frees memory and returns 1, then the request is tried
 * once more; or it returns 0. It may allocate. It runs on the requesting thread, which may hold locks of the program,
 * and is not called again while it runs on that thread; after a longjmp out of it, not by calls deeper in the stack.
 * Compilers assume that malloc calls nothing back, so variables that the callback shares with its program must be
 * atomic or volatile. NULL removes the callback. A call in a signal handler that interrupted a slow path has no
 * effect. */
typedef int (*hak_limit_callback)(size_t wanted_bytes, void *context);
HAK_API void hak_limit_callback_set(hak_limit_callback callback, void *context);

/* Statistics. hakmem/stats.h has the rows, docs/stats.md explains them.
 *
 * hak_stats_get writes what the allocator holds and has done. It adds the heaps up one by one while other threads run:
 * each number is right at some moment of the call, and the parts of memory add up to within moving_bytes.
 * hak_process_stats_get asks the kernel about the process. The kernel walks the page tables for it, which takes
 * milliseconds for gigabytes. What cannot be read is 0. hak_stats_classes_get writes the size classes that have slabs,
 * at most `count` of them, the smallest first, and returns their number. HAK_STATS_CLASSES places suffice for all.
 *
 * None allocates; all keep errno. The first and the last take the pools' locks one after another. In a signal handler
 * that interrupted a slow path, and in a fork handler, hak_stats_get writes zeros and returns EBUSY, and
 * hak_stats_classes_get returns 0. Otherwise hak_stats_get returns 0. */
HAK_API int hak_stats_get(struct hak_stats *out);
HAK_API void hak_process_stats_get(struct hak_process_stats *out);
HAK_API size_t hak_stats_classes_get(struct hak_class_stats *out, size_t count);

/* Heaps (docs/heaps.md). A hak_heap is memory of its own: small blocks lie in slabs, and large objects in ranges, that
 * nothing else uses. All of it ends at once with hak_heap_destroy.
 *
 * Threads: any number of threads may use a heap at the same time. Each has bins of its own for it, up to 16 heaps a
 * thread; the bins of the one that it used least recently make room.
 *
 * Blocks: free, realloc, malloc_usable_size and the hak_* functions take them, in any thread. A block belongs to its
 * heap for all its life: realloc keeps it there, whoever calls it, and keeps other blocks outside. free of a block
 * whose heap was destroyed is misuse, which may or may not be noticed.
 *
 * Handles: a handle that was destroyed is never valid again. Its use, or a second destroy, ends the program with a
 * sentence (docs/misuse.md).
 *
 * In a signal handler that interrupted a slow path, and in a fork handler, the functions do nothing: those that return
 * memory return NULL with EBUSY. The child of a fork has all heaps, with what was in them. */
typedef struct hak_heap hak_heap;

/* Makes a heap. limit_bytes bounds what it holds, in slabs and large objects, not what is asked for; 0: no limit.
 * NULL and ENOMEM when memory is out or 16,384 heaps exist, EBUSY (see above), or ENOTSUP with the option `checked`
 * (in the preset `secure`): blocks of heaps are not checked. */
HAK_API hak_heap *hak_heap_new(size_t limit_bytes);

/* Ends a heap and frees all that it holds, without looking at the blocks. No other thread may be inside a call on
 * this heap, or free or realloc one of its blocks, at the same time. If it is the calling thread's default, the
 * default is the ordinary heap again. NULL does nothing. Returns 0, or EBUSY: it is the default of another thread,
 * or another thread has had its memory in hand for a second, or see above; or ENOMEM. Then nothing happened. */
HAK_API int hak_heap_destroy(hak_heap *heap);

/* As hak_malloc, hak_calloc, hak_aligned_alloc. NULL and ENOMEM also when the heap's limit leaves no room. */
HAK_API void *hak_heap_malloc(hak_heap *heap, size_t size) __attribute__((malloc, alloc_size(2)));
HAK_API void *hak_heap_calloc(hak_heap *heap, size_t count, size_t size) __attribute__((malloc, alloc_size(2, 3)));
HAK_API void *hak_heap_aligned_alloc(hak_heap *heap, size_t alignment, size_t size)
    __attribute__((malloc, alloc_align(2), alloc_size(3)));

/* As hak_realloc. `heap` serves if block is NULL; any other block stays in the heap that it belongs to. */
HAK_API void *hak_heap_realloc(hak_heap *heap, void *block, size_t size) __attribute__((alloc_size(3)));

/* As hak_free, which also takes each block of each heap. It is as fast as malloc's free for blocks of `heap`, if this
 * thread used that heap last. */
HAK_API void hak_heap_free(hak_heap *heap, void *block);

/* From now on the calling thread's malloc takes from `heap`, or from the thread's ordinary heap if it is NULL.
 * *before, if before is not NULL, is what it took from. What libraries allocate meanwhile and keep ends with the
 * heap, too. Where malloc cannot wait (a signal handler that interrupted a slow path, a fork of another thread), it
 * returns blocks that belong to no heap. Returns 0, ENOMEM or EBUSY; then nothing changed. */
HAK_API int hak_heap_set_default(hak_heap *heap, hak_heap **before);

/* The calling thread's bins for the heap are emptied, other threads' at their next slow path. Empty slabs go to the
 * memory that all share, and free pages inside slabs go back to the kernel. Returns 1 if pages went back, else 0. */
HAK_API int hak_heap_trim(hak_heap *heap);

struct hak_heap_stats {
  size_t held_bytes;  /* slabs and large objects; what the limit bounds */
  size_t live_bytes;  /* blocks that the program has, and those that other threads freed a short time ago */
  size_t large_bytes; /* of large objects */
  size_t large_count; /* number of large objects */
  size_t limit_bytes; /* 0: none */
  size_t threads;     /* that have bins for it */
};
/* Returns 0, or EBUSY and zeros. */
HAK_API int hak_heap_stats_get(hak_heap *heap, struct hak_heap_stats *out);

/* Heap profiles (docs/profiling.md).
 *
 * hak_profile_start begins an empty profile, with one sample for each interval_bytes that are allocated (0: 512 KiB; 1:
 * every allocation). Each thread follows at its next free or slow path. hak_profile_stop ends the sampling. Samples
 * stay in the profile until their blocks are freed. hak_profile_dump writes a file for pprof (gzip'ed profile.proto):
 * what was allocated, what is live, and what was live at the peak, by call stack. The file is replaced whole or stays
 * as it is.
 *
 * They allocate nothing and keep errno. They return 0, ENOMEM, or EBUSY in a signal handler that interrupted a slow
 * path, where nothing is done. hak_profile_dump also returns EINVAL (no path, or no regular file), ELOOP (a symbolic
 * link of another user), ENOENT, EACCES, ENOSPC, EROFS, ENAMETOOLONG or EIO when it could not write the file. */
HAK_API int hak_profile_start(size_t interval_bytes);
HAK_API int hak_profile_stop(void);
HAK_API int hak_profile_dump(const char *path);

/* Guarded blocks (docs/guard.md).
 *
 * hak_guard_start: from now on, of each interval_bytes that are allocated (0: 4 MiB; 1: every block), one lies in a
 * block between pages without access, on average. Each thread follows at its next free or slow path. An access beyond
 * such a block or after its free ends the program, after a report on stderr. The call installs a handler of SIGSEGV,
 * which passes on to the one that it finds; call it again if the program installs its own later. hak_guard_stop ends
 * the sampling. Blocks that are guarded stay so.
 *
 * They allocate nothing and keep errno. They return 0, ENOMEM, or EBUSY in a signal handler that interrupted a slow
 * path, where nothing is done. */
HAK_API int hak_guard_start(size_t interval_bytes);
HAK_API int hak_guard_stop(void);

/* Returns "hakmem 0.1.0 (...)": version and build. Static storage. */
HAK_API const char *hak_version(void);

#ifdef __cplusplus
}
#endif
#endif
