/* The formats: Linux Standard Base (.eh_frame_hdr, .eh_frame) and DWARF 5, chapter 6.4. */
#include "profile/cfi.h"

#include "profile/cfi_program.h"

#define ENTRY_BYTES_MAX ((uint32_t)1 << 20)

/* --- how pointers are written --- */

enum {
  POINTER_ABSOLUTE = 0x00,
  POINTER_UNSIGNED = 0x01,
  POINTER_2 = 0x02,
  POINTER_4 = 0x03,
  POINTER_8 = 0x04,
  POINTER_SIGNED = 0x09,
  POINTER_SIGNED_2 = 0x0a,
  POINTER_SIGNED_4 = 0x0b,
  POINTER_SIGNED_8 = 0x0c,
  POINTER_FORMAT = 0x0f,
  POINTER_FROM_HERE = 0x10,
  POINTER_FROM_HEADER = 0x30,
  POINTER_BASE = 0x70,
  POINTER_INDIRECT = 0x80,
  POINTER_OMITTED = 0xff,
};

static uint64_t take_number(struct cfi_reader *reader, unsigned format) {
  switch (format) {
  case POINTER_UNSIGNED:
    return cfi_take_unsigned(reader);
  case POINTER_SIGNED:
    return (uint64_t)cfi_take_signed(reader);
  case POINTER_2:
    return cfi_take_fixed(reader, 2);
  case POINTER_SIGNED_2:
    return (uint64_t)(int16_t)cfi_take_fixed(reader, 2);
  case POINTER_4:
    return cfi_take_fixed(reader, 4);
  case POINTER_SIGNED_4:
    return (uint64_t)(int32_t)cfi_take_fixed(reader, 4);
  case POINTER_ABSOLUTE:
  case POINTER_8:
  case POINTER_SIGNED_8:
    return cfi_take_fixed(reader, 8);
  default:
    reader->is_short = true;
    return 0;
  }
}

/* A pointer that is stored elsewhere (POINTER_INDIRECT) is skipped. */
static uintptr_t take_pointer(struct cfi_reader *reader, unsigned encoding, const struct cfi_bytes *bytes) {
  uintptr_t base = 0;
  if (encoding == POINTER_OMITTED)
    return 0;
  if ((encoding & POINTER_BASE) == POINTER_FROM_HERE)
    base = (uintptr_t)reader->at + bytes->moved;
  else if ((encoding & POINTER_BASE) == POINTER_FROM_HEADER)
    base = (uintptr_t)bytes->header + bytes->moved;
  else if ((encoding & POINTER_BASE) != 0)
    reader->is_short = true;
  return base + take_number(reader, encoding & POINTER_FORMAT);
}

/* --- entries --- */

/* An FDE, with the CIE that several functions share. */
struct function {
  struct cfi_program program;
  uintptr_t size;
  unsigned pointers; /* their encoding */
  bool has_sizes;    /* augmentations begin with their length */
  bool is_signal;
};

/* Returns a reader for the content of the entry at `at`. */
static struct cfi_reader entry_at(const struct cfi_bytes *bytes, const unsigned char *at) {
  struct cfi_reader rest = {.at = at, .end = bytes->end};
  uint32_t length = (uint32_t)cfi_take_fixed(&rest, 4);
  struct cfi_reader entry = cfi_take_block(&rest, length);
  entry.is_short |= length == 0 || length > ENTRY_BYTES_MAX;
  return entry;
}

static void take_augmentation(struct cfi_reader *reader, const struct cfi_bytes *bytes, const char *letters,
                              struct function *function) {
  for (; *letters && !reader->is_short; letters++) {
    switch (*letters) {
    case 'R':
      function->pointers = cfi_take_byte(reader);
      break;
    case 'P':
      take_pointer(reader, cfi_take_byte(reader), bytes);
      break;
    case 'L':
      cfi_take_byte(reader);
      break;
    case 'S':
      function->is_signal = true;
      break;
    case 'B': /* the key that signs return addresses */
    case 'G': /* tagged stacks */
      break;
    default:
      reader->is_short = true;
    }
  }
}

