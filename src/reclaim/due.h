/* due.h: whether there is work for a background thread (reclaim/background.h says when). Sums are read unlocked. */
#pragma once

#include "base/words.h"

/* Call at library start. from_frees: the thread may start at a free, because addresses tell the callers of free apart.
 * Otherwise it must be there before frees come (reclaim/background.h). */
void due_begin(bool from_frees);
bool due_from_frees(void);

/* Tells whether the program holds so much that free memory is a thread's work. */
bool due_holds_much(void);
/* Tells whether a thread is due. Call while there is none. */
bool due_is_now(void);
/* The reasons that hold however small the program is. */
bool due_in_small_program(void);
/* Tells whether the program is big. If not, it is asked again when it holds more. */
bool due_is_big(void);

/* Tells whether the program has so many threads that what they leave in their bins is a thread's work. Each may free
 * into its bins only, and end, and no slow path would tell. */
bool due_threads_are_many(void);

/* Makes a thread due, until one starts. */
void due_wish(bool is_wished);
/* Notes whether a thread has left work undone, and when the last one ended or was stopped. */
void due_set_undone(bool is_undone);
bool due_has_undone(void);
void due_note_end(void);
uint64_t due_end_ms(void);

/* Tells whether much was freed since the last due_note_freed. */
#define DUE_FREED_BYTES ((size_t)1 << 20)
bool due_freed_much(void);
void due_note_freed(void);
/* The thread was stopped: what is freed and taken from now on counts for the next start. */
void due_note_stop(void);
void due_in_child(void);
