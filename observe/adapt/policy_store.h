/* policy_store.h: keeps what was learned from one run of a program to the next (adapt/policy_file.h).
 *
 * The file is read once, at program start, if `policy` is on. It is written at program end, if `policy` is evolving and
 * this process has learned something. Processes that share a file take turns (os_file_lock): one that ends
 * merges the file's content, and for each call site the entry with more epochs wins. So does the child of a fork, which
 * begins with what its parent knew. A file that is no policy file is never overwritten.
 */
#pragma once

#include "adapt/policy_file.h"
#include "inspect/file.h"

/* Call at program start and end. They say what is wrong on stderr (os/say.h), and return it, or "". */
const char *policy_store_read(void);
const char *policy_store_write(void);

/* Adds what this process knows by now, as a policy file, to a file that is begun. */
void policy_store_add_to(struct os_file_part *part);

/* Reads and opens a policy file. *found points into the bytes, of which there must be more than the file has. Returns
 * the words for *problem; NULL: it is in order. */
const char *policy_store_open(const char *path, void *bytes, size_t capacity, struct policy_file *found,
                              enum policy_file_error *problem);

void policy_store_in_child(void);
