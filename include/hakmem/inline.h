/* inline.h: the fast path.
 *
 *   malloc(n)  class of n -> bin of the calling thread's heap -> pop        else hak_malloc_slow
 *   free(p)    page map -> entry -> bin of the calling thread's heap -> push  else hak_free_slow
 *
 * The library's own malloc and free are these functions. A program that includes this header and
 * links libhakmem_core.a or libhakmem.a statically gets them inlined (the FAST build): hak_malloc
 * and hak_free below are macros for the inlined forms. The layout may change with every release, so
 * header and library must be of one version.
 *
 * What holds:
 *   F1  hak_self points to a heap at all times. Before a thread's first slow call it is
 *       hak_heap_none, whose bins are empty and whose key matches no entry: there is no
 *       "initialised?" branch, and zero is a valid state of everything else.
 *   F2  A bin is an array of ready blocks; top points behind the last. The slot before the first is
 *       NULL, so an empty bin is noticed by reading it.
 *   F3  Only the thread that owns a heap touches its bins; no atomic operation, no lock, no access
 *       to the block. (The accesses are relaxed atomics so that statistics may look at them; they
 *       compile to plain moves.)
 *   F4  A page-map entry is `pool id << 16 | kind of pool << 12 | class << 4` for the 64 KiB unit
 *       around an address, and of kind 0 where hakmem has no slab. The ordinary pools of a NUMA node
 *       are of one kind, which is the key of their heaps. The entry's low half ^ key is below
 *       HAK_ENTRY_END exactly when the block is small and of a pool of that kind, and is the offset of
 *       its bin then: one compare decides kind, large, foreign. So a bin may hold blocks of several
 *       pools. The key of a heap for a private pool is a whole entry's, so no lower half matches it.
 *   F5  In a split heap (heap/split.h) the key has HAK_SPLIT in its class bits: free pushes to
 *       bins[class ^ HAK_SPLIT], while bins[class] stays empty. So each malloc goes on in
 *       hak_malloc_split, which takes from the other bin, and counts or keeps a queue's order
 *       (heap/queue.h). Here it costs nothing.
 *   F6  Nearly all blocks lie in the leaf that was made first. free compares with its number, which does
 *       not wait for a load, and looks up other leaves.
 * Cost on x86-64, preloaded: malloc 14 instructions up to 1152 bytes, free 21.
 */
#ifndef HAKMEM_INLINE_H
#define HAKMEM_INLINE_H

#include "hakmem.h"

