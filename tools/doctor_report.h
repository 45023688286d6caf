/* doctor_report.h: runs the checks and prints their findings. */
#pragma once

#include "tools/doctor.h"

void doctor_run(struct doctor *doctor);
bool doctor_found_problem(void);
bool doctor_is_complete(void);
/* Prints one line per finding, the worst first; with `all` also what is in order. */
void doctor_print(bool all);
/* Prints one JSON object with everything. */
void doctor_print_json(const struct doctor *doctor);
