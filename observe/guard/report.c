#include "guard/report.h"

#include "base/text.h"
#include "inspect/module.h"
#include "os/os.h"
#include "os/say.h"
#include "profile/unwind.h"

#define REPORT_BYTES ((size_t)24 << 10)
#define FRAMES_MAX 64u
#define AWAIT_MS 1000u /* bounded, because a fault in the report would wait for itself */

/* Written by one thread only, the first to report. */
static struct {
  char text[REPORT_BYTES];
  uintptr_t addresses[FRAMES_MAX];
  struct unwind_stack known;
} scratch SPARSE;
enum { REPORT_NONE, REPORT_BEGUN, REPORT_SAID };
static _Atomic uint32_t report_state;

static const char *plural_ending(uint64_t count) { return count == 1 ? "" : "s"; }

static void text_block(struct text *text, const struct slot *slot) {
  text_format(text, "block %#lx of %lu byte%s", (uintptr_t)slot->block, slot->size, plural_ending(slot->size));
}

/* Where the address is, seen from the block. */
static void text_position(struct text *text, const struct slot *slot, uintptr_t address) {
  uintptr_t start = (uintptr_t)slot->block, end = start + slot->size;
  if (address < start)
    text_format(text, "%lu byte%s before ", start - address, plural_ending(start - address));
  else if (address >= end)
    text_format(text, "%lu byte%s beyond the end of ", address - end + 1, plural_ending(address - end + 1));
  else
    text_format(text, "at byte %lu of ", address - start);
  text_block(text, slot);
}

static const char *overflow_of(const struct slot *slot, uintptr_t address) {
  return address < (uintptr_t)slot->block ? "underflow" : "overflow";
}

static void text_access(struct text *text, const struct slot *slot, const struct os_access *access) {
  static const char *const kinds[] = {
      [OS_ACCESS_UNKNOWN] = "access", [OS_ACCESS_READ] = "read", [OS_ACCESS_WRITE] = "write"};
  bool is_live = atomic_load_explicit(&slot->state, memory_order_acquire) == SLOT_LIVE;
  text_format(text, "%s: %s at %#lx, ", is_live ? overflow_of(slot, access->address) : "use after free",
              kinds[access->kind], access->address);
  text_position(text, slot, access->address);
}

static void text_what(struct text *text, enum misuse misuse, const struct slot *slot, uintptr_t address,
                      const struct os_access *access) {
  text_string(text, "hakmem: ");
  switch (misuse) {
  case MISUSE_ACCESS:
    text_access(text, slot, access);
    break;
  case MISUSE_DOUBLE_FREE:
    text_string(text, "double free of ");
    text_block(text, slot);
    break;
  case MISUSE_FREE:
    text_format(text, "free of %#lx, ", address);
    text_position(text, slot, address);
    break;
  case MISUSE_WRITTEN:
    text_format(text, "%s: written ", overflow_of(slot, address));
    text_position(text, slot, address);
    text_string(text, ", seen at its free");
    break;
  }
  text_string(text, "\n");
}

static void text_stack(struct text *text, const char *what, int thread, const uintptr_t *addresses, unsigned depth) {
  text_format(text, "hakmem:   %s by thread %lu%s\n", what, (uint64_t)thread, depth > 0 ? ":" : "");
  for (unsigned i = 0; i < depth; i++)
    os_module_frame(text, addresses[i]);
}

/* The stack of this thread; if a refused access brought us here, from there on. */
static void text_stack_here(struct text *text, const char *what, const struct os_access *access) {
  unsigned depth = unwind_from(0, scratch.addresses, FRAMES_MAX, &scratch.known), first = 0;
  while (access && first < depth && scratch.addresses[first] != access->place + 1)
    first++;
  if (first == depth && access) { /* the walk did not get there */
    scratch.addresses[0] = access->place + 1;
    first = 0;
    depth = 1;
  }
  text_stack(text, what, os_thread_shown(), scratch.addresses + first, depth - first);
}

/* The caller is about to end the program. Each thread that is woken wakes the next. */
static void report_await(void) {
  uint64_t until_ms = os_milliseconds() + AWAIT_MS;
  while (load_relaxed(&report_state) == REPORT_BEGUN && os_milliseconds() < until_ms)
    os_futex_wait_for(&report_state, REPORT_BEGUN, AWAIT_MS);
  os_futex_wake(&report_state);
}

void report_misuse(enum misuse misuse, const struct slot *slot, uintptr_t address, const struct os_access *access) {
  uint32_t state = REPORT_NONE;
  if (!atomic_compare_exchange_strong(&report_state, &state, REPORT_BEGUN)) {
    if (state == REPORT_BEGUN)
      report_await();
    return;
  }
  struct text text = TEXT_IN(scratch.text);
  text_what(&text, misuse, slot, address, access);
  text_stack_here(&text, access ? "accessed" : "freed", access);
  if (slot->freed.depth > 0)
    text_stack(&text, misuse == MISUSE_DOUBLE_FREE ? "freed before" : "freed", slot->freed.thread,
               slot->freed.addresses, slot->freed.depth);
  text_stack(&text, "allocated", slot->allocated.thread, slot->allocated.addresses, slot->allocated.depth);
  os_say(scratch.text);
  atomic_store_explicit(&report_state, REPORT_SAID, memory_order_release);
  os_futex_wake(&report_state);
}
