#include "profile/unwind.h"

#include "base/observers.h"
#include "inspect/module.h"
#include "inspect/stack.h"
#include "os/os.h"
#include "profile/cfi.h"

#include <string.h>
#include <ucontext.h>

#define RULES 4096u
#define RULES_SHIFT 52 /* 64 less the bits of an index */
_Static_assert(RULES == 1u << (64 - RULES_SHIFT), "an index is the upper bits of a product");

#define OWN_FRAMES_MAX 64u                        /* frames of hakmem before the program's first one */
#define OWN_STACK_BYTES_MAX ((uintptr_t)64 << 20) /* a stack pointer that is farther from the end is on another stack */
#define FRAME_BYTES_MAX ((uintptr_t)1 << 20)      /* on a stack whose end is not known */
#define PAGES_A_CALL 64u                          /* pages that one call probes to learn about the thread's own stack */
#define UNTOLD_MS 100u
#define CODE_MIN ((uintptr_t)4096) /* code lies neither below ... */
#define CODE_BITS 52               /* ... nor beyond what these tell */

/* A stack is read as words, whatever objects lie there. */
#define READS_STACK __attribute__((no_sanitize("address", "thread")))

struct frame {
  uintptr_t place, stack, frame; /* the registers pc, sp, fp */
  uintptr_t link;                /* aarch64's lr, if is_interrupted */
  bool is_interrupted;           /* not in a call: place is the next instruction, not a return address */
  bool has_lost_stack;           /* the frame pointers are all that is left */
};

struct walk {
  struct frame at;
  uintptr_t low, high; /* can be read */
  bool is_own;         /* the thread's own stack, which ends at high */
  uintptr_t end;       /* of the alternate signal stack, if it is that */
  struct unwind_stack *known;
};

/* --- reading the stack --- */

READS_STACK static inline uintptr_t word_at(uintptr_t address) { return *(const volatile uintptr_t *)address; }

NOINLINE static bool page_joins(struct walk *walk, uintptr_t address) {
  uintptr_t page = round_down(address, os_page_bytes());
  if (walk->is_own || address >= walk->end || address - walk->at.stack >= FRAME_BYTES_MAX || !os_page_is_readable(page))
    return false;
  walk->low = page;
  walk->high = min_size(page + os_page_bytes(), walk->end);
  return true;
}

static inline bool fetch_word(struct walk *walk, uintptr_t address, uintptr_t *word) {
  if (UNLIKELY((address & (sizeof *word - 1)) != 0 || address < walk->at.stack))
    return false;
  if (UNLIKELY(address < walk->low || address >= walk->high) && !page_joins(walk, address))
    return false;
  *word = word_at(address);
  return true;
}

/* The order of the stores matters: a signal handler that walks meanwhile must not use a half-written state. */
COLD static void know_thread(struct unwind_stack *known, uintptr_t thread) {
  uintptr_t end = os_stack_end();
  known->thread = 0;
  atomic_signal_fence(memory_order_seq_cst);
  known->low = known->high = end;
  known->floor = 0;
  atomic_signal_fence(memory_order_seq_cst);
  known->thread = thread;
}

/* Probes pages downwards from the known part and stops at the first unreadable one. So memory beyond a guard page is
 * never taken for the stack. */
COLD static void know_more(struct unwind_stack *known, uintptr_t wanted) {
  uintptr_t low = known->low, page_bytes = os_page_bytes();
  for (unsigned pages = 0; low > wanted && pages < PAGES_A_CALL; pages++) {
    uintptr_t page = round_down(low - 1, page_bytes);
    if (!os_page_is_readable(page)) {
      known->floor = low;
      break;
    }
    low = page;
  }
  known->low = low;
}

static void enter_stack(struct walk *walk) {
  struct unwind_stack *known = walk->known;
  uintptr_t stack = walk->at.stack;
  if (UNLIKELY(stack < known->low) && stack >= known->floor && known->high - stack <= OWN_STACK_BYTES_MAX)
    know_more(known, stack);
  walk->is_own = stack >= known->low && stack < known->high;
  walk->low = walk->is_own ? stack : 0;
  walk->high = walk->is_own ? known->high : 0;
  /* Another mapping may follow directly. It must be probed again each time, because the program may have unmapped it
     * and mapped another stack there. */
  if (walk->is_own || !os_alternate_stack(stack, &walk->end))
    walk->end = UINTPTR_MAX;
}

static void walk_begin(struct walk *walk, struct unwind_stack *known) {
  uintptr_t thread = os_thread_pointer();
  if (UNLIKELY(known->thread != thread))
    know_thread(known, thread);
  walk->known = known;
  enter_stack(walk);
}

/* --- rules, by place --- */

/* Threads write entries without a lock. An entry whose words do not belong together, or that is older than the last
 * unwind_forget, does not match its place. */
