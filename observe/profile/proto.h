/* proto.h: one message of protocol buffers, built in a fixed array. Who gives the array knows that the message fits;
 * what does not is left out.
 */
#ifndef HAK_PROFILE_PROTO_H
#define HAK_PROFILE_PROTO_H

#include "base/words.h"

#define PROTO_VARINT_BYTES_MAX 10u

struct proto {
  unsigned char *bytes;
  size_t capacity, length;
};
#define PROTO_IN(array) ((struct proto){.bytes = (array), .capacity = sizeof(array)})

/* A field that is a number; 0 is what a field that is left out is. */
void proto_number(struct proto *message, unsigned field, uint64_t value);
/* A field that is a list of numbers. */
void proto_numbers(struct proto *message, unsigned field, const uint64_t *values, size_t count);
/* Begins a field of so many bytes, a text or a message: they follow. */
void proto_head(struct proto *message, unsigned field, size_t length);
void proto_message(struct proto *message, unsigned field, const struct proto *inner);

#endif
