/* soak.h: the --soak mode of the benchmark programs, for bench.c alone; the programs call bench_again.
 *
 * With --soak a program works round after round, and at the end of the first round after each full epoch one
 * line of CSV goes out. Everything here lives on the stack and uses system calls directly: the allocator under
 * test serves the workload and nothing else.
 */
#pragma once

#include <stdbool.h>
#include <stdio.h>

struct bench;

/* If argv[*at] is an option of this mode, reads it with its value into `bench`, moves *at to the value and says
 * true. Ends with status 2 on a bad value, and when the program does not work in rounds. */
bool soak_option(struct bench *bench, int argc, char **argv, int *at);
void soak_help(void);

/* Counts system calls from here on, those of threads that start later included; SIGINT and SIGTERM end the soak
 * with its round. To be called before the program starts threads. */
void soak_open(struct bench *bench);

/* The first epoch begins; prints the line of names. */
void soak_start(struct bench *bench);

/* Where the report belongs: stderr if the epochs are on stdout. */
FILE *soak_report_file(const struct bench *bench);
