/* guarded.h: large objects between pages without access (the option `guard_pages`).
 *
 * Each is a mapping of its own. In front of it lies a unit or more without access, and behind its last page at least
 * one page. Up to that page's end, a word behind the request depends on the address and a secret. A freed object
 * loses its content and access. Its addresses wait until some others were freed, so that a use of it ends the program
 * by SIGSEGV. The pages of a short one stay, up to a bound, for the next object of its length. */
#pragma once

#include "large/record.h"

/* Tells whether new large objects are guarded. Call guarded_begin at program start if the option asks for it. */
extern bool guarded_is_on;
void guarded_begin(void);

/* The word behind an object or a packed block whose request ends there. Its lowest bit is set. Call guarded_words_begin
 * or guarded_begin before. */
uint64_t guarded_word(const char *end);
void guarded_words_begin(void);

/* guarded_bytes: returns the bytes from the object's begin to the end of its last unit. guarded_front: returns the
 * bytes without access in front of it. It returns 0 when a sixteenth of a limit of the system is held, because the
 * limit counts these bytes. */
size_t guarded_bytes(size_t size);
size_t guarded_front(size_t alignment);

/* Maps an object with its guards, zeroed, with the page map's leaf and row for its first unit. front: guarded_front's.
 * room: it may grow to so many bytes where it lies; until then what is behind it has no access. NULL when memory is
 * out. */
char *guarded_map(size_t size, size_t room, size_t alignment, size_t front);
/* Stores the size in the range's record, and writes the word behind the object. */
void guarded_set_size(struct large *range, size_t size);
/* The same for a live object that becomes longer or shorter where it lies. What it shows behind the shorter of both
 * sizes is zero. Pages that it leaves have no access. False: it has no room, or the system refuses; nothing changed. */
bool guarded_resize(struct large *range, size_t size);
/* Ends the program if the word behind the object was changed. */
void guarded_check(const struct large *range);
/* Takes content and access from a freed object. Its entry is ENTRY_LARGE_FREE, and some time later ENTRY_NONE, or
 * another object begins there. */
void guarded_end(const struct large *range);
/* Gives back the pages that stay for the next objects. Returns how many bytes. */
size_t guarded_trim(void);
