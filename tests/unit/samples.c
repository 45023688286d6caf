/* samples: allocated, live and peak of every stack are what a plain reckoning of the same events gives, which looks at
 * all of them after each; what finds no memory is counted and harms nothing; stacks beyond the limit are one.
 *
 * The control: a reckoning that is one byte, object or event beside is told from it.
 */
#include "unit.h"

#include "profile/samples.h"

#define STACKS 40u
#define BLOCKS 1500u /* the first table is nearly full of them */
#define EVENTS 30000u

/* --- memory that runs out --- */

static struct {
  long first; /* the call of os_map that fails, and all after it; 0: none */
  bool alone; /* only that one */
  long calls;
} os;

TEST_WRAP(void *, os_map, size_t size, size_t alignment) {
  os.calls++;
  bool is_refused = os.first != 0 && (os.alone ? os.calls == os.first : os.calls >= os.first);
  return is_refused ? NULL : __real_os_map(size, alignment);
}

/* --- the reckoning --- */

struct stack_model {
  uintptr_t addresses[SAMPLES_DEPTH_MAX];
  unsigned depth;
  struct sample_weight allocated, live, peak;
};

struct block_model {
  unsigned stack; /* STACKS: free */
  struct sample_weight weight;
};

struct model {
  struct stack_model stacks[STACKS];
  struct block_model blocks[BLOCKS];
  uint64_t peak_bytes;
};

static char memory[2]; /* what blocks are is their address */

/* Scattered: some are looked for in the same place. */
static const void *block_at(unsigned number) {
  uint64_t seed = number;
  return (const void *)(uintptr_t)(test_random(&seed) >> 20 << 4);
}

/* Stacks that begin alike, end alike, or are another's beginning. */
static void model_begin(struct model *model) {
  uint64_t seed = UNIT_SEED;
  memset(model, 0, sizeof *model);
  for (unsigned i = 0; i < BLOCKS; i++)
    model->blocks[i].stack = STACKS;
  for (unsigned i = 0; i < STACKS; i++) {
    struct stack_model *stack = &model->stacks[i];
    stack->depth = i;
    for (unsigned at = 0; at < i; at++)
      stack->addresses[at] = i % 4 == 0 ? 0x1000 + at : test_random(&seed) >> 17;
  }
}

static void model_note(struct model *model, struct stack_model *stack, struct sample_weight weight, bool is_added) {
  if (is_added) {
    stack->allocated.bytes += weight.bytes;
    stack->allocated.objects_1024 += weight.objects_1024;
  }
  stack->live.bytes += is_added ? weight.bytes : -weight.bytes;
  stack->live.objects_1024 += is_added ? weight.objects_1024 : -weight.objects_1024;
  uint64_t live = 0;
  for (unsigned i = 0; i < STACKS; i++)
    live += model->stacks[i].live.bytes;
  if (live <= model->peak_bytes)
    return;
  model->peak_bytes = live;
  for (unsigned i = 0; i < STACKS; i++)
    model->stacks[i].peak = model->stacks[i].live;
}

static void model_remove(struct model *model, unsigned block) {
  struct block_model *b = &model->blocks[block];
  if (b->stack < STACKS)
    model_note(model, &model->stacks[b->stack], b->weight, false);
  b->stack = STACKS;
}

static void model_add(struct model *model, unsigned block, unsigned stack, struct sample_weight weight) {
  model_remove(model, block);
  model->blocks[block] = (struct block_model){stack, weight};
  model_note(model, &model->stacks[stack], weight, true);
}

static bool model_rename(struct model *model, unsigned from, unsigned to) {
  if (model->blocks[from].stack == STACKS)
    return false;
  if (from != to)
    model_remove(model, to);
  struct block_model moved = model->blocks[from];
  model->blocks[from].stack = STACKS;
  model->blocks[to] = moved;
  return true;
}

static bool is_same(struct sample_weight a, struct sample_weight b) {
  return a.bytes == b.bytes && a.objects_1024 == b.objects_1024;
}

static const struct sample_stack *stack_in(const struct samples *samples, const struct stack_model *model) {
  size_t cursor = 0;
  const struct sample_stack *found = NULL;
  for (const struct sample_stack *stack; (stack = samples_next(samples, &cursor)) != NULL;)
    if (stack != &samples->others && stack->depth == model->depth &&
        memcmp(sample_stack_addresses(stack), model->addresses, model->depth * sizeof(uintptr_t)) == 0) {
      assert_null(found); /* each is there once */
      found = stack;
    }
  return found;
}

