/* doctor_report.h: running the checks, and printing what they found. */
#ifndef HAK_TOOLS_DOCTOR_REPORT_H
#define HAK_TOOLS_DOCTOR_REPORT_H

#include "tools/doctor.h"

void doctor_run(struct doctor *doctor);
bool doctor_found_problem(void);
bool doctor_is_complete(void);
/* One line a finding, the worst first; with `all`, also what is in order. */
void doctor_print(bool all);
/* One object, with all of it. */
void doctor_print_json(const struct doctor *doctor);

#endif
