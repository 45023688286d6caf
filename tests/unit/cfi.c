/* cfi: the rule at each place of functions made by hand; and that no bytes, however wrong, make it read outside of
 * them. */
#include "unit.h"

#include "inspect/module.h"
#include "profile/cfi.h"

#define BASE ((uintptr_t)0x550000000000) /* the bytes claim to lie here */
#define FUNCTION 0x100000u               /* from there */
#define FUNCTION_BYTES 0x20000u
#define SP CFI_REGISTER_SP
#define FP CFI_REGISTER_FP
#define RA CFI_REGISTER_RETURN

struct made {
  unsigned char bytes[512];
  size_t length;
};

static void put(struct made *made, const void *bytes, size_t length) {
  assert_true(made->length + length <= sizeof made->bytes);
  memcpy(made->bytes + made->length, bytes, length);
  made->length += length;
}
static void put_byte(struct made *made, unsigned byte) { put(made, &(unsigned char){(unsigned char)byte}, 1); }
static void put_4(struct made *made, uint32_t value) { put(made, &value, 4); }

static void end_entry(struct made *made, size_t start) {
  uint32_t length = (uint32_t)(made->length - start - 4);
  memcpy(made->bytes + start, &length, 4);
}

struct program {
  unsigned char bytes[32];
  size_t length;
};
#define PROGRAM(...) {{__VA_ARGS__}, sizeof((unsigned char[]){__VA_ARGS__})}

/* What all functions begin with: the return address is on the stack. */
static const struct program usual = PROGRAM(0x0c, SP, 8, 0x80 | RA, 1);

struct look {
  unsigned version;
  const char *letters;
  struct program augmentation; /* for the letters */
};
static const struct look usual_look = {1, "zR", PROGRAM(0x1b)};

/* One function: a header, what is common, and its program. */
static void make(struct made *made, const struct look *look, const struct program *common,
                 const struct program *program) {
  made->length = 0;
  put(made, "\1\x1b\3\x3b", 4);
  put_4(made, 16);
  put_4(made, 1);
  put_4(made, FUNCTION);
  size_t entry_at = made->length;
  put_4(made, 0);
  size_t common_at = made->length;
  put_4(made, 0);
  put_4(made, 0);
  put_byte(made, look->version);
  put(made, look->letters, strlen(look->letters) + 1);
  if (look->version == 4)
    put(made, "\10", 2);
  put(made, "\1\x78", 2); /* units: 1 byte of code, -8 of data */
  put_byte(made, RA);
  if (*look->letters == 'z') {
    put_byte(made, (unsigned)look->augmentation.length);
    put(made, look->augmentation.bytes, look->augmentation.length);
  }
  put(made, common->bytes, common->length);
  end_entry(made, common_at);
  size_t function_at = made->length;
  uint32_t offset = (uint32_t)function_at;
  memcpy(made->bytes + entry_at, &offset, 4);
  put_4(made, 0);
  put_4(made, (uint32_t)(made->length - common_at));
  if (*look->letters == 'z') {
    put_4(made, (uint32_t)(FUNCTION - made->length)); /* from here */
    put_4(made, FUNCTION_BYTES);
    put_byte(made, 0);
  } else {
    put(made, &(uint64_t){BASE + FUNCTION}, 8);
    put(made, &(uint64_t){FUNCTION_BYTES}, 8);
  }
  put(made, program->bytes, program->length);
  end_entry(made, function_at);
}

static bool find(const struct made *made, uint64_t place, struct cfi_rule *rule) {
  return cfi_find(
      &(struct os_module_frames){made->bytes, made->bytes + made->length, made->bytes, BASE - (uintptr_t)made->bytes},
      BASE + place, rule);
}

