#include "profile/cfi_program.h"

#define REMEMBERED_MAX 8u

enum saved_kind { SAVED_NOWHERE, SAVED_LOST, SAVED_FROM_CFA, SAVED_FROM_FP };
struct saved {
  enum saved_kind kind; /* SAVED_NOWHERE: it is unchanged */
  int64_t offset;
};
enum base { BASE_UNKNOWN, BASE_REGISTER, BASE_STORED };
struct row {
  enum base base;
  uint64_t base_register;
  int64_t base_offset;
  struct saved fp, link; /* link: the return address */
};

struct machine {
  const struct cfi_program *program;
  uintptr_t place, reached;
  struct row row, initial;
  struct row remembered[REMEMBERED_MAX];
  unsigned remembered_count;
  bool is_lost; /* met something that this machine does not support */
};

static void rule_save(struct machine *machine, uint64_t number, enum saved_kind kind, int64_t offset) {
  if (number == CFI_REGISTER_FP)
    machine->row.fp = (struct saved){kind, offset};
  else if (number == CFI_REGISTER_RETURN)
    machine->row.link = (struct saved){kind, offset};
}

static void rule_restore(struct machine *machine, uint64_t number) {
  if (number == CFI_REGISTER_FP)
    machine->row.fp = machine->initial.fp;
  else if (number == CFI_REGISTER_RETURN)
    machine->row.link = machine->initial.link;
}

static int64_t scaled_offset(const struct machine *machine, uint64_t count) {
  return (int64_t)(count * (uint64_t)machine->program->data_unit);
}

