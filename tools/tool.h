/* tool.h: what the programs share: arguments, complaints, texts in JSON, whole reads and writes. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Call first, with what --help prints. Returns true if an argument before "--" asks for help, which is then printed. */
bool tool_begin(const char *name, const char *usage, int count, char *const *arguments);
/* Returns the exit status: `status`; where stdout could not be written, at least 1, after a complaint. */
int tool_end(int status);

/* Prints a line on stderr, in which %m stands for errno. Returns the status. */
__attribute__((format(printf, 2, 3))) int tool_complain(int status, const char *format, ...);
/* The same, with a reference to --help. Returns 2. */
__attribute__((format(printf, 1, 2))) int tool_refuse(const char *format, ...);

/* Takes at most words_max arguments and the option --json, which is refused if is_json is NULL. Returns how many words
 * there are; -1 after a complaint. */
int tool_words(int count, char *const *arguments, const char **words, int words_max, bool *is_json);

/* Parses a number from 0 to most. False: it is none. */
bool tool_number(const char *word, long most, long *out);
/* Parses a process id. False after a complaint. */
bool tool_pid(const char *word, long *pid);

/* Prints a string of JSON; what is not printable ASCII becomes '?'. NULL: null. */
void tool_print_json(const char *text);

/* Reads a file, or stdin for "-", and appends a zero byte. NULL and errno if that fails or it has more than bytes_max
 * bytes. The caller frees the memory. */
char *tool_read(const char *path, size_t bytes_max, size_t *length);
/* Writes everything. False and errno if that fails. */
bool tool_write(int fd, const void *bytes, size_t length);
