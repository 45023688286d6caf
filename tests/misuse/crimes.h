/* crimes.h: what the misuse program commits, one crime a function. Each gets the size of its blocks.
 *
 * A crime ends the program, or returns. If it returns, verdict says whether it had an effect. After the crime the
 * program goes on with ordinary calls, as programs do, because some crimes are noticed late. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/mman.h>

#include "../heap_api.h"
#include "../threads.h"

enum verdict { UNNOTICED, HARMLESS };
typedef enum verdict crime_function(size_t size);

/* The address that the sentence must name. */
static void (*tell)(const void *address);

#define CROWD 48 /* blocks around the victim */
#define FILL 0x5a

static char *crowd[CROWD];

static unsigned crowd_count(size_t size) { return size > 65536 ? 3 : CROWD; }

static char *block_new(size_t size) { return CHECK_GOT(test_opaque(t_malloc(size))); }

static char *block_filled(size_t size) {
  char *block = block_new(size);
  memset(block, FILL, size);
  return block;
}

/* Returns the block in the middle of a crowd. */
static char *victim(size_t size) {
  unsigned count = crowd_count(size);
  for (unsigned i = 0; i < count; i++)
    crowd[i] = block_filled(size);
  tell(crowd[count / 2]);
  return crowd[count / 2];
}

static char *freed_victim(size_t size) {
  char *block = victim(size);
  t_free(block);
  return block;
}

/* Frees the crowd; `spared` was freed already. */
static void crowd_end(size_t size, const char *spared) {
  for (unsigned i = 0, count = crowd_count(size); i < count; i++)
    if (crowd[i] != spared)
      t_free(crowd[i]);
}

/* Works on with blocks of the size. */
static void go_on(size_t size) {
  enum { TURNS = 3, BLOCKS = 300 };
  static char *blocks[BLOCKS];
  unsigned count = size > 65536 ? 4 : BLOCKS;
  for (int turn = 0; turn < TURNS; turn++) {
    for (unsigned i = 0; i < count; i++) {
      blocks[i] = block_new(size);
      blocks[i][0] = blocks[i][size - 1] = FILL;
    }
    t_free_all(blocks, count);
  }
}

static enum verdict crowd_goes_on(size_t size, const char *spared) {
  crowd_end(size, spared);
  go_on(size);
  return UNNOTICED;
}

static void *free_in_thread(void *block) {
  t_free(block);
  t_trim(0);
  return NULL;
}

/* --- writes and reads beyond a block --- */

static enum verdict write_at(size_t size, ptrdiff_t from, size_t bytes) {
  unsigned char *begin = test_opaque(victim(size) + from);
  memset(begin, ~*begin, bytes); /* the first byte changes: an odd one may be the canary's by chance, one of 128 */
  return crowd_goes_on(size, NULL);
}

static enum verdict write_over_1(size_t size) { return write_at(size, (ptrdiff_t)size, 1); }
static enum verdict write_over_32(size_t size) { return write_at(size, (ptrdiff_t)size, 32); }
static enum verdict write_over_mib(size_t size) { return write_at(size, (ptrdiff_t)size, MIB); }
static enum verdict write_under_1(size_t size) { return write_at(size, -1, 1); }
static enum verdict write_under_32(size_t size) { return write_at(size, -32, 32); }
static enum verdict write_under_mib(size_t size) { return write_at(size, -(ptrdiff_t)MIB, MIB); }

/* The end of a string, one byte too far. */
static enum verdict write_over_nul(size_t size) {
  char *block = victim(size);
  ((char *)test_opaque(block))[size] = 0;
  return crowd_goes_on(size, NULL);
}

static enum verdict write_over_then_realloc(size_t size) {
  char *block = victim(size);
  memset(test_opaque(block + size), 0xa5, 8);
  block = test_opaque(t_realloc(block, size + size / 2));
  crowd[crowd_count(size) / 2] = block;
  return crowd_goes_on(size, NULL);
}