static bool is_same(struct cfi_rule a, struct cfi_rule b) {
  if (a.cfa != b.cfa || a.cfa == CFA_END || a.cfa == CFA_SIGNAL)
    return a.cfa == b.cfa;
  bool fp = a.fp == b.fp && (a.fp == FP_UNCHANGED || a.fp == FP_LOST || a.fp_words == b.fp_words);
  return fp && a.cfa_words == b.cfa_words && a.return_words == b.return_words && a.is_in_register == b.is_in_register;
}

#define RULE(cfa_kind, words, fp_kind, fp_at)                                                                          \
  {.cfa = (cfa_kind), .cfa_words = (words), .fp = (fp_kind), .fp_words = (fp_at), .return_words = -1}
#define NOTHING RULE(CFA_END, 0, 0, 0)

static const struct known {
  const char *what;
  struct program program;
  unsigned place;
  struct cfi_rule rule;
} known[] = {
    {"nothing", PROGRAM(0), 0, RULE(CFA_FROM_SP, 1, FP_UNCHANGED, 0)},
    {"a push, before", PROGRAM(0x41, 0x0e, 16, 0x80 | FP, 2), 0, RULE(CFA_FROM_SP, 1, FP_UNCHANGED, 0)},
    {"a push, after", PROGRAM(0x41, 0x0e, 16, 0x80 | FP, 2), 1, RULE(CFA_FROM_SP, 2, FP_FROM_CFA, -2)},
    {"a frame", PROGRAM(0x41, 0x0e, 16, 0x80 | FP, 2, 0x43, 0x0d, FP), 4, RULE(CFA_FROM_FP, 2, FP_FROM_CFA, -2)},
    {"a large frame", PROGRAM(0x41, 0x0e, 0x90, 0x9c, 0x01), 9, RULE(CFA_FROM_SP, 2498, FP_UNCHANGED, 0)},
    {"remembered", PROGRAM(0x0a, 0x0e, 64, 0x80 | FP, 3, 0x41, 0x0b), 0, RULE(CFA_FROM_SP, 8, FP_FROM_CFA, -3)},
    {"recalled", PROGRAM(0x0a, 0x0e, 64, 0x80 | FP, 3, 0x41, 0x0b), 1, RULE(CFA_FROM_SP, 1, FP_UNCHANGED, 0)},
    {"restored", PROGRAM(0x80 | FP, 3, 0x41, 0xc0 | FP), 1, RULE(CFA_FROM_SP, 1, FP_UNCHANGED, 0)},
    {"restored, long", PROGRAM(0x80 | FP, 3, 0x41, 0x06, FP), 1, RULE(CFA_FROM_SP, 1, FP_UNCHANGED, 0)},
    {"the same again", PROGRAM(0x80 | FP, 3, 0x41, 0x08, FP), 1, RULE(CFA_FROM_SP, 1, FP_UNCHANGED, 0)},
    {"one byte", PROGRAM(0x02, 200, 0x0e, 16), 199, RULE(CFA_FROM_SP, 1, FP_UNCHANGED, 0)},
    {"one byte later", PROGRAM(0x02, 200, 0x0e, 16), 200, RULE(CFA_FROM_SP, 2, FP_UNCHANGED, 0)},
    {"two bytes", PROGRAM(0x03, 0x34, 0x12, 0x0e, 16), 0x1233, RULE(CFA_FROM_SP, 1, FP_UNCHANGED, 0)},
    {"two bytes later", PROGRAM(0x03, 0x34, 0x12, 0x0e, 16), 0x1234, RULE(CFA_FROM_SP, 2, FP_UNCHANGED, 0)},
    {"four bytes", PROGRAM(0x04, 0x34, 0x12, 1, 0, 0x0e, 16), 0x11233, RULE(CFA_FROM_SP, 1, FP_UNCHANGED, 0)},
    {"four bytes later", PROGRAM(0x04, 0x34, 0x12, 1, 0, 0x0e, 16), 0x11234, RULE(CFA_FROM_SP, 2, FP_UNCHANGED, 0)},
    {"offset, long", PROGRAM(0x05, FP, 5), 0, RULE(CFA_FROM_SP, 1, FP_FROM_CFA, -5)},
    {"offset, signed", PROGRAM(0x11, FP, 0x7b), 0, RULE(CFA_FROM_SP, 1, FP_FROM_CFA, 5)},
    {"offset, negative", PROGRAM(0x2f, FP, 5), 0, RULE(CFA_FROM_SP, 1, FP_FROM_CFA, 5)},
    {"base, signed", PROGRAM(0x12, FP, 0x7e), 0, RULE(CFA_FROM_FP, 2, FP_UNCHANGED, 0)},
    {"base offset, signed", PROGRAM(0x13, 0x7c), 0, RULE(CFA_FROM_SP, 4, FP_UNCHANGED, 0)},
    {"stored base", PROGRAM(0x0f, 3, 0x70 + FP, 0x78, 0x06, 0x10, FP, 2, 0x70 + FP, 0), 0,
     RULE(CFA_STORED_FP, -1, FP_FROM_FP, 0)},
    {"base by a sum", PROGRAM(0x0f, 3, 0x70 + SP, 0x80, 1), 0, RULE(CFA_FROM_SP, 16, FP_UNCHANGED, 0)},
    {"frame pointer undefined", PROGRAM(0x07, FP), 0, RULE(CFA_FROM_SP, 1, FP_LOST, 0)},
    {"frame pointer in a register", PROGRAM(0x09, FP, 3), 0, RULE(CFA_FROM_SP, 1, FP_LOST, 0)},
    {"frame pointer a value", PROGRAM(0x14, FP, 3), 0, RULE(CFA_FROM_SP, 1, FP_LOST, 0)},
    {"frame pointer computed", PROGRAM(0x16, FP, 1, 0x50), 0, RULE(CFA_FROM_SP, 1, FP_LOST, 0)},
    {"others' registers", PROGRAM(0x80 | 3, 7, 0x05, 12, 9, 0x10, 13, 2, 0x70, 0, 0x09, 12, 13), 0,
     RULE(CFA_FROM_SP, 1, FP_UNCHANGED, 0)},
    {"arguments, signature", PROGRAM(0x2e, 16, 0x2d, 0x2c), 0, RULE(CFA_FROM_SP, 1, FP_UNCHANGED, 0)},
    {"the outermost", PROGRAM(0x07, RA), 0, NOTHING},
    {"base in another register", PROGRAM(0x0d, 3), 0, NOTHING},
    {"base computed", PROGRAM(0x0f, 4, 0x70 + SP, 8, 0x06, 0x06), 0, NOTHING},
    {"an odd base", PROGRAM(0x0e, 12), 0, NOTHING},
    {"a huge base", PROGRAM(0x0e, 0x80, 0x80, 0x80, 0x80, 0x01), 0, NOTHING},
    {"an offset out of range", PROGRAM(0x05, FP, 0x80, 0x80, 0x80, 0x01), 0, NOTHING},
    {"recalled too often", PROGRAM(0x0b), 0, NOTHING},
    {"remembered too often", PROGRAM(0x0a, 0x0a, 0x0a, 0x0a, 0x0a, 0x0a, 0x0a, 0x0a, 0x0a, 0x0a), 0, NOTHING},
    {"unknown", PROGRAM(0x3e), 0, NOTHING},
    {"cut", PROGRAM(0x0c, SP), 0, NOTHING},
    {"cut in a number", PROGRAM(0x0e, 0x90), 0, NOTHING},
    {"cut in an expression", PROGRAM(0x0f, 9, 0x70 + SP), 0, NOTHING},
#ifdef __x86_64__
    {"linkage table", PROGRAM(0x0f, 11, 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22), 0x2a,
     RULE(CFA_FROM_SP, 1, FP_UNCHANGED, 0)},
    {"linkage table, later", PROGRAM(0x0f, 11, 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22), 0x2b,
     RULE(CFA_FROM_SP, 2, FP_UNCHANGED, 0)},
#endif
};

