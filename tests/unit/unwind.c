/* unwind: the calls that led to a place, against glibc's backtrace() where it is there, over calls of many shapes, on
 * all kinds of stacks; and stacks that are not what they seem, which end the walk.
 */
#include "unit.h"

#include "base/observers.h"
#include "inspect/module.h"
#include "inspect/stack.h"
#include "profile/unwind.h"
#include "unwind_shapes.h"

#include <dlfcn.h>
#include <link.h>
#include <semaphore.h>
#include <ucontext.h>
#ifdef __GLIBC__
#include <execinfo.h>
#endif

#define MOST 512u
#define STACK_BYTES ((size_t)2 << 20)
#define BETWEEN_MAX 6 /* frames of backtrace() itself, and of what a sanitizer puts around it */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

/* --- counted: system calls of the core, allocations of anybody --- */

static _Atomic long system_calls;
static _Thread_local bool is_inside; /* of a call of unwind */

TEST_WRAP(long, os_kernel, long number, long a, long b, long c, long d, long e, long f) {
  atomic_fetch_add(&system_calls, 1);
  return __real_os_kernel(number, a, b, c, d, e, f);
}

#if defined(__GLIBC__) && !SANITIZED && !TEST_EMULATED
#define COUNTS_ALLOCATIONS 1
static _Atomic long allocations;
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *block, size_t bytes);
void *malloc(size_t bytes) {
  allocations += is_inside;
  return __libc_malloc(bytes);
}
void *calloc(size_t count, size_t bytes) {
  allocations += is_inside;
  return __libc_calloc(count, bytes);
}
void *realloc(void *block, size_t bytes) {
  allocations += is_inside;
  return __libc_realloc(block, bytes);
}
#else
#define COUNTS_ALLOCATIONS 0
#endif

/* --- one walk, and the reference --- */

struct stack {
  uintptr_t addresses[MOST];
  unsigned depth;
};

/* What happened at the bottom of some calls; no assertion there: it may be another thread, or a handler. */
struct seen {
  struct unwind_stack known;
  struct stack ours, theirs;
  unsigned walks, equal, shorter, longer, wrong;
};

/* From the second address on: the first is where each was called from. An interrupted place counts one more with us. */
enum verdict { EQUAL, SHORTER, LONGER, WRONG };
static enum verdict judge(const struct stack *ours, const struct stack *theirs) {
  unsigned skipped = 0;
  if (ours->depth < 2)
    return WRONG;
  while (skipped < theirs->depth && skipped < BETWEEN_MAX && theirs->addresses[skipped] != ours->addresses[1])
    skipped++;
  unsigned at = 1;
  for (; at < ours->depth && skipped + at - 1 < theirs->depth; at++) {
    uintptr_t more = ours->addresses[at] - theirs->addresses[skipped + at - 1];
    if (more > 1)
      return WRONG;
  }
  return at < ours->depth ? LONGER : skipped + at - 1 < theirs->depth ? SHORTER : EQUAL;
}

static NOINLINE void look(void *argument) {
  struct seen *seen = argument;
  seen->walks++;
  is_inside = true;
  seen->ours.depth = unwind_from(0, seen->ours.addresses, MOST, &seen->known);
  is_inside = false;
#ifdef __GLIBC__
  seen->theirs.depth = (unsigned)backtrace((void **)seen->theirs.addresses, MOST);
  enum verdict verdict = judge(&seen->ours, &seen->theirs);
#else
  enum verdict verdict = seen->ours.depth >= 2 ? EQUAL : WRONG;
#endif
  seen->equal += verdict == EQUAL;
  seen->shorter += verdict == SHORTER;
  seen->longer += verdict == LONGER;
  seen->wrong += verdict == WRONG;
}

static void walk(void *argument) {
  struct seen *seen = argument;
  seen->ours.depth = unwind_from(0, seen->ours.addresses, MOST, &seen->known);
  seen->walks++;
}