#ifdef __cplusplus
extern "C" {
#endif

#define HAK_HIDDEN __attribute__((visibility("hidden")))
#define HAK_LIKELY(x) __builtin_expect(!!(x), 1)
#define HAK_UNLIKELY(x) __builtin_expect(!!(x), 0)

/* Size classes: 1..72 are multiples of 16 up to 1152 bytes, so that 1 KiB with a header is hardly rounded up. Then
 * follow the rest of 8 classes a doubling up to 8 KiB, then 4 up to 64 KiB, and one for a page with a header: 4368
 * bytes, 15 in 64 KiB. Class 0 is never used: its bin stays empty, so malloc(0) takes the slow path. */
#define HAK_TINY_MAX ((size_t)1024 / 8 * 9)
#define HAK_MID_MAX ((size_t)8 * 1024)
#define HAK_SMALL_MAX ((size_t)64 * 1024)
#define HAK_TINY_CLASS_COUNT 73u
#define HAK_CLASS_COUNT (HAK_TINY_CLASS_COUNT + 3 * 8 + 3 * 4)
#define HAK_BIN_COUNT 256u /* one for each value of an entry's class bits (F5) */
#define HAK_SPLIT 128u

/* F4. A pool id has 16 bits, a kind the 4 below, a class the next 8; 16 is the size of a bin. */
#define HAK_ENTRY_CLASS_SHIFT 4
#define HAK_ENTRY_KIND_SHIFT 12
#define HAK_ENTRY_ID_SHIFT 16
#define HAK_ENTRY_END (HAK_BIN_COUNT << HAK_ENTRY_CLASS_SHIFT)

#define HAK_UNIT_SHIFT 16
#define HAK_LEAF_SHIFT 32
#if defined(__x86_64__)
#define HAK_ADDRESS_BITS 47
#else
#define HAK_ADDRESS_BITS 48
#endif
#define HAK_MAP_TOP_COUNT ((size_t)1 << (HAK_ADDRESS_BITS - HAK_LEAF_SHIFT))

struct hak_bin {
  void **top; /* behind the last ready block */
  union {
    void **end;    /* behind the last slot */
    int64_t until; /* F5: blocks to allocate before one that is a sample; class 0: bytes */
  };
};

/* The part of a heap that the fast path sees. */
struct hak_front {
  uint32_t key;                       /* F4; with HAK_SPLIT << HAK_ENTRY_CLASS_SHIFT if it is to be split */
  uint32_t split;                     /* HAK_SPLIT if it is (F5), else 0 */
  struct hak_bin bins[HAK_BIN_COUNT]; /* from HAK_CLASS_COUNT on zeros, which have no room, if the heap is not split */
  /* The hak_heap that the thread used last, and the front of the thread's bins for it (threads/private.h). */
  const struct hak_heap *private_heap;
  struct hak_front *private_front;
};

/* One pointer of thread-local storage, at a fixed distance from the thread pointer: known at load
 * time in a library, at link time in a program. */
#if defined(__PIC__) && !defined(__PIE__)
#define HAK_TLS_MODEL __attribute__((tls_model("initial-exec")))
#else
#define HAK_TLS_MODEL __attribute__((tls_model("local-exec")))
#endif
extern HAK_HIDDEN __thread struct hak_front *hak_self HAK_TLS_MODEL;

/* Page map, upper level: for each 4 GiB of address space 0 or the address of its leaf's entries,
 * biased so that unit number (address >> 16) is the index. */
extern HAK_HIDDEN uintptr_t hak_map_top[HAK_MAP_TOP_COUNT];

/* F6. The leaf that was made first, and its word of hak_map_top. Before, index matches no address. It is written after
 * entries, so it is read before. */
extern HAK_HIDDEN struct hak_map_home {
  uintptr_t index, entries;
} __attribute__((aligned(64))) hak_map_home;

HAK_HIDDEN void *hak_malloc_slow(size_t size);
HAK_HIDDEN void *hak_malloc_split(size_t size, struct hak_bin *bin); /* F5: the empty one; else hak_malloc_slow */
HAK_HIDDEN void hak_free_slow(void *block) __attribute__((nothrow));

/* The kernel orders all that a thread did before the adoption of its heap by another one (os/os.h,
 * lifelines). ThreadSanitizer cannot see that, so its builds are told after each step of an owner.
 *
 * HAK_PLAIN_LOAD reads what another thread may set at the same time. An atomic load would be an instruction more. */
#if defined(__SANITIZE_THREAD__)
#define HAK_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HAK_TSAN 1
#endif
#endif
#ifdef HAK_TSAN
void __tsan_acquire(void *);
void __tsan_release(void *);
#define HAK_STEPPED(front) __tsan_release(front)
#define HAK_OWNER_DIED(front) __tsan_acquire(front)
#define HAK_PLAIN_LOAD(place) __atomic_load_n(&(place), __ATOMIC_RELAXED)
#else
#define HAK_STEPPED(front) ((void)0)
#define HAK_OWNER_DIED(front) ((void)0)
#define HAK_PLAIN_LOAD(place) (place)
#endif
/* The same, before a load behind a signal fence. x86-64 keeps the order of loads. */
#ifdef __x86_64__
#define HAK_LOAD_FIRST(place) HAK_PLAIN_LOAD(place)
#else
#define HAK_LOAD_FIRST(place) __atomic_load_n(&(place), __ATOMIC_ACQUIRE)
#endif
#define HAK_OWNER_STEPPED() HAK_STEPPED(hak_self)
#define HAK_KEY(front) HAK_PLAIN_LOAD((front)->key)

/* The classes of sizes in steps. */
#define HAK_MID_STEP 16u
#define HAK_LONG_STEP 2048u
extern HAK_HIDDEN const uint8_t hak_mid_classes[HAK_MID_MAX / HAK_MID_STEP + 1];
extern HAK_HIDDEN const uint8_t hak_long_classes[HAK_SMALL_MAX / HAK_LONG_STEP + 1];

/* Class of a size in HAK_TINY_MAX + 1 .. HAK_MID_MAX, and in HAK_MID_MAX + 1 .. HAK_SMALL_MAX. */
static inline unsigned hak_class_of_mid(size_t size) {
  return hak_mid_classes[(size + (HAK_MID_STEP - 1)) / HAK_MID_STEP];
}
static inline unsigned hak_class_of_long(size_t size) {
  return hak_long_classes[(size + (HAK_LONG_STEP - 1)) / HAK_LONG_STEP];
}

static inline unsigned hak_class_of(size_t size) {
  if (size <= HAK_TINY_MAX)
    return (unsigned)((size + 15) / 16);
  return size <= HAK_MID_MAX ? hak_class_of_mid(size) : hak_class_of_long(size);
}

/* Pops a ready block, NULL from an empty bin. */
static inline void *hak_bin_pop(struct hak_bin *bin) {
  void **top = __atomic_load_n(&bin->top, __ATOMIC_RELAXED);
  void *block = __atomic_load_n(&top[-1], __ATOMIC_RELAXED);
  if (HAK_LIKELY(block != NULL))
    __atomic_store_n(&bin->top, top - 1, __ATOMIC_RELAXED);
  return block;
}

/* The heap's bin of the class of a size; NULL if it has none. */
static inline struct hak_bin *hak_front_bin(struct hak_front *heap, size_t size) {
  if (HAK_LIKELY(size <= HAK_TINY_MAX))
    return &heap->bins[(size + 15) / 16];
  if (HAK_LIKELY(size <= HAK_MID_MAX))
    return &heap->bins[hak_class_of_mid(size)];
  if (HAK_LIKELY(size <= HAK_SMALL_MAX))
    return &heap->bins[hak_class_of_long(size)];
  return NULL;
}

/* A block that a bin of the heap has ready, or NULL. */
static inline void *hak_front_pop(struct hak_front *heap, size_t size) {
  struct hak_bin *bin = hak_front_bin(heap, size);
  return HAK_LIKELY(bin != NULL) ? hak_bin_pop(bin) : NULL;
}

static inline void *hak_malloc_ready(size_t size) { return hak_front_pop(hak_self, size); }

static inline void *hak_malloc_inlined(size_t size) {
  struct hak_front *heap = hak_self;
  struct hak_bin *bin = hak_front_bin(heap, size);
  if (HAK_UNLIKELY(bin == NULL))
    return hak_malloc_slow(size);
  void *block = hak_bin_pop(bin);
  if (HAK_UNLIKELY(block == NULL))
    return heap->split ? hak_malloc_split(size, bin) : hak_malloc_slow(size);
  HAK_OWNER_STEPPED();
  return block;
}

/* The low half of a page-map entry, which is its first one in memory. */
typedef uint16_t hak_half_entry __attribute__((may_alias));
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "entries are read by their first half"
#endif

/* Pushes a block to its bin in the heap at *front. is_private: the whole entry must match the key, as that of a private
 * pool's heap. Returns 0 if the slow path must free it. */
static inline int hak_front_push(struct hak_front *const *front, void *block, int is_private) {
  uintptr_t address = (uintptr_t)block;
  uintptr_t index = address >> HAK_LEAF_SHIFT;
  uintptr_t entries;
  if (HAK_UNLIKELY(index != HAK_LOAD_FIRST(hak_map_home.index))) {
    if (HAK_UNLIKELY(index >= HAK_MAP_TOP_COUNT))
      return 0;
    entries = __atomic_load_n(&hak_map_top[index], __ATOMIC_RELAXED);
    if (HAK_UNLIKELY(entries == 0)) /* NULL usually ends here; the unit at 0 is never ours in any case */
      return 0;
  } else {
    __atomic_signal_fence(__ATOMIC_ACQUIRE);
    entries = HAK_PLAIN_LOAD(hak_map_home.entries);
  }
  struct hak_front *heap = *front;
  uintptr_t place = entries + (address >> HAK_UNIT_SHIFT) * 4;
  uint32_t entry = is_private ? __atomic_load_n((uint32_t *)place, __ATOMIC_RELAXED)
                              : __atomic_load_n((hak_half_entry *)place, __ATOMIC_RELAXED);
  uint32_t bin_offset = entry ^ HAK_KEY(heap);
  if (HAK_UNLIKELY(bin_offset >= HAK_ENTRY_END))
    return 0;
  struct hak_bin *bin = (struct hak_bin *)(void *)((char *)heap->bins + bin_offset);
  void **top = __atomic_load_n(&bin->top, __ATOMIC_RELAXED);
  if (HAK_UNLIKELY(top == bin->end))
    return 0;
  __atomic_store_n(top, block, __ATOMIC_RELAXED);
  __atomic_store_n(&bin->top, top + 1, __ATOMIC_RELAXED);
  HAK_STEPPED(heap);
  return 1;
}

static inline int hak_free_ready(void *block) { return hak_front_push(&hak_self, block, 0); }

static inline void hak_free_inlined(void *block) {
  if (HAK_UNLIKELY(!hak_free_ready(block)))
    hak_free_slow(block);
}

#ifndef HAK_NO_INLINE_NAMES
#define hak_malloc(size) hak_malloc_inlined(size)
#define hak_free(block) hak_free_inlined(block)
#endif

#ifdef __cplusplus
}
#endif
#endif
