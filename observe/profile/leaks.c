#include "profile/leaks.h"

#include "base/text.h"
#include "inspect/module.h"
#include "os/say.h"
#include "profile/profile.h"
#include "profile/samples.h"

#define STACKS_SHOWN 20u
#define FRAMES_SHOWN 12u
#define PATH_BYTES 4096u

static SPARSE char line[PATH_BYTES + 64];

static void amount_text(struct text *text, struct sample_weight weight) {
  text_bytes(text, weight.bytes);
  text_string(text, " in ");
  text_decimal(text, (weight.objects_1024 + 512) / 1024);
  text_string(text, weight.objects_1024 < 1536 ? " block" : " blocks");
}

static void stack_report(const struct sample_stack *stack) {
  struct text text = TEXT_IN(line);
  text_string(&text, "hakmem:   ");
  amount_text(&text, stack->live);
  text_string(&text, " from\n");
  os_say(line);
  for (unsigned i = 0; i < stack->depth && i < FRAMES_SHOWN; i++) {
    text = TEXT_IN(line);
    os_module_frame(&text, sample_stack_addresses(stack)[i]);
    os_say(line);
  }
}

/* Finds the biggest stacks by insertion, because only a few are kept. */
static unsigned find_biggest(const struct samples *samples, const struct sample_stack *found[STACKS_SHOWN],
                             size_t *count) {
  unsigned kept = 0;
  size_t cursor = 0;
  *count = 0;
  for (const struct sample_stack *stack; (stack = samples_next(samples, &cursor)) != NULL;) {
    if (stack->live.bytes == 0)
      continue;
    ++*count;
    if (kept == STACKS_SHOWN && stack->live.bytes <= found[kept - 1]->live.bytes)
      continue;
    unsigned at = kept < STACKS_SHOWN ? kept++ : kept - 1;
    for (; at > 0 && found[at - 1]->live.bytes < stack->live.bytes; at--)
      found[at] = found[at - 1];
    found[at] = stack;
  }
  return kept;
}

void leaks_report(void) {
  struct samples copy = {0};
  uint64_t interval, start_ns;
  const struct sample_stack *found[STACKS_SHOWN];
  size_t count;
  char bytes[256];
  struct text text = TEXT_IN(bytes);
  if (!profile_copy(&copy, &interval, &start_ns)) {
    os_say("hakmem: no memory to say what is live at the end\n");
    return;
  }
  unsigned kept = find_biggest(&copy, found, &count);
  text_string(&text, "hakmem: live at the end: ");
  amount_text(&text, copy.live);
  text_string(&text, " from ");
  text_decimal(&text, count);
  text_strings(&text, count == 1 ? " stack" : " stacks", interval > 1 ? ", estimated by samples" : "");
  text_string(&text, count > kept ? "; the biggest:\n" : "\n");
  os_say(bytes);
  os_module_program_find();
  for (unsigned i = 0; i < kept; i++)
    stack_report(found[i]);
  samples_clear(&copy);
}
