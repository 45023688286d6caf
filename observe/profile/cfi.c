/* The formats: Linux Standard Base (.eh_frame_hdr, .eh_frame) and DWARF 5, chapter 6.4. */
#include "profile/cfi.h"

#include "profile/cfi_reader.h"

#define ENTRY_BYTES_MAX ((uint32_t)1 << 20)

/* --- how pointers are written --- */

/* Two parts: how the number is written, and what it is added to. */
enum {
  POINTER_SEVENS = 0x01, /* as a number of any length */
  POINTER_4 = 0x03,
  POINTER_SIZE = 0x07, /* the bits that tell the size */
  POINTER_SIGNED = 0x08,
  POINTER_FORMAT = 0x0f,
  POINTER_FROM_HERE = 0x10,
  POINTER_FROM_HEADER = 0x30,
  POINTER_BASE = 0x70,
  POINTER_INDIRECT = 0x80,
  POINTER_OMITTED = 0xff,
};

static uint64_t take_number(struct cfi_reader *reader, unsigned format) {
  static const unsigned char sizes[POINTER_SIZE + 1] = {8, 0, 2, 4, 8}; /* 0: none, or of any length */
  unsigned size = sizes[format & POINTER_SIZE];
  bool is_signed = format & POINTER_SIGNED;
  if ((format & POINTER_SIZE) == POINTER_SEVENS)
    return is_signed ? (uint64_t)cfi_take_signed(reader) : cfi_take_unsigned(reader);
  if (size == 0 || format == POINTER_SIGNED) {
    reader->is_short = true;
    return 0;
  }
  uint64_t value = cfi_take_fixed(reader, size);
  unsigned above = 64 - 8 * size;
  return is_signed ? (uint64_t)((int64_t)(value << above) >> above) : value;
}

