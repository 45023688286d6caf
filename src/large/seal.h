/* seal.h: the ends of packed blocks that are checked at each free.
 *
 * A seal is the word behind the request (large/guarded.h), and at the block's end the bytes from the request's end on.
 * Requests are at least as long as the link of a deferred free, which must leave the word. The caller holds the lock of
 * the block, or is the only one who knows it. */
#pragma once

#include "base/words.h"

#define SEAL_BYTES (sizeof(uint64_t) + sizeof(uint32_t))
#define SEALED_BYTES_MIN sizeof(void *)

/* Seals a block of `bytes`, of which the request has `size`: from SEALED_BYTES_MIN up to bytes - SEAL_BYTES. */
void seal_set(char *block, size_t bytes, size_t size);

/* Returns the size of the request; 0 if the seal is broken. */
size_t seal_size(const char *block, size_t bytes);

/* Moves the seal of a block of `bytes` that gets `wanted` of them. What lies behind the shorter size is zero then. A
 * broken seal, or a change of the bytes that come to the block, ends the program. */
void seal_move(char *block, size_t bytes, size_t wanted, size_t size);

/* Ends the program if free bytes, of whole granules, were written after the free of `block`. */
void seal_check_is_zero(const char *block, const char *start, size_t bytes);