/* Are these the samples of that reckoning? */
static bool agree(const struct samples *samples, const struct model *model) {
  bool agrees = samples->peak_bytes == model->peak_bytes;
  for (unsigned i = 0; i < STACKS; i++) {
    const struct stack_model *wanted = &model->stacks[i];
    const struct sample_stack *stack = stack_in(samples, wanted);
    if (stack == NULL)
      agrees &= wanted->allocated.bytes == 0;
    else
      agrees &= is_same(stack->allocated, wanted->allocated) && is_same(stack->live, wanted->live) &&
                is_same(samples_at_peak(samples, stack), wanted->peak);
  }
  return agrees;
}

/* --- tests --- */

static struct sample_weight weight_of(uint64_t *seed) {
  uint64_t bytes = 1 + test_random(seed) % 5000;
  return (struct sample_weight){bytes, 1024 + test_random(seed) % 4096};
}

/* One event for both. It tends to fill for a while, then to empty, so that the peak is set and left again and again. */
static void play(struct samples *samples, struct model *model, uint64_t *seed, unsigned event) {
  unsigned block = test_random(seed) % BLOCKS, other = test_random(seed) % BLOCKS;
  unsigned kind = test_random(seed) % 8, adds = event / 4000 % 2 ? 2 : 5;
  struct sample_weight weight = weight_of(seed);
  if (kind < adds) {
    unsigned stack = test_random(seed) % STACKS;
    assert_true(
        samples_add(samples, block_at(block), model->stacks[stack].addresses, model->stacks[stack].depth, weight));
    model_add(model, block, stack, weight);
  } else if (kind < 7) {
    assert_int_equal(samples_remove(samples, block_at(block)), model->blocks[block].stack < STACKS);
    model_remove(model, block);
  } else {
    other = test_random(seed) % 4 ? other : block;
    assert_int_equal(samples_rename(samples, block_at(block), block_at(other)), model_rename(model, block, other));
  }
}

static struct samples samples; /* of each test */

static int clear(void **unused) {
  samples_clear(&samples);
  return 0;
}
#define SAMPLES_TEST(test) UNIT_TEST_BETWEEN(test, NULL, clear)

SAMPLES_TEST(sums_and_peaks) {
  static struct model model;
  uint64_t seed = UNIT_SEED;
  unsigned peaks = 0;
  model_begin(&model);
  for (unsigned event = 0; event < EVENTS; event++) {
    uint64_t peak = model.peak_bytes;
    play(&samples, &model, &seed, event);
    peaks += model.peak_bytes > peak;
    if (event % 397 == 0) {
      assert_true(agree(&samples, &model));
      UNIT_VALID(samples_are_valid(&samples));
    }
  }
  assert_true(peaks > 100); /* and many events beside them */
  assert_true(agree(&samples, &model));
  samples_clear(&samples);
  assert_int_equal(samples_bytes(&samples), 0);
}

SAMPLES_TEST(a_difference_is_seen) {
  static struct model model, other;
  uint64_t seed = UNIT_SEED;
  model_begin(&model);
  for (unsigned event = 0; event < 1000; event++)
    play(&samples, &model, &seed, event);
  assert_true(agree(&samples, &model));
  for (unsigned stack = 0; stack < STACKS; stack += 3)
    for (unsigned figure = 0; figure < 6; figure++) {
      other = model;
      struct stack_model *s = &other.stacks[stack];
      struct sample_weight *weight = figure < 2 ? &s->allocated : figure < 4 ? &s->live : &s->peak;
      uint64_t *number = figure % 2 ? &weight->objects_1024 : &weight->bytes;
      ++*number;
      assert_false(agree(&samples, &other));
    }
  assert_true(samples_add(&samples, &samples, NULL, 0, (struct sample_weight){1, 1024}));
  assert_false(agree(&samples, &model));
}

/* The peak is the first moment of equals; what a stack had then is told whatever happened to it since. */
SAMPLES_TEST(the_first_of_equal_peaks) {
  const uintptr_t one[] = {1}, other[] = {2};
  samples_add(&samples, memory, one, 1, (struct sample_weight){10, 1024});
  samples_remove(&samples, memory);
  samples_add(&samples, memory, other, 1, (struct sample_weight){10, 2048});
  size_t cursor = 0;
  for (const struct sample_stack *stack; (stack = samples_next(&samples, &cursor)) != NULL;)
    assert_int_equal(samples_at_peak(&samples, stack).bytes, *sample_stack_addresses(stack) == 1 ? 10 : 0);
  assert_int_equal(samples.peak_bytes, 10);
}

