/* policy_view.h: what was learned, from a process or a file, for `hakmem-policy show`. */
#pragma once

#include "adapt/policy_state.h"
#include "tools/policy_disk.h"

struct policy_view {
  struct policy_record *records; /* from malloc, the most costly first */
  size_t record_count;
  struct policy_module modules[POLICY_MODULES];
  size_t module_count;
  struct policy_table_costs costs;
  struct policy_totals totals;
  size_t arms;
  bool is_process; /* else of a file */
  char writer[POLICY_FILE_WRITER_BYTES];
};

/* Ask a process with HAKMEM_LIVE=1, and read a file. They end the program if that fails. */
void policy_view_of_process(struct policy_view *view, long pid);
void policy_view_of_file(struct policy_view *view, const char *path);

void policy_view_print(const struct policy_view *view);
void policy_view_print_json(const struct policy_view *view);
void policy_view_end(struct policy_view *view);
