/* due.h: when a background thread is due, by what the program holds and has freed since the last one. background.h says
 * when that is. No lock: the sums are read while other threads change them, and the next look corrects an error. */
#pragma once

#include "base/words.h"

/* Call once at library start. from_frees: a free may start the thread. If not, it starts before anything is freed. */
void due_prepare(bool from_frees);

/* Tells whether a thread is due. Call at the end of a slow path, while there is none. It prepares the next look: a
 * program that holds much counts its frees from now on, and what a small one freed is forgotten. */
bool due_look(void);
/* Tells whether one is due however small the program is. */
bool due_in_small_program(void);
/* The held bytes alone make no program big, because slabs that are open and hardly used count. So the resident bytes
 * decide. If they are few, the thread is due when the program holds more. Opens files. */
bool due_is_big(void);
/* Tells whether the program holds so much that free memory is the thread's work. */
bool due_holds_much(void);

/* Tells whether the program has so many threads that they may leave much in their bins, unnoticed. */
bool due_has_many_threads(void);

/* Tells whether the program has freed much since the last call of due_note_freed. */
bool due_has_freed_much(void);
void due_note_freed(void);

/* The next look finds a thread due (false: not for this reason). */
void due_wish(bool is_wished);
/* The thread was stopped, or may be, with work left. */
void due_set_undone(bool is_undone);
bool due_is_undone(void);

/* Call when the thread ends, or could not start. */
void due_note_end(void);
uint64_t due_last_end_ms(void);
/* Call when a thread may start again after it was stopped. */
void due_note_stopped(void);
void due_in_child(void);
