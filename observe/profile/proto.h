/* proto.h: builds one message of protocol buffers in a fixed array. The caller provides an array that is large enough;
 * fields that do not fit are left out.
 */
#pragma once

#include "base/words.h"

#define PROTO_VARINT_BYTES_MAX 10u

struct proto {
  unsigned char *bytes;
  size_t capacity, length;
};
#define PROTO_IN(array) ((struct proto){.bytes = (array), .capacity = sizeof(array)})

/* Adds a number. 0 is the default of a missing field, so it is left out. */
void proto_number(struct proto *message, unsigned field, uint64_t value);
/* Adds a list of numbers. */
void proto_numbers(struct proto *message, unsigned field, const uint64_t *values, size_t count);
/* Begins a field of this many bytes, a text or a message. The bytes follow. */
void proto_head(struct proto *message, unsigned field, size_t length);
void proto_message(struct proto *message, unsigned field, const struct proto *inner);

/* Returns the bytes of the UTF-8 character at `at`; 0 if it is none. Texts are UTF-8. */
size_t proto_character_bytes(const char *at);