static void print_stacks(const struct seen *seen) {
  unsigned most = seen->ours.depth > seen->theirs.depth ? seen->ours.depth : seen->theirs.depth;
  print_message("%u walks: %u equal, %u shorter, %u longer, %u wrong; the last:\n", seen->walks, seen->equal,
                seen->shorter, seen->longer, seen->wrong);
  for (unsigned i = 0; i < most && i < 40; i++)
    print_message("%3u  %16lx  %16lx\n", i, i < seen->ours.depth ? (unsigned long)seen->ours.addresses[i] : 0,
                  i < seen->theirs.depth ? (unsigned long)seen->theirs.addresses[i] : 0);
}

static void must_be_equal(const struct seen *seen, unsigned walks) {
  if (seen->walks != walks || seen->equal != walks)
    print_stacks(seen);
  assert_int_equal(seen->walks, walks);
  assert_int_equal(seen->equal, walks);
}

static shapes_function *const all_shapes[] = {shapes_with_pointers, shapes_without_pointers};

/* Stops at the first difference. */
static void look_from_many(struct seen *seen, uint64_t seed, unsigned rounds) {
  for (unsigned i = 0; i < rounds && seen->equal == seen->walks; i++) {
    uint64_t drawn = test_random(&seed);
    all_shapes[i % 2]((unsigned)(drawn % 12), SHAPES_ALL, drawn, look, seen);
  }
}

/* --- ordinary stacks --- */

UNIT_TEST(controls) {
  struct stack theirs = {{9, 10, 20, 30, 40, 50}, 6};
  struct stack ours = {{7, 20, 30, 40, 50}, 5};
  assert_int_equal(judge(&ours, &theirs), EQUAL);
  ours.addresses[2] = 31; /* interrupted */
  assert_int_equal(judge(&ours, &theirs), EQUAL);
  ours.addresses[2] = 32;
  assert_int_equal(judge(&ours, &theirs), WRONG);
  ours = (struct stack){{7, 20, 40, 50}, 4};
  assert_int_equal(judge(&ours, &theirs), WRONG);
  ours = (struct stack){{7, 20, 30, 40}, 4};
  assert_int_equal(judge(&ours, &theirs), SHORTER);
  ours = (struct stack){{7, 20, 30, 40, 50, 60}, 6};
  assert_int_equal(judge(&ours, &theirs), LONGER);
  ours = (struct stack){{20}, 1};
  assert_int_equal(judge(&ours, &theirs), WRONG);
}

UNIT_TEST(known_depths) {
  static plain_function *const plain[] = {plain_with_pointers, plain_without_pointers};
  static struct seen seen;
  for (unsigned kind = 0; kind < 2; kind++) {
    for (unsigned depth = 2; depth < 200; depth += 13) {
      plain[kind](depth, look, &seen);
      unsigned alike = 0; /* the innermost call of `look` is at another place */
      for (unsigned i = 2; i < seen.ours.depth && seen.ours.addresses[i] == seen.ours.addresses[2]; i++)
        alike++;
      if (alike != depth - 1)
        print_stacks(&seen);
      assert_int_equal(alike, depth - 1);
    }
  }
  must_be_equal(&seen, seen.walks);
}

UNIT_TEST(many_shapes) {
  static struct seen seen;
  look_from_many(&seen, UNIT_SEED, SANITIZED ? 500 : 3000);
  must_be_equal(&seen, SANITIZED ? 500 : 3000);
}

UNIT_TEST(at_most) {
  static struct seen seen;
  uintptr_t three[4] = {0, 0, 0, 77};
  assert_int_equal(unwind_from(0, three, 3, &seen.known), 3);
  assert_int_equal(three[3], 77);
  assert_int_equal(unwind_from(0, three, 0, &seen.known), 0);
}

