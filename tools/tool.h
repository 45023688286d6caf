/* tool.h: what the programs share: arguments, complaints, texts in JSON. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Call first, with what --help prints. If an argument before "--" asks for help, prints it and ends the program. */
void tool_begin(const char *name, const char *usage, int count, char *const *arguments);
/* Returns the exit status: `status`; where stdout could not be written, at least 1, after a complaint. */
int tool_end(int status);

/* Prints a line on stderr, in which %m stands for errno. Returns the status. */
__attribute__((format(printf, 2, 3))) int tool_complain(int status, const char *format, ...);
/* The same, and ends the program with the status. */
__attribute__((format(printf, 2, 3), noreturn)) void tool_fail(int status, const char *format, ...);
/* The same with a reference to --help, and the status 2. */
#define tool_refuse(format, ...) tool_fail(2, format "; see: %s --help", ##__VA_ARGS__, tool_name)
extern const char *tool_name;

/* An option sets `choice`, or `value` to what follows it: --name, --name value, --name=value. */
struct tool_option {
  const char *name; /* NULL: the end of a list */
  bool *choice;
  const char **value;
};
/* Takes options, and at most words_max other words. Returns how many words there are. Refuses what is left. */
int tool_words(char *const *arguments, const struct tool_option *options, const char **words, int words_max);

/* Parses a number from 0 to most. False: it is none. */
bool tool_number(const char *word, long most, long *out);
/* Parses a process id, or refuses it. */
long tool_pid(const char *word);

/* Returns "31.5 MiB" (inspect/figures.h), in one of eight static buffers, in turns. */
const char *tool_size(uint64_t bytes);
/* "3 d 4 h", "4 h 5 min", "5 min 6 s", "6.1 s", in one of the same buffers. */
const char *tool_duration(double seconds);

/* Prints a string of JSON; bytes that are not UTF-8 become U+FFFD. NULL: null. */
void tool_print_json(const char *text);

/* Prints a page of Markdown. In its tables whose first column is "name" or "option", which must be so many, the rows
 * are those that print_rows prints. */
void tool_print_page(const char *path, unsigned tables, void (*print_rows)(unsigned table));