/* Reads the CIE. */
static bool common_at(const struct cfi_bytes *bytes, const unsigned char *at, struct function *function) {
  struct cfi_reader reader = entry_at(bytes, at);
  *function = (struct function){.pointers = POINTER_ABSOLUTE};
  if (cfi_take_fixed(&reader, 4) != 0) /* not a common entry */
    return false;
  unsigned version = cfi_take_byte(&reader);
  const unsigned char *letters = reader.at;
  while (cfi_take_byte(&reader) != 0)
    ;
  if (reader.is_short || (version != 1 && version != 3 && version != 4))
    return false;
  if (version == 4 && cfi_take_fixed(&reader, 2) != sizeof(void *)) /* and no segments */
    return false;
  function->program.code_unit = cfi_take_unsigned(&reader);
  function->program.data_unit = cfi_take_signed(&reader);
  uint64_t return_register = version == 1 ? cfi_take_byte(&reader) : cfi_take_unsigned(&reader);
  function->has_sizes = *letters == 'z';
  if (function->has_sizes) {
    struct cfi_reader augmentation = cfi_take_block(&reader, cfi_take_unsigned(&reader));
    take_augmentation(&augmentation, bytes, (const char *)letters + 1, function);
    reader.is_short |= augmentation.is_short;
  } else if (*letters) {
    return false;
  }
  function->program.common = reader;
  return !reader.is_short && return_register == CFI_REGISTER_RETURN;
}

static bool function_at(const struct cfi_bytes *bytes, const unsigned char *at, struct function *function) {
  struct cfi_reader reader = entry_at(bytes, at);
  const unsigned char *here = reader.at;
  uint64_t back = cfi_take_fixed(&reader, 4);
  if (reader.is_short || back == 0 || back > (size_t)(here - bytes->start))
    return false;
  if (!common_at(bytes, here - back, function) || (function->pointers & POINTER_INDIRECT) != 0)
    return false;
  function->program.start = take_pointer(&reader, function->pointers, bytes);
  function->size = take_number(&reader, function->pointers & POINTER_FORMAT);
  if (function->has_sizes)
    cfi_take_block(&reader, cfi_take_unsigned(&reader));
  function->program.function = reader;
  return !reader.is_short;
}

/* --- .eh_frame_hdr: a table of functions, by address --- */

struct header {
  unsigned char version, section_pointer, count_format, table_format;
  int32_t section;
  uint32_t count;
};
struct place {
  int32_t start, entry; /* offsets from the header */
};
#define HEADER_VERSION 1

/* Returns the entry of the last function that starts at or before the place; NULL if there is none. */
static const unsigned char *entry_of(const struct cfi_bytes *bytes, uintptr_t place) {
  struct header header;
  size_t length = (size_t)(bytes->end - bytes->header);
  if (length < sizeof header)
    return NULL;
  memcpy(&header, bytes->header, sizeof header);
  const unsigned char *table = bytes->header + sizeof header;
  if (header.version != HEADER_VERSION || (header.section_pointer & 7) != POINTER_4 ||
      header.count_format != POINTER_4 || header.table_format != (POINTER_FROM_HEADER | POINTER_SIGNED_4) ||
      header.count > (length - sizeof header) / sizeof(struct place))
    return NULL;
  int64_t wanted = (int64_t)(place - ((uintptr_t)bytes->header + bytes->moved));
  struct place found;
  uint32_t low = 0, high = header.count; /* functions before low start at or before the place, from high on after it */
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    memcpy(&found, table + middle * sizeof found, sizeof found);
    if (found.start <= wanted)
      low = middle + 1;
    else
      high = middle;
  }
  if (low == 0)
    return NULL;
  memcpy(&found, table + (low - 1) * sizeof found, sizeof found);
  bool is_inside = found.entry < (bytes->end - bytes->header) && found.entry >= (bytes->start - bytes->header);
  return is_inside ? bytes->header + found.entry : NULL;
}

/* --- rules --- */

bool cfi_find(const struct cfi_bytes *bytes, uintptr_t place, struct cfi_rule *rule) {
  struct function function;
  const unsigned char *entry = entry_of(bytes, place);
  if (entry == NULL)
    return false;
  if (!function_at(bytes, entry, &function)) {
    *rule = (struct cfi_rule){.cfa = CFA_END};
    return true;
  }
  if (place - function.program.start >= function.size)
    return false;
  *rule = function.is_signal ? (struct cfi_rule){.cfa = CFA_SIGNAL} : cfi_program_rule(&function.program, place);
  return true;
}