/* A pointer that is stored elsewhere (POINTER_INDIRECT) is skipped. */
static uintptr_t take_pointer(struct cfi_reader *reader, unsigned encoding, const struct os_module_frames *bytes) {
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

/* --- programs: they say for each instruction of a function where it keeps its caller's registers --- */

#define REMEMBERED_MAX 8u

struct program {
  struct cfi_reader common, function; /* one runs after the other */
  uint64_t code_unit;
  int64_t data_unit;
  uintptr_t start; /* of the function */
};

/* Where the caller's value of a register is. */
struct saved {
  enum cfi_fp kind;
  int64_t offset;
};
enum base { BASE_UNKNOWN, BASE_REGISTER, BASE_STORED };
struct row {
  enum base base;
  uint64_t base_register;
  int64_t base_offset;
  struct saved fp, link, other; /* link: the return address; other: a register that no caller is found by */
};

struct machine {
  const struct program *program;
  uintptr_t place, reached;
  struct row row, initial;
  struct row remembered[REMEMBERED_MAX];
  unsigned remembered_count;
  struct cfi_reader block; /* the expression of this instruction */
  bool is_lost;            /* met something that this machine does not support */
};

static struct saved *saved_in(struct row *row, uint64_t number) {
  return number == CFI_REGISTER_FP ? &row->fp : number == CFI_REGISTER_RETURN ? &row->link : &row->other;
}

enum {
  EXPRESSION_REGISTER_0 = 0x70, /* and 31 more: register + number */
  EXPRESSION_DEREFERENCE = 0x06,
  EXPRESSION_LITERAL_0 = 0x30,
};

/* Register + number: compilers write only this expression and the next one. */
static bool take_sum(struct cfi_reader *block, uint64_t *number, int64_t *offset) {
  unsigned operation = cfi_take_byte(block);
  if (operation < EXPRESSION_REGISTER_0 || operation > EXPRESSION_REGISTER_0 + 31)
    return false;
  *number = operation - EXPRESSION_REGISTER_0;
  *offset = cfi_take_signed(block);
  return !block->is_short;
}

/* For the procedure linkage table linkers write: sp + 8 + ((place & 15) >= byte) * 8. From a certain byte of each
 * 16-byte entry on, the stack holds one word more. */
static bool is_linkage_table(struct cfi_reader block, uintptr_t place, int64_t *offset) {
#if defined(__x86_64__)
  static const unsigned char before[] = {0x77, 0x08, 0x80, 0x00, 0x3f, 0x1a}, after[] = {0x2a, 0x33, 0x24, 0x22};
  size_t length = (size_t)(block.end - block.at);
  if (length != sizeof before + 1 + sizeof after || memcmp(block.at, before, sizeof before) != 0 ||
      memcmp(block.at + sizeof before + 1, after, sizeof after) != 0)
    return false;
  unsigned byte = block.at[sizeof before] - (unsigned)EXPRESSION_LITERAL_0;
  *offset = 8 + ((place & 15) >= byte ? 8 : 0);
  return byte < 16;
#else
  (void)block, (void)place, (void)offset;
  return false;
#endif
}

static void base_by_expression(struct machine *machine) {
  struct row *row = &machine->row;
  struct cfi_reader block = machine->block;
  row->base = BASE_UNKNOWN;
  if (block.is_short)
    return;
  if (is_linkage_table(block, machine->place, &row->base_offset)) {
    row->base = BASE_REGISTER;
    row->base_register = CFI_REGISTER_SP;
  } else if (take_sum(&block, &row->base_register, &row->base_offset)) {
    if (block.at == block.end)
      row->base = BASE_REGISTER;
    else if (cfi_take_byte(&block) == EXPRESSION_DEREFERENCE && block.at == block.end)
      row->base = BASE_STORED;
  }
}

static struct saved saved_by_expression(uint64_t number, struct cfi_reader block) {
  uint64_t base;
  int64_t offset;
  bool is_from_fp = !block.is_short && take_sum(&block, &base, &offset) && block.at == block.end &&
                    base == CFI_REGISTER_FP && number == CFI_REGISTER_FP;
  return is_from_fp ? (struct saved){FP_FROM_FP, offset} : (struct saved){FP_LOST, 0};
}

enum effect {
  EFFECT_UNKNOWN,
  EFFECT_NOTHING,
  EFFECT_ADVANCE,
  EFFECT_SAVE,
  EFFECT_SAVE_BY_EXPRESSION,
  EFFECT_KEEP,
  EFFECT_LOSE,
  EFFECT_RESTORE,
  EFFECT_REMEMBER,
  EFFECT_RECALL,
  EFFECT_BASE,
  EFFECT_BASE_REGISTER,
  EFFECT_BASE_OFFSET,
  EFFECT_BASE_BY_EXPRESSION
};

/* An instruction is the whole byte; or the two upper bits, with a number in the other six. Its operands, in order:
 * 6: that number; 1, 2, 4: so many bytes; u: an unsigned number; f, s, n: an unsigned, signed, negated one in units of
 * data; b: a block; -: none. */
static const struct instruction {
  unsigned char effect;
  char operands[3];
} instructions[] = {
    [0x40] = {EFFECT_ADVANCE, "6"},
    [0x80] = {EFFECT_SAVE, "6f"},
    [0xc0] = {EFFECT_RESTORE, "6"},
    [0x00] = {EFFECT_NOTHING, ""},
    [0x02] = {EFFECT_ADVANCE, "1"},
    [0x03] = {EFFECT_ADVANCE, "2"},
    [0x04] = {EFFECT_ADVANCE, "4"},
    [0x05] = {EFFECT_SAVE, "uf"},
    [0x06] = {EFFECT_RESTORE, "u"},
    [0x07] = {EFFECT_LOSE, "u"},
    [0x08] = {EFFECT_KEEP, "u"},
    [0x09] = {EFFECT_LOSE, "uu"}, /* saved in another register */
    [0x0a] = {EFFECT_REMEMBER, ""},
    [0x0b] = {EFFECT_RECALL, ""},
    [0x0c] = {EFFECT_BASE, "uu"},
    [0x0d] = {EFFECT_BASE_REGISTER, "u"},
    [0x0e] = {EFFECT_BASE_OFFSET, "-u"},
    [0x0f] = {EFFECT_BASE_BY_EXPRESSION, "b"},
    [0x10] = {EFFECT_SAVE_BY_EXPRESSION, "ub"},
    [0x11] = {EFFECT_SAVE, "us"},
    [0x12] = {EFFECT_BASE, "us"},
    [0x13] = {EFFECT_BASE_OFFSET, "-s"},
    [0x14] = {EFFECT_LOSE, "uu"}, /* a value, not a place: these three */
    [0x15] = {EFFECT_LOSE, "uu"},
    [0x16] = {EFFECT_LOSE, "ub"},
    [0x2c] = {EFFECT_NOTHING, ""}, /* aarch64: from here on return addresses are signed, or no longer; and 0x2d */
    [0x2d] = {EFFECT_NOTHING, ""},
    [0x2e] = {EFFECT_NOTHING, "u"},
    [0x2f] = {EFFECT_SAVE, "un"},
};

static uint64_t take_operand(struct machine *machine, struct cfi_reader *reader, char kind, unsigned byte) {
  uint64_t unit = (uint64_t)machine->program->data_unit;
  switch (kind) {
  case '6':
    return byte & 0x3f;
  case 'u':
    return cfi_take_unsigned(reader);
  case 'f':
    return cfi_take_unsigned(reader) * unit;
  case 's':
    return (uint64_t)cfi_take_signed(reader) * unit;
  case 'n':
    return -cfi_take_unsigned(reader) * unit;
  case 'b':
    machine->block = cfi_take_block(reader, cfi_take_unsigned(reader));
    return 0;
  default:
    return kind >= '1' && kind <= '4' ? cfi_take_fixed(reader, (size_t)(kind - '0')) : 0;
  }
}

static void apply_effect(struct machine *machine, enum effect effect, uint64_t first, int64_t second) {
  struct row *row = &machine->row;
  switch (effect) {
  case EFFECT_NOTHING:
    break;
  case EFFECT_ADVANCE:
    machine->reached += first * machine->program->code_unit;
    break;
  case EFFECT_SAVE:
    *saved_in(row, first) = (struct saved){FP_FROM_CFA, second};
    break;
  case EFFECT_SAVE_BY_EXPRESSION:
    *saved_in(row, first) = saved_by_expression(first, machine->block);
    break;
  case EFFECT_KEEP:
    *saved_in(row, first) = (struct saved){FP_UNCHANGED, 0};
    break;
  case EFFECT_LOSE:
    *saved_in(row, first) = (struct saved){FP_LOST, 0};
    break;
  case EFFECT_RESTORE:
    *saved_in(row, first) = *saved_in(&machine->initial, first);
    break;
  case EFFECT_REMEMBER:
    machine->is_lost = machine->remembered_count == REMEMBERED_MAX;
    if (!machine->is_lost)
      machine->remembered[machine->remembered_count++] = *row;
    break;
  case EFFECT_RECALL:
    machine->is_lost = machine->remembered_count == 0;
    if (!machine->is_lost)
      *row = machine->remembered[--machine->remembered_count];
    break;
  case EFFECT_BASE_BY_EXPRESSION:
    base_by_expression(machine);
    break;
  case EFFECT_BASE:
  case EFFECT_BASE_REGISTER:
  case EFFECT_BASE_OFFSET:
    row->base = BASE_REGISTER;
    row->base_register = effect == EFFECT_BASE_OFFSET ? row->base_register : first;
    row->base_offset = effect == EFFECT_BASE_REGISTER ? row->base_offset : second;
    break;
  case EFFECT_UNKNOWN:
    machine->is_lost = true;
  }
}

/* Executes instructions until the next row lies behind the place. */
static void run_program(struct machine *machine, struct cfi_reader reader) {
  while (reader.at < reader.end && machine->reached <= machine->place && !machine->is_lost) {
    unsigned byte = cfi_take_byte(&reader), upper = byte & 0xc0, code = upper ? upper : byte;
    const struct instruction *found = &instructions[code];
    uint64_t first = take_operand(machine, &reader, found->operands[0], byte);
    uint64_t second = take_operand(machine, &reader, found->operands[1], byte);
    apply_effect(machine, (enum effect)found->effect, first, (int64_t)second);
    machine->is_lost |= reader.is_short;
  }
}

static bool is_words(int64_t offset, unsigned bits) {
  int64_t bound = (int64_t)8 << (bits - 1);
  return offset % 8 == 0 && offset >= -bound && offset < bound;
}

static struct cfi_rule rule_of(const struct row *row) {
  struct cfi_rule rule = {.cfa = CFA_END}, end = rule;
  if (row->base_register == CFI_REGISTER_SP && row->base == BASE_REGISTER)
    rule.cfa = CFA_FROM_SP;
  else if (row->base_register == CFI_REGISTER_FP && row->base != BASE_UNKNOWN)
    rule.cfa = row->base == BASE_REGISTER ? CFA_FROM_FP : CFA_STORED_FP;
  if (!is_words(row->base_offset, 22) || !is_words(row->fp.offset, 18) || !is_words(row->link.offset, 18))
    return end;
  rule.cfa_words = row->base_offset / 8;
  rule.fp = row->fp.kind;
  rule.fp_words = row->fp.offset / 8;
  rule.return_words = row->link.offset / 8;
#if defined(__aarch64__)
  rule.is_in_register = row->link.kind == FP_UNCHANGED;
#endif
  return row->link.kind == FP_FROM_CFA || rule.is_in_register ? rule : end;
}

static struct cfi_rule program_rule(const struct program *program, uintptr_t place) {
  struct machine machine = {.program = program, .place = place, .reached = program->start};
  run_program(&machine, program->common);
  machine.initial = machine.row;
  machine.reached = program->start;
  run_program(&machine, program->function);
  return machine.is_lost ? (struct cfi_rule){.cfa = CFA_END} : rule_of(&machine.row);
}

/* --- entries --- */

/* An FDE, with the CIE that several functions share. */
struct function {
  struct program program;
  uintptr_t size;
  unsigned pointers; /* their encoding */
  bool has_sizes;    /* augmentations begin with their length */
  bool is_signal;
};

/* Returns a reader for the content of the entry at `at`. */
static struct cfi_reader entry_at(const struct os_module_frames *bytes, const unsigned char *at) {
  struct cfi_reader rest = {.at = at, .end = bytes->end};
  uint32_t length = (uint32_t)cfi_take_fixed(&rest, 4);
  struct cfi_reader entry = cfi_take_block(&rest, length);
  entry.is_short |= length == 0 || length > ENTRY_BYTES_MAX;
  return entry;
}

static void take_augmentation(struct cfi_reader *reader, const struct os_module_frames *bytes, const char *letters,
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
static bool common_at(const struct os_module_frames *bytes, const unsigned char *at, struct function *function) {
  struct cfi_reader reader = entry_at(bytes, at);
  *function = (struct function){.pointers = 0};
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

static bool function_at(const struct os_module_frames *bytes, const unsigned char *at, struct function *function) {
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
static const unsigned char *entry_of(const struct os_module_frames *bytes, uintptr_t place) {
  struct header header;
  size_t length = (size_t)(bytes->end - bytes->header);
  if (length < sizeof header)
    return NULL;
  memcpy(&header, bytes->header, sizeof header);
  const unsigned char *table = bytes->header + sizeof header;
  if (header.version != HEADER_VERSION || (header.section_pointer & POINTER_SIZE) != POINTER_4 ||
      header.count_format != POINTER_4 || header.table_format != (POINTER_FROM_HEADER | POINTER_SIGNED | POINTER_4) ||
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

bool cfi_find(const struct os_module_frames *bytes, uintptr_t place, struct cfi_rule *rule) {
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
  *rule = function.is_signal ? (struct cfi_rule){.cfa = CFA_SIGNAL} : program_rule(&function.program, place);
  return true;
}