static NOINLINE unsigned inner(uintptr_t site, uintptr_t *addresses, struct unwind_stack *known) {
  unsigned depth = unwind_from(site, addresses, MOST, known);
  __asm__ volatile("" ::: "memory");
  return depth;
}
static NOINLINE unsigned entered(bool is_found, uintptr_t *site, uintptr_t *addresses, struct unwind_stack *known) {
  *site = is_found ? (uintptr_t)__builtin_extract_return_addr(__builtin_return_address(0)) : 4321;
  unsigned depth = inner(*site, addresses, known);
  __asm__ volatile("" ::: "memory");
  return depth;
}

UNIT_TEST(from_a_site) {
  static uintptr_t addresses[MOST];
  struct unwind_stack known = {0};
  uintptr_t site;
  unsigned depth = entered(true, &site, addresses, &known);
  assert_true(depth > 2);
  assert_int_equal(addresses[0], site);
  depth = entered(false, &site, addresses, &known);
  assert_int_equal(depth, 1);
  assert_int_equal(addresses[0], site);
}

UNIT_TEST(nothing_is_allocated) {
#if COUNTS_ALLOCATIONS
  assert_int_equal(allocations, 0); /* by all walks so far, which met places for the first time */
  is_inside = true;                 /* control */
  free(test_opaque(malloc(1)));
  is_inside = false;
  assert_int_equal(allocations, 1);
  allocations = 0;
#else
  print_message("skipped: only the calls of glibc's own malloc are counted\n");
  skip();
#endif
}

/* --- other stacks --- */

static void *look_in_thread(void *argument) {
  look_from_many(argument, UNIT_SEED + 1, 50);
  return NULL;
}

static char *pages(size_t bytes) {
  char *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_true(start != MAP_FAILED);
  return start;
}

/* Behind its end is a page that cannot be read. */
static char *stack_with_guard(void) {
  char *start = pages(STACK_BYTES + os_page_bytes());
  assert_int_equal(mprotect(start + STACK_BYTES, os_page_bytes(), PROT_NONE), 0);
  return start;
}

static void drop(char *stack) { munmap(stack, STACK_BYTES + os_page_bytes()); }

/* In a thread with this stack; NULL: one of the library's. */
static void run_on(char *stack, void *(*run)(void *), struct seen *seen) {
  pthread_t thread;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  int error = stack ? pthread_attr_setstack(&attributes, stack, STACK_BYTES)
                    : pthread_attr_setstacksize(&attributes, STACK_BYTES);
  assert_int_equal(error, 0);
  assert_int_equal(pthread_create(&thread, &attributes, run, seen), 0);
  pthread_join(thread, NULL);
  pthread_attr_destroy(&attributes);
}

/* One thread after the other goes on with what is known of the last one's stack, which is gone. */
UNIT_TEST(threads_one_after_the_other) {
  static struct seen seen;
  for (unsigned i = 0; i < 6; i++) {
    char *stack = stack_with_guard();
    run_on(i % 2 ? stack : NULL, look_in_thread, &seen);
    drop(stack);
  }
  look_from_many(&seen, UNIT_SEED, 50);
  must_be_equal(&seen, 350);
}

static void *look_often(void *argument) {
  look_from_many(argument, (uintptr_t)argument, SANITIZED ? 200 : 2000);
  return NULL;
}

UNIT_TEST(threads_together) {
  static struct seen seen[4];
  pthread_t threads[4];
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  assert_int_equal(pthread_attr_setstacksize(&attributes, STACK_BYTES), 0); /* musl's 128 KiB are too few */
  for (unsigned i = 0; i < 4; i++)
    assert_int_equal(pthread_create(&threads[i], &attributes, look_often, &seen[i]), 0);
  pthread_attr_destroy(&attributes);
  for (unsigned i = 0; i < 200; i++) {
    unwind_forget();
    usleep(100);
  }
  for (unsigned i = 0; i < 4; i++)
    pthread_join(threads[i], NULL);
  for (unsigned i = 0; i < 4; i++)
    must_be_equal(&seen[i], SANITIZED ? 200 : 2000);
}

static struct seen in_child;