UNIT_TEST(known_programs) {
  struct made made;
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
    struct cfi_rule rule;
    make(&made, &usual_look, &usual, &known[i].program);
    assert_true(find(&made, FUNCTION + known[i].place, &rule));
    if (!is_same(rule, known[i].rule))
      fail_msg("%s: cfa %d %d, fp %d %d, return %d", known[i].what, rule.cfa, rule.cfa_words, rule.fp, rule.fp_words,
               rule.return_words);
  }
}

UNIT_TEST(known_looks) {
  static const struct {
    struct look look;
    enum cfi_cfa cfa;
  } looks[] = {
      {{1, "zR", PROGRAM(0x1b)}, CFA_FROM_SP},
      {{3, "zR", PROGRAM(0x1b)}, CFA_FROM_SP},
      {{4, "zR", PROGRAM(0x1b)}, CFA_FROM_SP},
      {{1, "zPLR", PROGRAM(0x9b, 1, 2, 3, 4, 0x1b, 0x1b)}, CFA_FROM_SP},
      {{1, "zPLR", PROGRAM(0x03, 1, 2, 3, 4, 0xff, 0x1b)}, CFA_FROM_SP},
      {{1, "zRB", PROGRAM(0x1b)}, CFA_FROM_SP},
      {{1, "zRS", PROGRAM(0x1b)}, CFA_SIGNAL},
      {{1, "", PROGRAM(0)}, CFA_FROM_SP},
      {{2, "zR", PROGRAM(0x1b)}, CFA_END},
      {{1, "zQ", PROGRAM(0x1b)}, CFA_END},
      {{1, "zR", PROGRAM(0x9b)}, CFA_END},
      {{1, "zPLR", PROGRAM(0x1b)}, CFA_END},
      {{1, "eh", PROGRAM(0)}, CFA_END},
  };
  struct made made;
  for (size_t i = 0; i < sizeof looks / sizeof looks[0]; i++) {
    struct cfi_rule rule = {.cfa = CFA_GUESSED};
    make(&made, &looks[i].look, &usual, &known[0].program);
    if (!find(&made, FUNCTION, &rule) || rule.cfa != looks[i].cfa)
      fail_msg("look %zu: %d", i, rule.cfa);
  }
}