static enum verdict read_at(size_t size, ptrdiff_t from, size_t bytes) {
  const volatile char *block = victim(size) + from;
  for (size_t i = 0; i < bytes; i++)
    (void)block[i];
  return crowd_goes_on(size, NULL);
}

static enum verdict read_over_32(size_t size) { return read_at(size, (ptrdiff_t)size, 32); }
static enum verdict read_over_mib(size_t size) { return read_at(size, (ptrdiff_t)size, MIB); }

/* --- double frees --- */

static enum verdict double_at_once(size_t size) {
  char *block = freed_victim(size);
  t_free(test_opaque(block));
  return crowd_goes_on(size, block);
}

static enum verdict double_interleaved(size_t size) {
  char *block = freed_victim(size);
  t_free(crowd[0]);
  t_free(test_opaque(block));
  crowd[0] = block;
  return crowd_goes_on(size, block);
}

static enum verdict double_delayed(size_t size) {
  char *block = victim(size);
  crowd_end(size, NULL);
  t_free(test_opaque(block));
  go_on(size);
  return UNNOTICED;
}

static enum verdict double_after_trim(size_t size) {
  char *block = freed_victim(size);
  t_trim(0);
  t_free(test_opaque(block));
  t_trim(0);
  return crowd_goes_on(size, block);
}

/* Harmless if the memory did not become another block meanwhile, and the second free changed nothing. */
static enum verdict double_after_reuse(size_t size) {
  char *block = freed_victim(size);
  char *other = block_filled(size);
  t_free(test_opaque(block));
  block_filled(size);
  t_free(other);
  return crowd_goes_on(size, block);
}

static enum verdict double_other_thread(size_t size) {
  char *block = freed_victim(size);
  test_thread_run(free_in_thread, test_opaque(block));
  return crowd_goes_on(size, block);
}

static enum verdict double_by_strangers(size_t size) {
  char *block = victim(size);
  test_thread_run(free_in_thread, block);
  test_thread_run(free_in_thread, test_opaque(block));
  return crowd_goes_on(size, block);
}

static enum verdict double_by_realloc(size_t size) {
  char *block = freed_victim(size);
  char *moved = test_opaque(t_realloc(test_opaque(block), size + size / 2));
  t_free(moved);
  return crowd_goes_on(size, block);
}

static enum verdict realloc_in_place_of_freed(size_t size) {
  char *block = freed_victim(size);
  char *same = test_opaque(t_realloc(test_opaque(block), size - 1));
  same[0] = FILL;
  return crowd_goes_on(size, block);
}

/* --- frees of what is no block --- */

static enum verdict free_address(size_t size, void *address) {
  tell(address);
  t_free(test_opaque(address));
  t_trim(0);
  return crowd_goes_on(size, NULL);
}

static enum verdict free_it(size_t size, void *address) {
  victim(size);
  return free_address(size, address);
}

static char static_bytes[256] __attribute__((aligned(64)));