static void look_in_child(void *unused) {
  look_from_many(&in_child, UNIT_SEED, 50);
  CHECK(in_child.equal == in_child.walks && in_child.walks >= 60);
}

UNIT_TEST(after_a_fork) {
  look_from_many(&in_child, UNIT_SEED, 10);
  unit_passes_in_child(look_in_child, NULL);
}

#ifdef __GLIBC__ /* musl has no contexts */
static ucontext_t in_main, in_coroutine;

static void coroutine(unsigned high, unsigned low) {
  look_from_many((struct seen *)((uintptr_t)high << 32 | low), UNIT_SEED + 2, 50);
}

static void on_stack(char *stack, void (*run)(unsigned, unsigned), struct seen *seen) {
  getcontext(&in_coroutine);
  in_coroutine.uc_stack = (stack_t){.ss_sp = stack, .ss_size = STACK_BYTES};
  in_coroutine.uc_link = &in_main;
  makecontext(&in_coroutine, (void (*)(void))run, 2, (unsigned)((uintptr_t)seen >> 32), (unsigned)(uintptr_t)seen);
  swapcontext(&in_main, &in_coroutine);
}

/* With none known before, and with the thread's own known. */
UNIT_TEST(in_coroutines) {
  static struct seen seen;
  for (unsigned i = 0; i < 4; i++) {
    char *stack = stack_with_guard();
    if (i == 2)
      look_from_many(&seen, UNIT_SEED, 10);
    struct unwind_stack before = seen.known;
    on_stack(stack, coroutine, &seen);
    if (i == 3) /* a stack that may go away leaves nothing behind */
      assert_memory_equal(&before, &seen.known, sizeof before);
    drop(stack);
  }
  must_be_equal(&seen, 210);
}

static void look_after_loss(void *argument) {
  struct seen *seen = argument;
  unsigned before = unwind_from(0, seen->ours.addresses, MOST, &seen->known);
  munmap(in_coroutine.uc_stack.ss_sp + STACK_BYTES - 8 * os_page_bytes(), 8 * os_page_bytes());
  seen->ours.depth = unwind_from(0, seen->ours.addresses, MOST, &seen->known);
  seen->walks = before;
  setcontext(&in_main);
}

static NOINLINE void with_room(void *argument) {
  char room[64 << 10];
  test_opaque(room);
  plain_without_pointers(40, look_after_loss, argument);
  test_opaque(room);
}

static void losing_coroutine(unsigned high, unsigned low) {
  with_room((struct seen *)((uintptr_t)high << 32 | low));
  test_opaque(&high);
}

/* Also when a thread that is gone had the same stack, whole. */
UNIT_TEST(upper_pages_gone) {
  static struct seen seen;
  unit_skip_if(os_page_bytes() > 4096, "pages are large");
  for (unsigned i = 0; i < 2; i++) {
    char *stack = stack_with_guard();
    seen = (struct seen){0};
    if (i == 1)
      run_on(stack, look_in_thread, &seen);
    on_stack(stack, losing_coroutine, &seen);
    drop(stack);
    assert_true(seen.walks > 40);
    assert_in_range(seen.ours.depth, 2, seen.walks - 1);
  }
}

static char *below; /* a stack, then a guard page, then the thread's own */

static void *look_from_below(void *argument) {
  for (unsigned i = 0; i < 3; i++)
    on_stack(below, coroutine, argument);
  return NULL;
}

UNIT_TEST(a_guard_page_is_seen) {
  static struct seen seen;
  size_t bytes = STACK_BYTES + os_page_bytes();
  below = pages(bytes + STACK_BYTES);
  assert_int_equal(mprotect(below + STACK_BYTES, os_page_bytes(), PROT_NONE), 0);
  run_on(below + bytes, look_from_below, &seen);
  must_be_equal(&seen, 150);
  assert_int_equal(seen.known.low, (uintptr_t)below + bytes);
  assert_int_equal(seen.known.floor, (uintptr_t)below + bytes);
  munmap(below, bytes + STACK_BYTES);
}
#endif

