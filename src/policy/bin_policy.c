#include "policy/bin_policy.h"

#define INITIAL_BYTES_MAX ((size_t)24 * 1024) /* of blocks that have room in a bin from the start */
#define INITIAL_BLOCK_MAX ((size_t)16 * 1024) /* longer ones have none */
/* The grown bins of a heap may hold this much plus what the heap works with. So a batch of any size that is allocated
 * and freed fits, and a small program holds little. */
#define HEAP_BYTES_MIN ((size_t)512 * 1024)
/* Several heaps share that much, and each holds half of what it works with. Blocks in bins count as used, so with a
 * whole share the bound would rise with the bins; with a half, all bins together hold no more than the live bytes and
 * 1 MiB. Blocks above 1152 B have the half with one heap, too, and leave an eighth to tiny blocks with several. A bin
 * that has no slot gets its first within HEAP_BYTES_MIN: a thread that uses one long buffer again and again finds it
 * there. */
#define SEVERAL_BYTES_MIN ((size_t)16 * 1024) /* of a heap */
#define BOUNDED_SHARE 2
#define TINY_SHARE 8
/* What comes and goes in turns, while the slabs stay as they are, is no memory that the next phase of a program lacks.
 * So there all bins together may have this much and half of what the pool gave out (docs/decisions/0067). */
#define STEADY_BYTES_MIN ((size_t)2 << 20)
#define SHORT_BYTES_MAX ((size_t)128 << 10)
#define LONG_SHARE 4
#define DRAINED_BYTES_MAX 256u /* a page has room for 16 at least, a slab for 256, so that it opens and closes seldom */
#define FOLLOW_GROWTH_SHARE 32
#define FOLLOW_GROWTH_MIN ((size_t)512 << 10)
#define FOLLOW_FALL_SHARE 4
#define FOLLOW_FALL_MIN ((size_t)4 << 20)
/* A bin pins slabs if they would close without it, at least half of them: each live block keeps one open at most. And
 * the bin holds half of them at most: a program that comes back to a class finds most of its blocks in a fuller one. */
#define PINNED_SHARE 2
#define MOSTLY_SHARE 2
#define MOSTLY_MIN ((size_t)2 << 20)
#define FIRST_SHARE 4
#define FIRST_BYTES_MIN ((size_t)512)

size_t bin_slots_initial(size_t slots_max, size_t block_bytes) {
  size_t slots = BIN_SLOTS_MIN;
  if (block_bytes > INITIAL_BLOCK_MAX)
    return slots;
  while (slots * 2 <= slots_max) /* an option may be no power of two */
    slots *= 2;
  while (slots > BIN_SLOTS_MIN && (slots - 1) * block_bytes > INITIAL_BYTES_MAX)
    slots /= 2;
  return slots;
}

size_t bin_slots_first(size_t slots_initial, size_t block_bytes) {
  size_t slots = max_size(slots_initial / FIRST_SHARE, min_size(slots_initial, 2));
  while (slots < slots_initial && slots * block_bytes < FIRST_BYTES_MIN)
    slots *= 2;
  return slots;
}

static bool is_within(const struct bin_limits *limits, size_t slots, size_t bytes, size_t granted_bytes) {
  return slots < BIN_SLOTS_MAX && bytes <= limits->bin_bytes_max && granted_bytes + bytes <= limits->heap_bytes_max;
}

bool bin_may_double(const struct bin_limits *limits, size_t slots, size_t block_bytes, size_t granted_bytes,
                    size_t taken_bytes, size_t heaps) {
  size_t bytes = slots * block_bytes; /* added by doubling */
  bool is_tiny = block_bytes <= HAK_TINY_MAX, is_one = heaps <= 1;
  size_t budget = is_one ? HEAP_BYTES_MIN : max_size(HEAP_BYTES_MIN / heaps, SEVERAL_BYTES_MIN);
  budget += is_tiny && is_one ? taken_bytes : taken_bytes / BOUNDED_SHARE;
  if (!is_tiny && !is_one)
    budget -= budget / TINY_SHARE;
  if (slots == BIN_SLOTS_MIN)
    budget = max_size(budget, HEAP_BYTES_MIN);
  return is_within(limits, slots, bytes, granted_bytes) && granted_bytes + bytes <= budget;
}

bool bin_may_double_steadily(const struct bin_limits *limits, size_t slots, size_t block_bytes, size_t granted_bytes,
                             size_t all_granted_bytes, size_t taken_bytes) {
  size_t bytes = slots * block_bytes;
  return is_within(limits, slots, bytes, granted_bytes) &&
         all_granted_bytes + bytes <= STEADY_BYTES_MIN + taken_bytes / BOUNDED_SHARE;
}

bool bin_may_be_long(size_t slots, size_t block_bytes, size_t refilled) {
  return block_bytes > HAK_TINY_MAX || slots * block_bytes <= SHORT_BYTES_MAX || refilled <= slots * LONG_SHARE;
}

bool bin_drains(size_t slots, size_t block_bytes, size_t dropped) {
  return block_bytes <= DRAINED_BYTES_MAX && dropped >= slots * LONG_SHARE;
}

/* Growth counts early: what lies idle in bins then keeps slabs open that would serve it. A fall must be larger, because
 * what is freed now is often allocated again. */
enum bins_follow bins_follow(size_t seen_bytes, size_t slab_bytes) {
  if (sub_sat(slab_bytes, seen_bytes) > max_size(seen_bytes / FOLLOW_GROWTH_SHARE, FOLLOW_GROWTH_MIN))
    return FOLLOW_GROWTH;
  if (sub_sat(seen_bytes, slab_bytes) > max_size(seen_bytes / FOLLOW_FALL_SHARE, FOLLOW_FALL_MIN))
    return FOLLOW_FALL;
  return FOLLOW_NOTHING;
}

bool slabs_are_mostly_free(size_t slab_bytes, size_t taken_bytes) {
  return sub_sat(slab_bytes, taken_bytes) > max_size(slab_bytes / MOSTLY_SHARE, MOSTLY_MIN);
}

bool bin_pins_slabs(size_t blocks, size_t taken_blocks, size_t block_bytes, size_t slabs, size_t slab_bytes) {
  return slabs >= PINNED_SLABS_MIN && sub_sat(taken_blocks, blocks) <= slabs / PINNED_SHARE &&
         blocks * block_bytes <= slabs * slab_bytes / PINNED_SHARE;
}

size_t bin_surplus(size_t low) { return (low + 1) / 2; }

size_t bin_slots_after(size_t slots, size_t slots_least, size_t high) {
  return slots > slots_least && high * 4 < slots ? slots / 2 : slots;
}