static struct {
  _Alignas(CACHE_LINE) struct entry {
    _Atomic uint64_t mixed; /* place ^ mix(rule) */
    _Atomic uint64_t rule;
  } entries[RULES];
  _Alignas(CACHE_LINE) _Atomic uint64_t generation;
  _Atomic uint64_t forgot_ms;
} rules SPARSE;

static inline uint64_t mix_rule(uint64_t rule, uint64_t generation) {
  return (rule + generation * MIX_STEP) * (MIX_STEP ^ 0xff0);
}

/* Without such calls, rules are valid for a tenth of a second. */
static void forget_if_old(void) {
  if (LIKELY(load_relaxed(&observers_libraries_told)))
    return;
  uint64_t now_ms = os_milliseconds();
  if (now_ms - load_relaxed(&rules.forgot_ms) < UNTOLD_MS)
    return;
  store_relaxed(&rules.forgot_ms, now_ms);
  unwind_forget();
}

void unwind_forget(void) { atomic_fetch_add_explicit(&rules.generation, 1, memory_order_relaxed); }

/* movq $15, %rax; syscall, and mov x8, #139; svc #0. */
#if defined(__x86_64__)
static const unsigned char sigreturn_code[] = {0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05};
#elif defined(__aarch64__)
static const unsigned char sigreturn_code[] = {0x68, 0x11, 0x80, 0xd2, 0x01, 0, 0, 0xd4};
#endif

/* Recognises the code that signal handlers return to, which may have no call frame information. Code outside modules
 * may be unmapped during the read. */
READS_STACK static bool is_sigreturn(uintptr_t code, bool is_module) {
  unsigned char copy[sizeof sigreturn_code];
  const volatile unsigned char *bytes = (const unsigned char *)code;
  if (!is_module) {
    if (!os_copy(code, copy, sizeof copy))
      return false;
    bytes = copy;
  } else if (!os_page_is_readable(code) || !os_page_is_readable(code + sizeof copy - 1)) {
    return false;
  }
  for (size_t i = 0; i < sizeof copy; i++)
    if (bytes[i] != sigreturn_code[i])
      return false;
  return true;
}

/* On both architectures the frame pointer points at the caller's frame pointer, which the return address follows. */
static const struct cfi_rule guessed = {
    .cfa = CFA_GUESSED, .fp = FP_FROM_CFA, .cfa_words = 2, .fp_words = -2, .return_words = -1};

COLD static struct cfi_rule find_rule(uintptr_t place) {
  struct os_module_frames frames;
  struct cfi_rule rule = guessed;
  bool has_frames = os_module_frames_find(place, &frames);
  if (has_frames && cfi_find(&frames, place, &rule))
    return rule;
  if (is_sigreturn(place + 1, has_frames))
    rule = (struct cfi_rule){.cfa = CFA_SIGNAL};
  return rule;
}

static inline struct cfi_rule rule_of(uintptr_t place) {
  struct cfi_rule rule;
  uint64_t generation = load_relaxed(&rules.generation);
  struct entry *entry = &rules.entries[place * MIX_STEP >> RULES_SHIFT];
  uint64_t bits = load_relaxed(&entry->rule);
  uint64_t mixed = load_relaxed(&entry->mixed);
  if (LIKELY((mixed ^ mix_rule(bits, generation)) == place)) {
    memcpy(&rule, &bits, sizeof rule);
    return rule;
  }
  rule = find_rule(place);
  memcpy(&bits, &rule, sizeof bits);
  store_relaxed(&entry->rule, bits);
  store_relaxed(&entry->mixed, place ^ mix_rule(bits, generation));
  return rule;
}

/* --- steps --- */

static inline bool may_be_code(uintptr_t address) { return address >= CODE_MIN && address >> CODE_BITS == 0; }

/* Reads the registers from the frame that the kernel pushed. */
#if defined(__x86_64__)
#define IN_SIGNAL_FRAME(field) offsetof(ucontext_t, uc_mcontext.gregs[field])
enum { SIGNAL_PLACE = IN_SIGNAL_FRAME(REG_RIP), SIGNAL_STACK = IN_SIGNAL_FRAME(REG_RSP) };
enum { SIGNAL_FRAME = IN_SIGNAL_FRAME(REG_RBP), SIGNAL_LINK = SIGNAL_PLACE };
#elif defined(__aarch64__)
#define IN_SIGNAL_FRAME(field) (128 /* a siginfo_t */ + offsetof(ucontext_t, uc_mcontext.field))
enum { SIGNAL_PLACE = IN_SIGNAL_FRAME(pc), SIGNAL_STACK = IN_SIGNAL_FRAME(sp) };
enum { SIGNAL_FRAME = IN_SIGNAL_FRAME(regs[29]), SIGNAL_LINK = IN_SIGNAL_FRAME(regs[30]) };
#endif