/* --- signals --- */

static struct seen *handler_seen;
static bool handler_compares;
static _Atomic bool is_busy;

static void look_in_handler(int number) {
  int kept = errno;
  if (!atomic_exchange(&is_busy, true)) {
    (handler_compares ? look : walk)(handler_seen);
    atomic_store(&is_busy, false);
  }
  errno = kept;
}

/* A way out of handlers about which nothing is said, in place of the C library's. */
void return_from_signal(void);
#if defined(__x86_64__)
__asm__(".text\n.globl return_from_signal\n nop\nreturn_from_signal:\n movq $15, %rax\n syscall\n");
#elif defined(__aarch64__)
__asm__(".text\n.globl return_from_signal\n nop\nreturn_from_signal:\n mov x8, #139\n svc #0\n");
#endif

struct kernel_action {
  void (*handler)(int);
  unsigned long flags;
  void (*restorer)(void);
  unsigned long mask;
};
#define FLAG_RESTORER 0x04000000ul

/* An emulator's own way out is in no module. */
enum way { WAY_OF_LIBRARY, WAY_OF_OURS };
#if TEST_EMULATED
#define WAY(number) ((void)(number), WAY_OF_OURS)
#else
#define WAY(number) ((number) % 2 ? WAY_OF_OURS : WAY_OF_LIBRARY)
#endif

static void handle(int number, char *stack, enum way way) {
  stack_t alternate = {.ss_sp = stack, .ss_size = STACK_BYTES, .ss_flags = stack ? 0 : SS_DISABLE};
  unsigned long flags = SA_RESTART | (stack ? SA_ONSTACK : 0);
  struct sigaction action = {.sa_handler = look_in_handler, .sa_flags = (int)flags};
  struct kernel_action kernel_action = {look_in_handler, flags | FLAG_RESTORER, return_from_signal, 0};
  assert_int_equal(sigaltstack(&alternate, NULL), 0);
  assert_int_equal(sigaction(number, &action, NULL), 0);
  if (way == WAY_OF_OURS)
    assert_int_equal(__real_os_kernel(SYS_rt_sigaction, number, (long)&kernel_action, 0, 8, 0, 0), 0);
}

static void raise_in(void *argument) {
  raise(SIGUSR1);
  __asm__ volatile("" : : "r"(argument) : "memory");
}

UNIT_TEST(in_signal_handlers) {
  static struct seen seen;
  char *stack = stack_with_guard();
  uint64_t seed = UNIT_SEED;
  handler_seen = &seen;
  handler_compares = true;
  for (unsigned i = 0; i < 100 && seen.equal == seen.walks; i++) {
    handle(SIGUSR1, i % 2 ? stack : NULL, WAY(i / 4));
    all_shapes[i / 2 % 2](i % 7, SHAPES_ALL, test_random(&seed), raise_in, NULL);
  }
  handle(SIGUSR1, NULL, WAY(0));
  drop(stack);
  must_be_equal(&seen, 100);
}

static void touch(void *argument) {
  char text[64];
  snprintf(text, sizeof text, "%d %s", *(int *)argument, "some text");
  (*(int *)argument)++;
}

static _Atomic bool is_over;

static void *disturb(void *argument) {
  while (!atomic_load(&is_over)) {
    pthread_kill(*(pthread_t *)argument, SIGUSR2);
    usleep(20);
  }
  return NULL;
}

#define WALKS_MIN 10u /* beside much other work they take long to come about */

