/* access: what the SIGSEGV handler reads from the kernel's frame: where, by which instruction, and whether it was a
 * write. */
#include "unit.h"

#include "inspect/access.h"

#include <ucontext.h>

static struct os_access seen;
static sigjmp_buf back;
static volatile bool is_real;

static void look(const struct os_access *access) { seen = *access; }
static void handler_before(int number) {
  if (is_real)
    siglongjmp(back, 1);
}

static void (*watch(void))(int, siginfo_t *, void *) {
  struct sigaction action = {.sa_handler = handler_before};
  assert_int_equal(sigaction(SIGSEGV, &action, NULL), 0);
  assert_true(os_access_watch(look));
  assert_int_equal(sigaction(SIGSEGV, NULL, &action), 0);
  assert_true(action.sa_flags & SA_SIGINFO);
  return action.sa_sigaction;
}

UNIT_TEST(refused_accesses) {
  size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
  volatile char *page = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_true(page != MAP_FAILED);
  watch();
  is_real = true;
  for (volatile int is_write = 0; is_write < 2; is_write++) {
    seen = (struct os_access){0};
    if (sigsetjmp(back, 1) == 0) {
      if (is_write)
        page[5] = 1;
      else
        (void)page[5];
    }
    assert_int_equal(seen.address, (uintptr_t)page + 5);
    assert_true(seen.place != 0);
#if TEST_EMULATED
    if (seen.kind == OS_ACCESS_UNKNOWN) {
      print_message("the emulator gives no syndrome\n");
      continue;
    }
#endif
    assert_int_equal(seen.kind, is_write ? OS_ACCESS_WRITE : OS_ACCESS_READ);
  }
  is_real = false;
  munmap((void *)page, bytes);
}

static enum os_access_kind kind_in(ucontext_t *context) {
  siginfo_t info = {.si_code = SEGV_ACCERR, .si_addr = (void *)0x12345};
  seen = (struct os_access){0};
  watch()(SIGSEGV, &info, context);
  assert_int_equal(seen.address, 0x12345);
  assert_int_equal(seen.place, 0x4567);
  return seen.kind;
}

#if defined(__x86_64__)
UNIT_TEST(frames) {
  static ucontext_t context;
  context.uc_mcontext.gregs[REG_RIP] = 0x4567;
  context.uc_mcontext.gregs[REG_ERR] = 4; /* by the program */
  assert_int_equal(kind_in(&context), OS_ACCESS_READ);
  context.uc_mcontext.gregs[REG_ERR] = 4 | 2 | 1;
  assert_int_equal(kind_in(&context), OS_ACCESS_WRITE);
}
#elif defined(__aarch64__)
/* Puts a record into a frame as the kernel lays it out; returns the place behind. */
static unsigned char *record(unsigned char *at, uint32_t magic, uint32_t bytes, uint64_t word) {
  memcpy(at, &magic, sizeof magic);
  memcpy(at + 4, &bytes, sizeof bytes);
  memcpy(at + 8, &word, sizeof word);
  return at + bytes;
}

#define FPSIMD 0x46508001u
#define SYNDROME 0x45535201u
#define EXTRA 0x45585401u

UNIT_TEST(frames) {
  static ucontext_t context;
  static const struct {
    uint64_t syndrome;
    enum os_access_kind kind;
  } cases[] = {
      {UINT64_C(0x92000007), OS_ACCESS_READ},     /* a data abort of the program: a translation fault */
      {UINT64_C(0x92000047), OS_ACCESS_WRITE},    /* WnR, bit 6 */
      {UINT64_C(0x9200004f), OS_ACCESS_WRITE},    /* a permission fault */
      {UINT64_C(0x82000047), OS_ACCESS_UNKNOWN},  /* an instruction abort */
      {UINT64_C(0x96000047), OS_ACCESS_UNKNOWN},  /* of the kernel itself */
      {UINT64_C(0x500000000), OS_ACCESS_UNKNOWN}, /* bits 32 and above, no class */
  };
  unsigned char *start = context.uc_mcontext.__reserved, *end = start + sizeof context.uc_mcontext.__reserved;
  context.uc_mcontext.pc = 0x4567;
  assert_int_equal(kind_in(&context), OS_ACCESS_UNKNOWN); /* no record */
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    memset(start, 0, (size_t)(end - start));
    record(record(start, FPSIMD, 528, 1 << 6), SYNDROME, 16, cases[i].syndrome);
    assert_int_equal(kind_in(&context), cases[i].kind);
  }
  memset(start, 0, (size_t)(end - start));
  record(start, EXTRA, 0, 0); /* a record without length ends the list */
  record(start + 16, SYNDROME, 16, cases[1].syndrome);
  assert_int_equal(kind_in(&context), OS_ACCESS_UNKNOWN);
  memset(start, 0, (size_t)(end - start));
  record(start, FPSIMD, (uint32_t)(end - start) - 8, 0);
  memcpy(end - 8, &(uint32_t[2]){SYNDROME, 16}, 8); /* the record would end behind the frame */
  assert_int_equal(kind_in(&context), OS_ACCESS_UNKNOWN);
}
#endif

UNIT_MAIN()
