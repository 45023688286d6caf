/* Commits crimes (crimes.h), each in a child, and holds what happens against a table.
 *
 *   misuse all|CRIME         judges the children: the right sentence, or the silence that docs/security.md admits
 *   misuse CRIME --commit    commits it here, to be looked at in a debugger
 *   misuse all --count       prints what happens with each, on any allocator
 *
 * A sentence must be all that the child writes on stderr, and the child must end by SIGABRT. */

#include "../child.h"
#include "crimes.h"

#define SMALL 40
#define MEDIUM 10000
#define LARGE (3 * MIB)

/* What the table expects, and what a child was seen to do. */
enum outcome {
  MISSED,     /* nothing happened to the program: not caught */
  NO_EFFECT,  /* the crime had no effect */
  DOUBLE,     /* from here to SIZED: the sentence */
  INSIDE,     /* not the start of a block */
  NO_BLOCK,   /* hakmem's memory, but no block */
  FREED_PART, /* DOUBLE or NO_BLOCK: it depends on whether the range is cached */
  FREED_USED, /* the same, or MISSED: a slab of another thread may lie there by then */
  FOREIGN,    /* not hakmem's */
  FOREIGN_RE, /* the same, of realloc */
  WRITTEN,    /* after its free */
  BEYOND,     /* written beyond the block's end */
  SIZED,      /* of another size than delete was told */
  FAULT,      /* SIGSEGV or SIGBUS */
  BY_CHANCE,  /* it depends on what lies there: missed, without effect, FAULT, or a write is noticed */
  OTHER_END   /* anything else: another allocator's message, a failed CHECK */
};

static const char *const sentences[OTHER_END + 1] = {
    [DOUBLE] = "hakmem: double free of block 0x%lx\n",
    [INSIDE] = "hakmem: free of 0x%lx, which is not the start of a block\n",
    [NO_BLOCK] = "hakmem: free of 0x%lx, which lies in hakmem memory that holds no block\n",
    [FOREIGN] = "hakmem: free of 0x%lx, which hakmem did not allocate\n",
    [FOREIGN_RE] = "hakmem: realloc of 0x%lx, which hakmem did not allocate\n",
    [WRITTEN] = "hakmem: write to block 0x%lx after its free\n",
    [BEYOND] = "hakmem: write beyond the end of block 0x%lx\n",
    [SIZED] = "hakmem: delete of block 0x%lx with the size of another block\n",
};

/* No crime. */
static void go_straight(void) {
  static const size_t sizes[] = {1, 100, 1000, 100000, 3000000};
  for (int i = 0; i < 5; i++) {
    char *block = t_malloc(sizes[i]);
    block = t_realloc(block, sizes[i] * 2);
    test_thread_run(free_in_thread, block);
    t_free(t_malloc(sizes[i]));
    t_free(t_aligned_alloc(4096, 8192));
    t_trim(0);
  }
  t_free(NULL);
}
static enum verdict innocent(size_t size) {
  go_straight();
  go_on(size);
  return UNNOTICED;
}