/* So many that all share their bucket with others, and some have the same hash of 32 bits. */
SAMPLES_TEST(stacks_of_one_hash) {
  uint64_t seed = UNIT_SEED;
  const size_t count = 250000;
  for (size_t i = 0; i < count; i++) {
    uintptr_t address = test_random(&seed);
    samples_add(&samples, memory, &address, 1, (struct sample_weight){1, 1024});
  }
  size_t told = 0, cursor = 0;
  while (samples_next(&samples, &cursor))
    told++;
  assert_int_equal(told, count);
  assert_int_equal(samples.others.changed, 0);
}

SAMPLES_TEST(copies_stay) {
  static struct model model, kept;
  struct samples copy;
  uint64_t seed = UNIT_SEED;
  model_begin(&model);
  for (unsigned event = 0; event < 1100; event++) /* the peak is behind it */
    play(&samples, &model, &seed, event);
  assert_true(samples_copy_stacks(&copy, &samples));
  kept = model;
  for (unsigned event = 0; event < 1000; event++)
    play(&samples, &model, &seed, event);
  assert_true(agree(&copy, &kept));
  assert_false(agree(&copy, &model));
  samples_clear(&copy);
  assert_true(agree(&samples, &model));
  uint64_t next = 1; /* stacks of one address more, until there are two chunks, and two calls */
  for (; samples.chunk_count < 2; next++)
    samples_add(&samples, memory, &(uintptr_t){next << 32}, 1, (struct sample_weight){1, 1024});
  for (long call = 1; call <= 2; call++) {
    os.calls = 0;
    os.first = call;
    assert_false(samples_copy_stacks(&copy, &samples));
    assert_int_equal(samples_bytes(&copy), 0);
  }
  os.first = 0;
}

/* Addresses that follow each other fill the table in runs, over its end, too. */
SAMPLES_TEST(many_blocks) {
  const uintptr_t stack[] = {1, 2, 3};
  const struct sample_weight one = {1, 1024};
  const size_t count = 50000;
  for (size_t i = 1; i <= count; i++)
    assert_true(samples_add(&samples, (void *)(i * 16), stack, 3, one));
  size_t full = samples_bytes(&samples);
  assert_int_equal(samples.block_count, count);
  for (unsigned round = 0; round < 8; round++) /* as many come as go: nothing grows */
    for (size_t i = 1; i <= count; i += 2) {
      assert_true(samples_remove(&samples, (void *)((i + round * count) * 16)));
      assert_true(samples_add(&samples, (void *)((i + (round + 1) * count) * 16), stack, 3, one));
    }
  assert_int_equal(samples_bytes(&samples), full);
  UNIT_VALID(samples_are_valid(&samples));
  for (size_t i = 2; i <= count; i += 2)
    assert_true(samples_remove(&samples, (void *)(i * 16)));
  for (size_t i = 1; i <= count; i += 2) {
    assert_false(samples_remove(&samples, (void *)(i * 16)));
    assert_true(samples_remove(&samples, (void *)((i + 8 * count) * 16)));
  }
  assert_int_equal(samples.block_count, 0);
  assert_int_equal(samples.live.bytes, 0);
  assert_int_equal(samples.peak_bytes, count);
}

/* Onto one that is still there, whose place may be the one before. */
SAMPLES_TEST(renamed_to_another) {
  const uintptr_t stack[] = {1};
  const struct sample_weight one = {1, 1024}, two = {2, 1024};
  for (unsigned i = 0; i < 200 * 200; i++) {
    const void *a = block_at(i % 200), *b = block_at(200 + i / 200);
    samples_add(&samples, a, stack, 1, one);
    samples_add(&samples, b, stack, 1, two);
    assert_true(samples_rename(&samples, b, a));
    assert_int_equal(samples.block_count, 1);
    assert_int_equal(samples.live.bytes, 2);
    assert_false(samples_remove(&samples, b));
    assert_true(samples_remove(&samples, a));
  }
  assert_int_equal(samples.live.bytes, 0);
}

