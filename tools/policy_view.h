/* policy_view.h: what was learned, from a process or a file, for `hakmem-policy show`. */
#ifndef HAK_TOOLS_POLICY_VIEW_H
#define HAK_TOOLS_POLICY_VIEW_H

#include "adapt/policy_file.h"
#include "adapt/view.h"

enum { POLICY_VIEW_SENTENCE = 384 };

struct policy_view {
  struct policy_record *records; /* from malloc; total and total_acted up to the moment of the copy */
  size_t record_count;
  struct policy_module modules[LEARNED_MODULES];
  size_t module_count;
  struct site_costs costs;
  struct site_totals totals; /* those of arms that lost their place included */
  size_t arms, arms_displaced;
  size_t unsound;  /* arms left out because their content is impossible */
  bool is_process; /* else of a file */
  bool is_skewed;  /* the data changed all the time: each arm is whole, but of a slightly different moment */
  char writer[POLICY_FILE_WRITER_BYTES];
};

/* Reads the memory of a process, without stopping it or changing anything in it. False: `problem` says why. */
bool policy_view_of_process(struct policy_view *view, long pid, char problem[POLICY_VIEW_SENTENCE]);

bool policy_view_of_file(struct policy_view *view, const char *path, char problem[POLICY_VIEW_SENTENCE]);

void policy_view_print(const struct policy_view *view);
void policy_view_print_json(const struct policy_view *view);
void policy_view_end(struct policy_view *view);

#endif