static void disturbed(unsigned kinds, bool is_compared, struct seen *seen) {
  pthread_t self = pthread_self(), disturber;
  uint64_t seed = UNIT_SEED, start = os_milliseconds();
  int touched = 0;
  char *stack = stack_with_guard();
  handler_seen = seen;
  handler_compares = is_compared;
  handle(SIGUSR2, stack, WAY(is_compared));
  atomic_store(&is_over, false);
  assert_int_equal(pthread_create(&disturber, NULL, disturb, &self), 0);
  for (unsigned i = 0; seen->wrong == 0; i++) {
    uint64_t passed_ms = os_milliseconds() - start;
    if (passed_ms >= (seen->walks < WALKS_MIN ? TEST_PATIENCE_SECONDS * 1000u : 500))
      break;
    all_shapes[i % 2](i % 5, kinds, test_random(&seed), touch, &touched);
  }
  atomic_store(&is_over, true);
  pthread_join(disturber, NULL);
  handle(SIGUSR2, NULL, WAY(0));
  drop(stack);
}

/* Signals that come at any instruction. backtrace() ends where it does not know its way, and so do we; not always at
 * the same. What is said about stacks that are aligned takes backtrace() where nothing is; we must live on. */
UNIT_TEST(at_any_instruction) {
  unit_skip_if(SANITIZED, "signals come late under a sanitizer");
  static struct seen seen, alone;
  disturbed(SHAPES_UNALIGNED, true, &seen);
  print_message("%u interrupted places: %u equal, %u shorter, %u longer, %u wrong\n", seen.walks, seen.equal,
                seen.shorter, seen.longer, seen.wrong);
  if (seen.wrong)
    print_stacks(&seen);
  assert_true(seen.walks >= WALKS_MIN);
  assert_int_equal(seen.wrong, 0);
  assert_true(seen.equal >= seen.walks * 9 / 10);
  disturbed(SHAPES_ALL, false, &alone);
  assert_true(alone.walks >= WALKS_MIN);
}

/* --- nonsense --- */

/* Calls function(argument) with a frame pointer of the caller's choice, and says nothing about how to get out of it. */
void call_with_frame_pointer(void (*function)(void *), void *argument, uintptr_t frame_pointer);
#if defined(__x86_64__)
__asm__(".text\n.globl call_with_frame_pointer\n.type call_with_frame_pointer, @function\n"
        "call_with_frame_pointer:\n push %rbp\n mov %rdi, %rax\n mov %rsi, %rdi\n mov %rdx, %rbp\n call *%rax\n"
        " pop %rbp\n ret\n.size call_with_frame_pointer, . - call_with_frame_pointer\n");
#elif defined(__aarch64__)
__asm__(".text\n.globl call_with_frame_pointer\n.type call_with_frame_pointer, %function\n"
        "call_with_frame_pointer:\n stp x29, x30, [sp, #-16]!\n mov x29, x2\n mov x3, x0\n mov x0, x1\n blr x3\n"
        " ldp x29, x30, [sp], #16\n ret\n.size call_with_frame_pointer, . - call_with_frame_pointer\n");
#endif

static void try_garbage(struct seen *seen, char *unreadable) {
  uintptr_t words[64], here = (uintptr_t)words;
  for (unsigned i = 0; i < 64; i++) /* a chain that goes nowhere, and one that runs in circles */
    words[i] = here + (i * 8 + 24) % sizeof words;
  const uintptr_t end = os_stack_end(), wall = (uintptr_t)unreadable, far = (uintptr_t)1 << 47;
  const uintptr_t code = (uintptr_t)walk, data = (uintptr_t)seen, thread = os_thread_pointer();
  const uintptr_t garbage[] = {
      0,        1,         8,        4096, here,   here + 8, here + 3, here - 4096,     here + 100000, wall,
      wall - 8, wall - 16, code,     data, thread, end,      end - 8,  end + (1 << 30), UINTPTR_MAX,   UINTPTR_MAX - 7,
      far,      far - 16,  far << 16};
  uint64_t seed = UNIT_SEED;
  for (unsigned i = 0; i < sizeof garbage / sizeof garbage[0]; i++)
    call_with_frame_pointer(walk, seen, garbage[i]);
  for (unsigned i = 0; i < 1000; i++)
    call_with_frame_pointer(walk, seen, here - 2000 + test_random(&seed) % 8000);
}

