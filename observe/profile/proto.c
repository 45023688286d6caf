#include "profile/proto.h"

#include <string.h>

enum wire { WIRE_VARINT = 0, WIRE_LENGTH = 2 };

static void put_bytes(struct proto *message, const void *bytes, size_t length) {
  if (length > message->capacity - message->length)
    return;
  memcpy(message->bytes + message->length, bytes, length);
  message->length += length;
}

/* Seven bits per byte, the lowest first. The highest bit tells that more bytes follow. */
static size_t encode_varint(unsigned char out[PROTO_VARINT_BYTES_MAX], uint64_t value) {
  size_t length = 0;
  for (; value >= 0x80; value >>= 7)
    out[length++] = (unsigned char)(value | 0x80);
  out[length++] = (unsigned char)value;
  return length;
}

static void put_varint(struct proto *message, uint64_t value) {
  unsigned char bytes[PROTO_VARINT_BYTES_MAX];
  put_bytes(message, bytes, encode_varint(bytes, value));
}

static void put_tag(struct proto *message, unsigned field, enum wire wire) {
  put_varint(message, (uint64_t)field << 3 | wire);
}

void proto_number(struct proto *message, unsigned field, uint64_t value) {
  if (value == 0)
    return;
  put_tag(message, field, WIRE_VARINT);
  put_varint(message, value);
}

void proto_numbers(struct proto *message, unsigned field, const uint64_t *values, size_t count) {
  unsigned char bytes[PROTO_VARINT_BYTES_MAX];
  size_t length = 0;
  for (size_t i = 0; i < count; i++)
    length += encode_varint(bytes, values[i]);
  proto_head(message, field, length);
  for (size_t i = 0; i < count; i++)
    put_varint(message, values[i]);
}

void proto_head(struct proto *message, unsigned field, size_t length) {
  put_tag(message, field, WIRE_LENGTH);
  put_varint(message, length);
}

void proto_message(struct proto *message, unsigned field, const struct proto *inner) {
  proto_head(message, field, inner->length);
  put_bytes(message, inner->bytes, inner->length);
}

size_t proto_character_bytes(const char *at) {
  static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  const unsigned char *c = (const unsigned char *)at;
  if (*c < 0x80)
    return 1;
  if (*c < 0xc2 || *c > 0xf4)
    return 0;
  size_t length = *c >= 0xf0 ? 4 : *c >= 0xe0 ? 3 : 2;
  uint32_t code = *c & (0x7fu >> length);
  for (size_t i = 1; i < length; i++) {
    if ((c[i] & 0xc0) != 0x80)
      return 0;
    code = code << 6 | (c[i] & 0x3fu);
  }
  bool is_surrogate = code >= 0xd800 && code <= 0xdfff;
  return code >= least[length] && code <= 0x10ffff && !is_surrogate ? length : 0;
}