/* For each size, what happens in the preset `balanced`, and in `secure`. */
#define ONE_OF(text, commit, size, balanced, secure) {text, commit, size, balanced, secure}
#define EACH(name, S, S_secure, M, M_secure, L, L_secure)                                                              \
  ONE_OF(#name "_small", name, SMALL, S, S_secure), ONE_OF(#name "_medium", name, MEDIUM, M, M_secure),                \
      ONE_OF(#name "_large", name, LARGE, L, L_secure)
#define ENDS(name, S, S_secure, L, L_secure)                                                                           \
  ONE_OF(#name "_small", name, SMALL, S, S_secure), ONE_OF(#name "_large", name, LARGE, L, L_secure)
#define ONE(name, S, S_secure) ONE_OF(#name, name, SMALL, S, S_secure)
/* clang-format off */
static const struct crime {
  const char *name;
  crime_function *commit;
  size_t size;
  enum outcome balanced, secure;
} crimes[] = {
    EACH(write_over_1, MISSED, BEYOND, MISSED, BEYOND, MISSED, FAULT),
    EACH(write_over_32, MISSED, BEYOND, MISSED, BEYOND, MISSED, FAULT),
    EACH(write_over_mib, BY_CHANCE, BY_CHANCE, BY_CHANCE, BY_CHANCE, BY_CHANCE, BY_CHANCE),
    EACH(write_over_nul, MISSED, BEYOND, MISSED, BEYOND, MISSED, FAULT),
    EACH(write_under_1, MISSED, BY_CHANCE, MISSED, BY_CHANCE, MISSED, FAULT),
    EACH(write_under_32, MISSED, BY_CHANCE, MISSED, BY_CHANCE, MISSED, FAULT),
    EACH(write_under_mib, BY_CHANCE, BY_CHANCE, BY_CHANCE, BY_CHANCE, BY_CHANCE, BY_CHANCE),
    EACH(write_over_then_realloc, MISSED, BEYOND, MISSED, BEYOND, MISSED, FAULT),
    EACH(read_over_32, MISSED, MISSED, MISSED, MISSED, MISSED, FAULT),
    EACH(read_over_mib, BY_CHANCE, BY_CHANCE, BY_CHANCE, BY_CHANCE, BY_CHANCE, BY_CHANCE),
    EACH(double_at_once, DOUBLE, DOUBLE, DOUBLE, DOUBLE, DOUBLE, DOUBLE),
    EACH(double_interleaved, DOUBLE, DOUBLE, DOUBLE, DOUBLE, FREED_PART, DOUBLE),
    EACH(double_delayed, DOUBLE, DOUBLE, FREED_PART, DOUBLE, FREED_PART, DOUBLE),
    EACH(double_after_trim, DOUBLE, DOUBLE, DOUBLE, DOUBLE, FREED_PART, DOUBLE),
    EACH(double_after_reuse, MISSED, DOUBLE, MISSED, DOUBLE, MISSED, DOUBLE),
    EACH(double_other_thread, DOUBLE, DOUBLE, DOUBLE, DOUBLE, FREED_USED, DOUBLE),
    ENDS(double_by_strangers, DOUBLE, DOUBLE, FREED_PART, DOUBLE),
    EACH(double_by_realloc, DOUBLE, DOUBLE, DOUBLE, DOUBLE, FREED_PART, DOUBLE),
    ENDS(realloc_in_place_of_freed, MISSED, DOUBLE, FREED_PART, DOUBLE),
    EACH(free_inside_1, INSIDE, INSIDE, INSIDE, INSIDE, INSIDE, INSIDE),
    EACH(free_inside_16, INSIDE, INSIDE, INSIDE, INSIDE, INSIDE, INSIDE),
    EACH(free_inside_middle, INSIDE, INSIDE, INSIDE, INSIDE, INSIDE, INSIDE),
    ENDS(free_before, INSIDE, INSIDE, INSIDE, FOREIGN),
    EACH(free_inside_other_thread, INSIDE, INSIDE, INSIDE, INSIDE, INSIDE, INSIDE),
    EACH(realloc_inside, INSIDE, INSIDE, INSIDE, INSIDE, INSIDE, INSIDE),
    ONE(free_stack, FOREIGN, FOREIGN),
    ONE(free_stack_odd, FOREIGN, FOREIGN),
    ONE(free_static, FOREIGN, FOREIGN),
    ONE(free_static_odd, FOREIGN, FOREIGN),
    ONE(free_code, FOREIGN, FOREIGN),
    ONE(free_mapping, FOREIGN, FOREIGN),
    ONE(free_unmapped, FOREIGN, FOREIGN),
    ONE(free_low, FOREIGN, FOREIGN),
    ONE(free_far, FOREIGN, FOREIGN),
    ONE(free_beyond, FOREIGN, FOREIGN),
    ONE(free_empty_place, NO_BLOCK, NO_BLOCK),
    ONE(realloc_stack, FOREIGN_RE, FOREIGN_RE),
    ONE(realloc_static, FOREIGN_RE, FOREIGN_RE),
    ENDS(usable_size_of_freed, MISSED, NO_EFFECT, NO_EFFECT, NO_EFFECT),
    EACH(write_freed_start, MISSED, WRITTEN, MISSED, WRITTEN, MISSED, FAULT),
    EACH(write_freed_middle, MISSED, WRITTEN, MISSED, WRITTEN, MISSED, FAULT),
    EACH(write_freed_reused, MISSED, BY_CHANCE, MISSED, BY_CHANCE, MISSED, FAULT),
    EACH(read_freed, MISSED, NO_EFFECT, MISSED, NO_EFFECT, MISSED, FAULT),
    EACH(read_stale, MISSED, NO_EFFECT, MISSED, NO_EFFECT, MISSED, NO_EFFECT),
    EACH(read_stale_realloc, MISSED, NO_EFFECT, MISSED, NO_EFFECT, MISSED, NO_EFFECT),
    ONE(nothing_write, MISSED, MISSED),
    ONE(nothing_read, MISSED, MISSED),
    EACH(reuse_at_once, MISSED, NO_EFFECT, MISSED, NO_EFFECT, MISSED, NO_EFFECT),
    ONE(place_foreseen, MISSED, NO_EFFECT),
    ENDS(delete_as_less, MISSED, SIZED, SIZED, SIZED),
    ENDS(delete_as_more, MISSED, SIZED, SIZED, SIZED),
    ONE(delete_as_aligned, MISSED, MISSED),
    ONE(innocent, MISSED, MISSED),
};
/* clang-format on */
#define CRIME_COUNT (sizeof crimes / sizeof *crimes)

/* The core has no operators; a sanitizer's may be there. */
#ifdef TEST_CORE
#define HAS_OPERATORS false
#else
#define HAS_OPERATORS (cxx_new != NULL && cxx_delete_sized != NULL)
#endif
static bool can_be_committed(const struct crime *crime) {
  return strncmp(crime->name, "delete_", 7) != 0 || HAS_OPERATORS;
}

#define TELL_FD 9 /* of a child that was executed */

static int tell_pipe[2] = {-1, TELL_FD};

static void tell_judge(const void *address) {
  CHECK(write(tell_pipe[1], &address, sizeof address) == (ssize_t)sizeof address);
}

static void tell_nobody(const void *address) {}

#define HARMLESS_STATUS 10
#define NOT_COMMITTED_STATUS 77 /* as test_skip's */

/* What a child did, and wrote. */
struct seen {
  int status;
  uintptr_t address;
  char said[4096];
};

static unsigned patience_s = 20;

static void commit_and_tell(void *argument) {
  const struct crime *crime = argument;
  alarm(patience_s);
  signal(SIGSEGV, SIG_DFL); /* sanitizers have handlers that say something */
  signal(SIGBUS, SIG_DFL);
  tell = tell_judge;
  if (getenv("HAKMEM_PROFILE")) { /* a program with options speaks on the stderr that it began with */
    CHECK(dup2(tell_pipe[1], TELL_FD) == TELL_FD);
    execl("/proc/self/exe", "misuse", crime->name, "--commit", (char *)NULL);
    _exit(NOT_COMMITTED_STATUS);
  }
  _exit(crime->commit(crime->size) == HARMLESS ? HARMLESS_STATUS : 0);
}

static void commit_in_child(const struct crime *crime, struct seen *seen) {
  CHECK(pipe(tell_pipe) == 0);
  seen->address = 0;
  seen->status = test_child_says(commit_and_tell, (void *)(uintptr_t)crime, seen->said, sizeof seen->said);
  close(tell_pipe[1]);
  while (read(tell_pipe[0], &seen->address, sizeof seen->address) > 0)
    ; /* the last one counts */
  close(tell_pipe[0]);
}

static bool says(const struct seen *seen, enum outcome outcome) {
  char expected[256];
  if (outcome == FREED_PART)
    return says(seen, DOUBLE) || says(seen, NO_BLOCK);
  if (sentences[outcome] == NULL)
    return false;
  snprintf(expected, sizeof expected, sentences[outcome], (unsigned long)seen->address);
  return WIFSIGNALED(seen->status) && WTERMSIG(seen->status) == SIGABRT && strcmp(seen->said, expected) == 0;
}

static enum outcome outcome_of(const struct seen *seen) {
  if (WIFEXITED(seen->status) && *seen->said == 0)
    return WEXITSTATUS(seen->status) == 0                 ? MISSED
           : WEXITSTATUS(seen->status) == HARMLESS_STATUS ? NO_EFFECT
                                                          : OTHER_END;
  if (WIFSIGNALED(seen->status) && (WTERMSIG(seen->status) == SIGSEGV || WTERMSIG(seen->status) == SIGBUS))
    return FAULT;
  for (int outcome = DOUBLE; outcome < FAULT; outcome++)
    if (outcome != FREED_PART && outcome != FREED_USED && says(seen, (enum outcome)outcome))
      return (enum outcome)outcome;
  return OTHER_END;
}

static bool is_as_expected(const struct seen *seen, enum outcome expected) {
  enum outcome outcome = outcome_of(seen);
  if (expected == BY_CHANCE) /* it may have hit what is hakmem's, which ends as it happens */
    return outcome != OTHER_END || WIFSIGNALED(seen->status);
  if (expected == FREED_USED && outcome == MISSED)
    return true;
  return expected == FREED_PART || expected == FREED_USED ? says(seen, FREED_PART) : outcome == expected;
}

static const char *const names[] = {[MISSED] = "missed",
                                    [NO_EFFECT] = "no effect",
                                    [DOUBLE] = "double free",
                                    [INSIDE] = "no block",
                                    [NO_BLOCK] = "no block here",
                                    [FREED_PART] = "-",
                                    [FREED_USED] = "-",
                                    [FOREIGN] = "foreign",
                                    [FOREIGN_RE] = "foreign",
                                    [WRITTEN] = "written after free",
                                    [BEYOND] = "overflow",
                                    [SIZED] = "size mismatch",
                                    [FAULT] = "fault",
                                    [BY_CHANCE] = "-",
                                    [OTHER_END] = "other message"};

/* Prints what happens with each crime, and how many are not caught; what has no end is not. */
static int count(const char *which) {
  unsigned missed = 0, harmless = 0, all = 0;
  patience_s = 5; /* on some allocators, several have no end */
  for (size_t i = 0; i < CRIME_COUNT; i++) {
    static struct seen seen;
    if (!can_be_committed(&crimes[i]) || crimes[i].commit == innocent ||
        (strcmp(which, "all") != 0 && strcmp(which, crimes[i].name) != 0))
      continue;
    commit_in_child(&crimes[i], &seen);
    enum outcome outcome = outcome_of(&seen);
    CHECK_SAY(!WIFEXITED(seen.status) || WEXITSTATUS(seen.status) != NOT_COMMITTED_STATUS, "%s: %s", crimes[i].name,
              seen.said);
    bool has_no_end = WIFSIGNALED(seen.status) && WTERMSIG(seen.status) == SIGALRM;
    all++;
    missed += outcome == MISSED || has_no_end;
    harmless += outcome == NO_EFFECT;
    printf("%-32s %s\n", crimes[i].name, has_no_end ? "no end" : names[outcome]);
  }
  printf("%u of %u not caught, %u had no effect\n", missed, all, harmless);
  return 0;
}

static bool is_secure(void) {
  const char *profile = getenv("HAKMEM_PROFILE");
  return profile != NULL && strcmp(profile, "secure") == 0;
}

static void judge(const struct crime *crime) {
  static struct seen seen;
  enum outcome expected = is_secure() ? crime->secure : crime->balanced;
  commit_in_child(crime, &seen);
  CHECK_SAY(is_as_expected(&seen, expected), "%s: status 0x%x, address 0x%lx, stderr: %s, expected: %s", crime->name,
            seen.status, (unsigned long)seen.address, seen.said,
            sentences[expected] ? sentences[expected] : names[expected]);
}

int main(int argc, char **argv) {
  CHECK(argc > 1);
  if (argc > 2 && strcmp(argv[2], "--count") == 0)
    return count(argv[1]);
  bool is_commit = argc > 2 && strcmp(argv[2], "--commit") == 0;
#ifndef TEST_CORE
  test_skip_if(!is_commit && !getenv("TEST_EXPECT_HAKMEM"), "the sentences are hakmem's");
#endif
  test_begin(argc, argv);
#ifdef TEST_CORE
  CHECK(hak_option_set("foreign", "abort") == 0); /* beside libc's malloc it is ignore */
#endif
  bool is_found = false;
  for (size_t i = 0; i < CRIME_COUNT; i++) {
    if (!can_be_committed(&crimes[i]) || (strcmp(argv[1], "all") != 0 && strcmp(argv[1], crimes[i].name) != 0))
      continue;
    is_found = true;
    if (is_commit) {
      tell = fcntl(TELL_FD, F_GETFD) >= 0 ? tell_judge : tell_nobody;
      return crimes[i].commit(crimes[i].size) == HARMLESS ? HARMLESS_STATUS : 0;
    } else {
      judge(&crimes[i]);
    }
  }
  CHECK_SAY(is_found, "no crime of that name");
}