#ifdef __GLIBC__
static void garbage_in_coroutine(unsigned high, unsigned low) {
  struct seen *seen = (struct seen *)((uintptr_t)high << 32 | low);
  try_garbage(seen, (char *)in_coroutine.uc_stack.ss_sp + STACK_BYTES);
}
#endif

UNIT_TEST(garbage_frame_pointers) {
  static struct seen seen;
  char *stack = stack_with_guard();
  try_garbage(&seen, stack + STACK_BYTES);
  unsigned walks = seen.walks;
#ifdef __GLIBC__
  seen.known = (struct unwind_stack){0};
  on_stack(stack, garbage_in_coroutine, &seen);
  assert_int_equal(seen.walks, 2 * walks);
#endif
  drop(stack);
  assert_true(walks > 1000);
}

UNIT_TEST(what_can_be_read) {
  char *stack = stack_with_guard();
  assert_true(os_page_is_readable((uintptr_t)stack));
  assert_true(os_page_is_readable((uintptr_t)what_can_be_read));
  assert_false(os_page_is_readable((uintptr_t)stack + STACK_BYTES));
  assert_false(os_page_is_readable(0));
  assert_false(os_page_is_readable(UINTPTR_MAX));
  drop(stack);
  assert_false(os_page_is_readable((uintptr_t)stack));
  uintptr_t end = os_stack_end(), here = (uintptr_t)&end;
  assert_in_range(end, here, here + ((uintptr_t)1 << 30));
}

/* --- libraries --- */

#ifdef PLUGIN_SMALL
typedef void plugin_function(bottom_function *at_bottom, void *argument);

static void *open_plugin(const char *path, plugin_function **call) {
  void *library = UNIT_GOT(dlopen(path, RTLD_NOW));
  void *found = UNIT_GOT(dlsym(library, "plugin_call"));
  memcpy(call, &found, sizeof found);
  return library;
}

/* As in programs that hakmem is linked into: nobody says that libraries come and go. */
UNIT_TEST(a_library_that_nobody_told_of) {
  static struct seen seen;
  plugin_function *small, *large;
  void *library = open_plugin(PLUGIN_SMALL, &small);
  small(look, &seen);
  assert_int_equal(dlclose(library), 0);
  library = open_plugin(PLUGIN_LARGE, &large);
  usleep(200000);
  large(look, &seen);
  must_be_equal(&seen, 2);
  dlclose(library);
  unwind_forget();
  atomic_store(&observers_libraries_told, true);
}

/* The second lies where the first one was, and what was known about it is wrong. */
UNIT_TEST(a_library_in_place_of_another) {
  enum { TRIES = 5 };
  static struct seen seen;
  plugin_function *small, *large;
  void *library = NULL;
  for (unsigned try = 0, equal = 2; equal == 2; try++) { /* 2: the control was right, as once under load */
    assert_true(try < TRIES);
    if (library != NULL) {
      dlclose(library);
      unwind_forget();
      seen = (struct seen){0};
    }
    library = open_plugin(PLUGIN_SMALL, &small);
    small(look, &seen);
    must_be_equal(&seen, 1);
    assert_int_equal(dlclose(library), 0);
    library = open_plugin(PLUGIN_LARGE, &large);
    if ((uintptr_t)large == (uintptr_t)small)
      large(look, &seen); /* control */
    else
      print_message("the libraries lie at different addresses\n");
    equal = seen.equal;
  }
  seen.walks = 1; /* without the control's */
  seen.wrong = 0;
  unwind_forget();
  large(look, &seen);
  must_be_equal(&seen, 2);
  dlclose(library);
}

unsigned library_walk(uintptr_t *addresses, unsigned most, struct unwind_stack *known);