static void advance_place(struct machine *machine, uint64_t count) {
  machine->reached += count * machine->program->code_unit;
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

static void base_by_expression(struct machine *machine, struct cfi_reader block) {
  struct row *row = &machine->row;
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

static void save_by_expression(struct machine *machine, uint64_t number, struct cfi_reader block) {
  uint64_t base;
  int64_t offset;
  bool is_from_fp = !block.is_short && take_sum(&block, &base, &offset) && block.at == block.end &&
                    base == CFI_REGISTER_FP && number == CFI_REGISTER_FP;
  rule_save(machine, number, is_from_fp ? SAVED_FROM_FP : SAVED_LOST, is_from_fp ? offset : 0);
}

static void remember_state(struct machine *machine) {
  if (machine->remembered_count < REMEMBERED_MAX)
    machine->remembered[machine->remembered_count++] = machine->row;
  else
    machine->is_lost = true;
}

static void recall_state(struct machine *machine) {
  if (machine->remembered_count > 0)
    machine->row = machine->remembered[--machine->remembered_count];
  else
    machine->is_lost = true;
}

/* An instruction is in the two upper bits, with a number in the other six; or it is the whole byte. */
enum {
  STEP_ADVANCE = 0x40,
  STEP_OFFSET = 0x80,
  STEP_RESTORE = 0xc0,
  STEP_NOTHING = 0x00,
  STEP_ADVANCE_1 = 0x02,
  STEP_ADVANCE_2 = 0x03,
  STEP_ADVANCE_4 = 0x04,
  STEP_OFFSET_LONG = 0x05,
  STEP_RESTORE_LONG = 0x06,
  STEP_UNDEFINED = 0x07,
  STEP_SAME = 0x08,
  STEP_REGISTER = 0x09,
  STEP_REMEMBER = 0x0a,
  STEP_RECALL = 0x0b,
  STEP_BASE = 0x0c,
  STEP_BASE_REGISTER = 0x0d,
  STEP_BASE_OFFSET = 0x0e,
  STEP_BASE_EXPRESSION = 0x0f,
  STEP_EXPRESSION = 0x10,
  STEP_OFFSET_SIGNED = 0x11,
  STEP_BASE_SIGNED = 0x12,
  STEP_BASE_OFFSET_SIGNED = 0x13,
  STEP_VALUE = 0x14,
  STEP_VALUE_SIGNED = 0x15,
  STEP_VALUE_EXPRESSION = 0x16,
  STEP_SIGNED_WITH_PLACE = 0x2c, /* aarch64: from here on return addresses are signed, or no longer */
  STEP_SIGNED = 0x2d,
  STEP_ARGUMENTS = 0x2e,
  STEP_OFFSET_NEGATIVE = 0x2f,
};

static void step_base(struct machine *machine, struct cfi_reader *reader, unsigned step) {
  struct row *row = &machine->row;
  if (step == STEP_BASE_EXPRESSION) {
    base_by_expression(machine, cfi_take_block(reader, cfi_take_unsigned(reader)));
    return;
  }
  row->base = BASE_REGISTER;
  if (step == STEP_BASE || step == STEP_BASE_SIGNED || step == STEP_BASE_REGISTER)
    row->base_register = cfi_take_unsigned(reader);
  if (step == STEP_BASE || step == STEP_BASE_OFFSET)
    row->base_offset = (int64_t)cfi_take_unsigned(reader);
  else if (step == STEP_BASE_SIGNED || step == STEP_BASE_OFFSET_SIGNED)
    row->base_offset = scaled_offset(machine, (uint64_t)cfi_take_signed(reader));
}

static void step_register(struct machine *machine, struct cfi_reader *reader, unsigned step) {
  uint64_t number = cfi_take_unsigned(reader);
  switch (step) {
  case STEP_OFFSET_LONG:
    rule_save(machine, number, SAVED_FROM_CFA, scaled_offset(machine, cfi_take_unsigned(reader)));
    break;
  case STEP_OFFSET_SIGNED:
    rule_save(machine, number, SAVED_FROM_CFA, scaled_offset(machine, (uint64_t)cfi_take_signed(reader)));
    break;
  case STEP_OFFSET_NEGATIVE:
    rule_save(machine, number, SAVED_FROM_CFA, scaled_offset(machine, -cfi_take_unsigned(reader)));
    break;
  case STEP_RESTORE_LONG:
    rule_restore(machine, number);
    break;
  case STEP_SAME:
    rule_save(machine, number, SAVED_NOWHERE, 0);
    break;
  case STEP_UNDEFINED:
    rule_save(machine, number, SAVED_LOST, 0);
    break;
  case STEP_EXPRESSION:
    save_by_expression(machine, number, cfi_take_block(reader, cfi_take_unsigned(reader)));
    break;
  case STEP_VALUE_EXPRESSION:
    cfi_take_block(reader, cfi_take_unsigned(reader));
    rule_save(machine, number, SAVED_LOST, 0);
    break;
  default: /* STEP_REGISTER, STEP_VALUE, STEP_VALUE_SIGNED have one more number, of any sign */
    cfi_take_unsigned(reader);
    rule_save(machine, number, SAVED_LOST, 0);
  }
}

static void step_other(struct machine *machine, struct cfi_reader *reader, unsigned step) {
  switch (step) {
  case STEP_NOTHING:
  case STEP_SIGNED:
  case STEP_SIGNED_WITH_PLACE:
    break;
  case STEP_ADVANCE_1:
    advance_place(machine, cfi_take_byte(reader));
    break;
  case STEP_ADVANCE_2:
    advance_place(machine, cfi_take_fixed(reader, 2));
    break;
  case STEP_ADVANCE_4:
    advance_place(machine, cfi_take_fixed(reader, 4));
    break;
  case STEP_REMEMBER:
    remember_state(machine);
    break;
  case STEP_RECALL:
    recall_state(machine);
    break;
  case STEP_ARGUMENTS:
    cfi_take_unsigned(reader);
    break;
  default:
    machine->is_lost = true;
  }
}

/* Executes instructions until the next row lies behind the place. */
static void run_program(struct machine *machine, struct cfi_reader reader) {
  while (reader.at < reader.end && machine->reached <= machine->place && !machine->is_lost) {
    unsigned step = cfi_take_byte(&reader), number = step & 0x3f;
    if ((step & STEP_RESTORE) == STEP_ADVANCE)
      advance_place(machine, number);
    else if ((step & STEP_RESTORE) == STEP_OFFSET)
      rule_save(machine, number, SAVED_FROM_CFA, scaled_offset(machine, cfi_take_unsigned(&reader)));
    else if ((step & STEP_RESTORE) == STEP_RESTORE)
      rule_restore(machine, number);
    else if ((step >= STEP_BASE && step <= STEP_BASE_EXPRESSION) || step == STEP_BASE_SIGNED ||
             step == STEP_BASE_OFFSET_SIGNED)
      step_base(machine, &reader, step);
    else if ((step >= STEP_OFFSET_LONG && step <= STEP_REGISTER) || step == STEP_EXPRESSION ||
             step == STEP_OFFSET_SIGNED || (step >= STEP_VALUE && step <= STEP_VALUE_EXPRESSION) ||
             step == STEP_OFFSET_NEGATIVE)
      step_register(machine, &reader, step);
    else
      step_other(machine, &reader, step);
    machine->is_lost |= reader.is_short;
  }
}

/* --- rules --- */

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
  static const unsigned char fp[] = {[SAVED_NOWHERE] = FP_UNCHANGED,
                                     [SAVED_LOST] = FP_LOST,
                                     [SAVED_FROM_CFA] = FP_FROM_CFA,
                                     [SAVED_FROM_FP] = FP_FROM_FP};
  rule.fp = fp[row->fp.kind];
  rule.fp_words = row->fp.offset / 8;
  rule.return_words = row->link.offset / 8;
#if defined(__aarch64__)
  rule.is_in_register = row->link.kind == SAVED_NOWHERE;
#endif
  return row->link.kind == SAVED_FROM_CFA || rule.is_in_register ? rule : end;
}

struct cfi_rule cfi_program_rule(const struct cfi_program *program, uintptr_t place) {
  struct machine machine = {.program = program, .place = place, .reached = program->start};
  run_program(&machine, program->common);
  machine.initial = machine.row;
  machine.reached = program->start;
  run_program(&machine, program->function);
  return machine.is_lost ? (struct cfi_rule){.cfa = CFA_END} : rule_of(&machine.row);
}