UNIT_TEST(other_places) {
  struct made made;
  struct cfi_rule rule = {.cfa = CFA_GUESSED};
  make(&made, &usual_look, &usual, &known[0].program);
  assert_false(find(&made, FUNCTION - 1, &rule));
  assert_false(find(&made, FUNCTION + FUNCTION_BYTES, &rule));
  assert_false(find(&made, 0, &rule));
  assert_false(find(&made, (uint64_t)1 << 60, &rule));
  assert_false(find(&made, -(uint64_t)1 << 40, &rule));
  assert_int_equal(rule.cfa, CFA_GUESSED);
  assert_true(find(&made, FUNCTION + FUNCTION_BYTES - 1, &rule));
}

/* --- this program's own, damaged --- */

/* Bytes right before a page that cannot be read. */
static struct guarded {
  unsigned char *pages, *end;
} guarded;

static void guard(size_t bytes) {
  size_t length = round_up(bytes, os_page_bytes());
  guarded.pages = mmap(NULL, length + os_page_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_true(guarded.pages != MAP_FAILED);
  guarded.end = guarded.pages + length;
  assert_int_equal(mprotect(guarded.end, os_page_bytes(), PROT_NONE), 0);
}

static void read_behind(void *unused) { (void)*(volatile unsigned char *)guarded.end; }

/* From the header on: what is before belongs to others. */
static struct os_module_frames own(void) {
  struct os_module_frames frames;
  assert_true(os_module_frames_find((uintptr_t)test_opaque((void *)(uintptr_t)known_programs), &frames));
  assert_true(frames.header >= frames.start && frames.header < frames.end);
  frames.start = frames.header;
  return frames;
}

#define PLACES 16u
static const uintptr_t *places(void) {
  static uintptr_t places[PLACES];
  uint64_t seed = UNIT_SEED;
  uintptr_t around = (uintptr_t)test_opaque((void *)(uintptr_t)known_programs);
  for (unsigned i = 0; i < PLACES; i++)
    places[i] = i == 0 ? around : around - 4000 + test_random(&seed) % 8000;
  return places;
}

static struct os_module_frames copied(const struct os_module_frames *frames, size_t length) {
  unsigned char *start = guarded.end - length;
  memcpy(start, frames->start, length);
  return (struct os_module_frames){start, guarded.end, start, (uintptr_t)frames->start - (uintptr_t)start};
}

UNIT_TEST(copies_say_the_same) {
  struct os_module_frames frames = own();
  guard((size_t)(frames.end - frames.start));
  struct os_module_frames copy = copied(&frames, (size_t)(frames.end - frames.start));
  unsigned found = 0;
  for (unsigned i = 0; i < PLACES; i++) {
    struct cfi_rule a = {.cfa = CFA_GUESSED}, b = a;
    bool is_found = cfi_find(&frames, places()[i], &a);
    assert_int_equal(cfi_find(&copy, places()[i], &b), is_found);
    assert_memory_equal(&a, &b, sizeof a);
    found += is_found && a.cfa != CFA_END;
  }
  assert_true(found > PLACES / 2);
  char said[4096]; /* control: what reads behind the copy is seen */
  assert_true(unit_in_child(read_behind, NULL, said, sizeof said) != 0);
}

static unsigned find_all(const struct os_module_frames *bytes) {
  unsigned found = 0;
  for (unsigned i = 0; i < PLACES; i++) {
    struct cfi_rule rule;
    found += cfi_find(bytes, places()[i], &rule);
  }
  return found;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || TEST_EMULATED
#define STRIDE 53u
#else
#define STRIDE 3u
#endif

UNIT_TEST(any_byte_wrong) {
  struct os_module_frames frames = own();
  size_t length = (size_t)(frames.end - frames.start);
  struct os_module_frames copy = copied(&frames, length);
  unsigned char *bytes = guarded.end - length;
  unsigned differences = 0, all = find_all(&copy);
  for (size_t at = 0; at < length; at += at < 64 ? 1 : STRIDE) {
    unsigned char right = bytes[at];
    for (unsigned flip = 1; flip <= 256; flip *= 2) {
      bytes[at] = right ^ (unsigned char)(flip == 256 ? 255 : flip);
      differences += find_all(&copy) != all;
    }
    bytes[at] = right;
  }
  assert_true(differences > 0);
}

UNIT_TEST(any_end) {
  struct os_module_frames frames = own();
  size_t length = (size_t)(frames.end - frames.start);
  for (size_t kept = 0; kept < length; kept += kept < 64 ? 1 : 11 * STRIDE) {
    struct os_module_frames copy = copied(&frames, kept);
    find_all(&copy);
  }
}

UNIT_TEST(noise) {
  struct made made;
  uint64_t seed = UNIT_SEED;
  for (unsigned i = 0; i < 20000; i++) {
    struct program program = known[test_random(&seed) % 8].program;
    program.length = sizeof program.bytes;
    for (size_t at = 0; at < sizeof program.bytes; at++)
      program.bytes[at] = (unsigned char)test_random(&seed);
    make(&made, &usual_look, i % 2 ? &usual : &program, &program);
    struct cfi_rule rule;
    unsigned char *start = guarded.end - made.length;
    memcpy(start, made.bytes, made.length);
    struct os_module_frames bytes = {start, guarded.end, start, BASE - (uintptr_t)start};
    assert_true(cfi_find(&bytes, BASE + FUNCTION + i % 512, &rule));
  }
}

UNIT_MAIN()