/* The innermost call is the one that entered the library. */
UNIT_TEST(without_the_library_itself) {
  static struct seen seen;
  uintptr_t addresses[MOST];
  unsigned ours = unwind_from(0, seen.ours.addresses, MOST, &seen.known);
  assert_int_equal(library_walk(addresses, MOST, &seen.known), ours);
  assert_memory_equal(addresses + 1, seen.ours.addresses + 1, (ours - 1) * sizeof addresses[0]);
  struct os_module program, caller, library;
  assert_true(os_module_find(seen.ours.addresses[0], &program));
  assert_true(os_module_find(addresses[0], &caller));
  assert_int_equal(caller.build, program.build);
  assert_true(os_module_find((uintptr_t)test_opaque((void *)(uintptr_t)library_walk), &library)); /* control */
  assert_true(library.build != program.build);
}

static sem_t wanted, done;

static int pass(struct dl_phdr_info *info, size_t bytes, void *argument) { return 1; }

static void *look_when_wanted(void *argument) {
  sem_wait(&wanted);
  look_from_many(argument, UNIT_SEED + 7, 20);
  sem_post(&done);
  dl_iterate_phdr(pass, NULL);
  sem_post(&done);
  return NULL;
}

static bool is_done(unsigned seconds_16) {
  struct timespec end;
  clock_gettime(CLOCK_REALTIME, &end);
  end.tv_nsec += (long)seconds_16 % 16 * (1000000000 / 16);
  end.tv_sec += seconds_16 / 16 + end.tv_nsec / 1000000000;
  end.tv_nsec %= 1000000000;
  return sem_timedwait(&done, &end) == 0;
}

static bool was_done, control_was_done;

/* The loader's lock is held, by this thread. */
static int wait_for_look(struct dl_phdr_info *info, size_t bytes, void *argument) {
  sem_post(&wanted);
  was_done = is_done(160);
  control_was_done = is_done(3);
  return 1;
}

UNIT_TEST(without_the_loaders_lock) {
  static struct seen seen;
  pthread_t thread;
  unwind_forget();
  sem_init(&wanted, 0, 0);
  sem_init(&done, 0, 0);
  assert_int_equal(pthread_create(&thread, NULL, look_when_wanted, &seen), 0);
  dl_iterate_phdr(wait_for_look, NULL);
  pthread_join(thread, NULL);
  assert_true(was_done);
  assert_false(control_was_done);
}
#endif

/* --- cost --- */

#define BATCHES 40u
#define RUNS (SANITIZED ? 50u : 5000u)
#define COST_DEPTH 5u

/* The quickest batch: the others met something else. */
static void walk_often(void *argument) {
  struct seen *seen = argument;
  double best = 1e9;
  unwind_from(0, seen->ours.addresses, COST_DEPTH, &seen->known);
  long before = atomic_load(&system_calls);
  for (unsigned batch = 0; batch < BATCHES; batch++) {
    double start = test_seconds();
    for (unsigned i = 0; i < RUNS; i++)
      seen->ours.depth = unwind_from(0, seen->ours.addresses, COST_DEPTH, &seen->known);
    double took = test_seconds() - start;
    best = took < best ? took : best;
  }
  print_message("%.1f ns a frame, %.0f ns a walk of %u\n", best * 1e9 / RUNS / COST_DEPTH, best * 1e9 / RUNS,
                seen->ours.depth);
  seen->walks += atomic_load(&system_calls) != before;
}

UNIT_TEST(no_system_calls_in_the_long_run) {
  static struct seen seen;
  plain_without_pointers(10, walk_often, &seen);
#if TEST_EMULATED
  if (!os_page_is_readable((uintptr_t)&seen))
    skip();
#endif
  assert_int_equal(seen.walks, 0);
  long before = atomic_load(&system_calls); /* control: one that has to ask */
  seen.known = (struct unwind_stack){0};
  plain_without_pointers(10, walk, &seen);
  assert_true(atomic_load(&system_calls) > before);
}

int main(void) {
#ifdef __GLIBC__
  void *one;
  backtrace(&one, 1); /* it loads a library the first time */
#endif
#ifndef PLUGIN_SMALL
  atomic_store(&observers_libraries_told, true);
#endif
  return unit_run(NULL, NULL);
}