static enum verdict free_stack(size_t size) {
  char bytes[64] __attribute__((aligned(16))) = "";
  return free_it(size, bytes);
}
static enum verdict free_stack_odd(size_t size) {
  char bytes[64] __attribute__((aligned(16))) = "";
  return free_it(size, bytes + 3);
}
static enum verdict free_static(size_t size) { return free_it(size, static_bytes); }
static enum verdict free_static_odd(size_t size) { return free_it(size, static_bytes + 9); }
static enum verdict free_code(size_t size) { return free_it(size, (void *)(uintptr_t)free_it); }
static enum verdict free_mapping(size_t size) {
  char *mapped = mmap(NULL, 8 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(mapped != MAP_FAILED);
  return free_it(size, mapped + 4 * MIB);
}
static enum verdict free_unmapped(size_t size) {
  char *mapped = mmap(NULL, 8 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(mapped != MAP_FAILED && munmap(mapped, 8 * MIB) == 0);
  return free_it(size, mapped + 4 * MIB);
}
static enum verdict free_low(size_t size) { return free_it(size, (void *)(uintptr_t)0x10); }
static enum verdict free_far(size_t size) { return free_it(size, (void *)((uintptr_t)1 << 45)); }
static enum verdict free_beyond(size_t size) { return free_it(size, (void *)(uintptr_t)0xdeadbeefdeadbee0u); }

/* An address in the same 2 MiB as a block, in a part that nothing was given from yet: its last units are used last. */
static enum verdict free_empty_place(size_t size) {
  char *block = block_new(size);
  return free_it(size, (char *)(((uintptr_t)block | (2 * MIB - 1)) + 1 - 65536));
}

static enum verdict free_inside(size_t size, ptrdiff_t offset) { return free_address(size, victim(size) + offset); }

static enum verdict free_inside_1(size_t size) { return free_inside(size, 1); }
static enum verdict free_inside_16(size_t size) { return free_inside(size, 16); }
static enum verdict free_inside_middle(size_t size) { return free_inside(size, (ptrdiff_t)(size / 2 & ~(size_t)15)); }
static enum verdict free_before(size_t size) { return free_inside(size, -16); }

static enum verdict free_inside_other_thread(size_t size) {
  char *block = victim(size);
  tell(block + 16);
  test_thread_run(free_in_thread, test_opaque(block + 16));
  t_trim(0);
  return crowd_goes_on(size, NULL);
}

static enum verdict realloc_it(size_t size, void *address) {
  tell(address);
  char *moved = test_opaque(t_realloc(test_opaque(address), size * 2));
  return crowd_goes_on(size, moved);
}

static enum verdict realloc_stack(size_t size) {
  char bytes[64] __attribute__((aligned(16))) = "";
  victim(size);
  return realloc_it(size, bytes);
}
static enum verdict realloc_static(size_t size) {
  victim(size);
  return realloc_it(size, static_bytes);
}
static enum verdict realloc_inside(size_t size) { return realloc_it(size, victim(size) + 32); }

static enum verdict usable_size_of_freed(size_t size) {
  char *block = freed_victim(size);
  size_t usable = t_usable_size(test_opaque(block));
  crowd_goes_on(size, block);
  return usable == 0 ? HARMLESS : UNNOTICED;
}

/* --- use after free --- */

static enum verdict write_freed_at(size_t size, size_t offset) {
  char *block = freed_victim(size);
  memset(test_opaque(block + offset), 0xa5, 8);
  return crowd_goes_on(size, block);
}

static enum verdict write_freed_start(size_t size) { return write_freed_at(size, 0); }
static enum verdict write_freed_middle(size_t size) { return write_freed_at(size, size / 2); }

/* A new block is filled; a write through the stale pointer shows in it, unless the memory is another. */
static enum verdict write_freed_reused(size_t size) {
  enum { NEW = 24 };
  char *block = victim(size), *others[NEW];
  unsigned count = size > 65536 ? 2 : NEW, hit = 0;
  t_free(block);
  for (unsigned i = 0; i < count; i++)
    others[i] = block_filled(size);
  memset(test_opaque(block), 0xa5, 8);
  for (unsigned i = 0; i < count; i++)
    hit |= others[i][0] != FILL;
  t_free_all(others, count);
  crowd_goes_on(size, block);
  return hit ? UNNOTICED : HARMLESS;
}

/* How many bytes show what was in a block. */
static unsigned stale_in(const volatile char *block, size_t size) {
  unsigned seen = 0;
  for (size_t i = 0; i < size; i++)
    seen += block[i] == FILL;
  return seen;
}

static enum verdict read_freed(size_t size) {
  char *block = freed_victim(size);
  unsigned seen = stale_in(test_opaque(block), size);
  crowd_goes_on(size, block);
  return seen > 0 ? UNNOTICED : HARMLESS;
}

/* New blocks after many were freed: what do they show? */
static enum verdict read_stale(size_t size) {
  unsigned seen = 0;
  victim(size);
  crowd_end(size, NULL);
  for (unsigned i = 0; i < crowd_count(size); i++) {
    crowd[i] = block_new(size);
    seen += stale_in(crowd[i], size);
  }
  crowd_goes_on(size, NULL);
  return seen > 0 ? UNNOTICED : HARMLESS;
}

/* The part by which realloc makes a block longer. */
static enum verdict read_stale_realloc(size_t size) {
  unsigned seen = 0;
  victim(size);
  crowd_end(size, NULL);
  for (unsigned i = 0; i < crowd_count(size); i++) {
    crowd[i] = test_opaque(t_realloc(block_new(size / 2), size));
    seen += stale_in(crowd[i] + size / 2, size - size / 2);
  }
  crowd_goes_on(size, NULL);
  return seen > 0 ? UNNOTICED : HARMLESS;
}

/* --- blocks without bytes --- */

static char *crowd_of_nothing(void) {
  for (unsigned i = 0; i < CROWD; i++)
    crowd[i] = test_opaque(t_malloc(0));
  tell(crowd[CROWD / 2]);
  return crowd[CROWD / 2];
}

static enum verdict nothing_write(size_t size) {
  *crowd_of_nothing() = FILL;
  crowd_end(1, NULL);
  go_on(1);
  return UNNOTICED;
}

static enum verdict nothing_read(size_t size) {
  (void)*(volatile char *)crowd_of_nothing();
  crowd_end(1, NULL);
  go_on(1);
  return UNNOTICED;
}

/* --- what an attacker relies on --- */

/* The freed block is what the next request gets. */
static enum verdict reuse_at_once(size_t size) {
  unsigned hits = 0;
  enum { TURNS = 32 };
  victim(size);
  for (int i = 0; i < TURNS; i++) {
    char *first = block_new(size);
    t_free(first);
    char *second = block_new(size);
    hits += first == second;
    t_free(second);
  }
  crowd_goes_on(size, NULL);
  return hits > TURNS / 4 ? UNNOTICED : HARMLESS;
}

/* Blocks that are asked for one after the other lie side by side. */
static enum verdict place_foreseen(size_t size) {
  unsigned hits = 0, count = crowd_count(size);
  victim(size);
  ptrdiff_t step = crowd[count - 1] - crowd[count - 2]; /* the first ones may be of another class */
  for (unsigned i = 1; i < count; i++)
    hits += crowd[i] - crowd[i - 1] == step;
  crowd_goes_on(size, NULL);
  return hits > count / 4 ? UNNOTICED : HARMLESS;
}

/* --- the wrong kind of delete --- */

#define WEAK __attribute__((weak))
WEAK void *cxx_new(size_t size) __asm__("_Znwm");
WEAK void cxx_delete_sized(void *block, size_t size) __asm__("_ZdlPvm");
WEAK void cxx_delete_aligned(void *block, size_t size, size_t alignment) __asm__("_ZdlPvmSt11align_val_t");

static enum verdict delete_as(size_t size, size_t claimed) {
  for (unsigned i = 0; i < crowd_count(size); i++)
    crowd[i] = CHECK_GOT(test_opaque(cxx_new(size)));
  char *block = crowd[crowd_count(size) / 2];
  tell(block);
  cxx_delete_sized(block, test_opaque_size(claimed));
  return crowd_goes_on(size, block);
}

static enum verdict delete_as_less(size_t size) { return delete_as(size, size / 2); }
static enum verdict delete_as_more(size_t size) { return delete_as(size, size * 2); }
static enum verdict delete_as_aligned(size_t size) {
  char *block = victim(size);
  cxx_delete_aligned(block, size, 65536 * 2);
  return crowd_goes_on(size, block);
}