SAMPLES_TEST(deep_stacks_are_cut) {
  uintptr_t stack[100];
  for (unsigned i = 0; i < 100; i++)
    stack[i] = 1000 + i;
  assert_true(samples_add(&samples, memory, stack, 100, (struct sample_weight){5, 1024}));
  assert_true(samples_add(&samples, memory + 1, stack, SAMPLES_DEPTH_MAX, (struct sample_weight){6, 1024}));
  size_t cursor = 0;
  const struct sample_stack *only = UNIT_GOT(samples_next(&samples, &cursor));
  assert_null(samples_next(&samples, &cursor));
  assert_int_equal(only->depth, SAMPLES_DEPTH_MAX);
  assert_int_equal(only->live.bytes, 11);
  assert_memory_equal(sample_stack_addresses(only), stack, SAMPLES_DEPTH_MAX * sizeof *stack);
}

/* The sum over all stacks, the others among them. */
static struct sample_weight allocated_in(const struct samples *samples) {
  struct sample_weight allocated = {0};
  size_t cursor = 0;
  for (const struct sample_stack *stack; (stack = samples_next(samples, &cursor)) != NULL;) {
    allocated.bytes += stack->allocated.bytes;
    allocated.objects_1024 += stack->allocated.objects_1024;
  }
  return allocated;
}

SAMPLES_TEST(what_finds_no_room_is_one_stack) {
  uintptr_t stack[SAMPLES_DEPTH_MAX] = {0};
  const struct sample_weight one = {1, 1024};
  uint64_t n = 0;
  while (samples.others.changed == 0) {
    stack[n % SAMPLES_DEPTH_MAX] += n + 1;
    assert_true(samples_add(&samples, memory, stack, SAMPLES_DEPTH_MAX, one));
    n++;
  }
  assert_true(n > 50000);
  size_t block_bytes = samples_bytes(&(struct samples){.block_capacity = samples.block_capacity});
  assert_in_range(samples_bytes(&samples) - block_bytes, SAMPLES_STACK_BYTES_MAX / 2, SAMPLES_STACK_BYTES_MAX);
  for (unsigned i = 0; i < 1000; i++) {
    stack[0]++;
    assert_true(samples_add(&samples, memory, stack, SAMPLES_DEPTH_MAX, one));
  }
  assert_int_equal(allocated_in(&samples).bytes, n + 1000);
  assert_int_equal(samples.others.allocated.bytes, 1001);
  assert_int_equal(samples.others.live.bytes, 1);
  UNIT_VALID(samples_are_valid(&samples));
}

/* Each call of os_map fails once, alone or with all that follow. What is offered is recorded or dropped. */
SAMPLES_TEST(memory_runs_out) {
  uint64_t dropped = 0, others = 0;
  for (unsigned run = 0; run < 30; run++) {
    uint64_t seed = UNIT_SEED, offered = 0;
    os.calls = 0;
    os.first = 1 + run / 2;
    os.alone = run % 2;
    for (unsigned i = 1; i <= 8000; i++) {
      uintptr_t stack[60] = {test_random(&seed) % 5000};
      struct sample_weight weight = {1 + test_random(&seed) % 100, 1024};
      samples_add(&samples, (void *)(uintptr_t)(i * 16), stack, 60, weight);
      offered += weight.bytes;
      if (i % 4 == 0)
        samples_remove(&samples, (void *)(uintptr_t)(test_random(&seed) % i * 16));
      if (i % 64 == 0)
        samples_rename(&samples, (void *)(uintptr_t)(i * 16), (void *)(uintptr_t)(i * 16 + 8));
    }
    assert_int_equal(allocated_in(&samples).bytes, samples.allocated.bytes);
    assert_int_equal(samples.allocated.bytes + samples.dropped.bytes, offered);
    dropped += samples.dropped.bytes;
    others += samples.others.allocated.bytes;
    UNIT_VALID(samples_are_valid(&samples));
    samples_clear(&samples);
  }
  os.first = 0;
  assert_true(dropped > 0 && others > 0);
}

SAMPLES_TEST(what_is_not_there) {
  size_t cursor = 0;
  assert_false(samples_remove(&samples, memory));
  assert_false(samples_rename(&samples, memory, memory + 1));
  assert_null(samples_next(&samples, &cursor));
  assert_true(samples_add(&samples, memory, NULL, 0, (struct sample_weight){1, 1024}));
  assert_false(samples_remove(&samples, NULL));
  assert_false(samples_remove(&samples, memory + 1));
  assert_false(samples_add(&samples, NULL, NULL, 0, (struct sample_weight){1, 1024}));
  assert_int_equal(samples.dropped.bytes, 1);
}

UNIT_MAIN()