NOINLINE static bool step_signal(struct walk *walk) {
  struct frame next = {.is_interrupted = true};
  uintptr_t frame = walk->at.stack;
  if (!fetch_word(walk, frame + SIGNAL_PLACE, &next.place) || !fetch_word(walk, frame + SIGNAL_STACK, &next.stack) ||
      !fetch_word(walk, frame + SIGNAL_FRAME, &next.frame) || !fetch_word(walk, frame + SIGNAL_LINK, &next.link))
    return false;
  walk->at = next;
  enter_stack(walk);
  return may_be_code(next.place) && next.stack % sizeof(uintptr_t) == 0;
}

/* Removes the signature that pointer authentication puts into the upper bits. */
static inline uintptr_t without_signature(uintptr_t address) {
#if defined(__aarch64__)
  register uintptr_t link __asm__("x30") = address;
  __asm__("hint #7" : "+r"(link)); /* xpaclri */
  return link;
#else
  return address;
#endif
}

static inline bool find_cfa(struct walk *walk, struct cfi_rule rule, uintptr_t *cfa) {
  switch (rule.cfa) {
  case CFA_FROM_SP:
    *cfa = walk->at.stack + (uintptr_t)(rule.cfa_words * 8);
    return true;
  case CFA_FROM_FP:
  case CFA_GUESSED:
    *cfa = walk->at.frame + (uintptr_t)(rule.cfa_words * 8);
    return true;
  case CFA_STORED_FP:
    return fetch_word(walk, walk->at.frame + (uintptr_t)(rule.cfa_words * 8), cfa);
  default:
    return false;
  }
}

/* Checks that the caller's frame is above: stacks grow downwards. A function that has not touched the stack has no
 * frame. */
static inline bool is_above(const struct walk *walk, uintptr_t cfa) {
  const struct frame *at = &walk->at;
  uintptr_t bound = walk->is_own ? walk->high : at->stack + FRAME_BYTES_MAX;
  return cfa % sizeof cfa == 0 && cfa <= bound && (cfa > at->stack || (cfa == at->stack && at->is_interrupted));
}

static inline bool walk_step(struct walk *walk) {
  const struct frame *at = &walk->at;
  struct frame next = {.frame = at->frame};
  struct cfi_rule rule = rule_of(at->place - !at->is_interrupted);
#if defined(__aarch64__)
  /* A step by the frame pointer does not tell the caller's stack pointer. Nearly all code keeps a frame pointer, so
     * the next step uses it again. */
  if (at->has_lost_stack && rule.cfa != CFA_END)
    rule = guessed;
  next.has_lost_stack = rule.cfa == CFA_GUESSED;
#endif
  if (UNLIKELY(rule.cfa == CFA_SIGNAL))
    return step_signal(walk);
  if (!find_cfa(walk, rule, &next.stack) || !is_above(walk, next.stack))
    return false;
  if (rule.is_in_register && at->is_interrupted)
    next.place = at->link;
  else if (rule.is_in_register || !fetch_word(walk, next.stack + (uintptr_t)(rule.return_words * 8), &next.place))
    return false;
  if (rule.fp == FP_FROM_CFA && !fetch_word(walk, next.stack + (uintptr_t)(rule.fp_words * 8), &next.frame))
    return false;
  if (UNLIKELY(rule.fp == FP_FROM_FP) && !fetch_word(walk, at->frame + (uintptr_t)(rule.fp_words * 8), &next.frame))
    return false;
  if (UNLIKELY(rule.fp == FP_LOST))
    next.frame = 0;
  next.place = without_signature(next.place);
  walk->at = next;
  return may_be_code(next.place);
}

/* Reads the registers at this point of the calling function. */
__attribute__((always_inline)) static inline struct frame frame_here(void) {
  struct frame here = {.is_interrupted = true};
#if defined(__x86_64__)
  __asm__ volatile("lea 0(%%rip), %0\n\tmov %%rsp, %1\n\tmov %%rbp, %2"
                   : "=&r"(here.place), "=&r"(here.stack), "=&r"(here.frame));
#elif defined(__aarch64__)
  __asm__ volatile("adr %0, .\n\tmov %1, sp\n\tmov %2, x29\n\tmov %3, x30"
                   : "=&r"(here.place), "=&r"(here.stack), "=&r"(here.frame), "=&r"(here.link));
#endif
  return here;
}

NOINLINE unsigned unwind_from(uintptr_t site, uintptr_t *addresses, unsigned most, struct unwind_stack *known) {
  struct walk walk = {.at = frame_here()};
  unsigned depth = 0;
  bool is_inside = true;
  if (os_module_is_own_library((uintptr_t)&unwind_from))
    site = 0;
  forget_if_old();
  walk_begin(&walk, known);
  for (unsigned steps = 0; depth < most && steps < most + OWN_FRAMES_MAX && walk_step(&walk); steps++) {
    uintptr_t address = walk.at.place + walk.at.is_interrupted;
    if (is_inside && (site ? address != site : os_module_is_own_library(address)))
      continue;
    is_inside = false;
    addresses[depth++] = address;
  }
  if (depth == 0 && site && most > 0)
    addresses[depth++] = site;
  return depth;
}
