/* cfi.h: call frame information, which compilers write into .eh_frame. It says how to get from a place in the code to
 * its caller.
 *
 * Pure: bytes in, a rule out. Nothing outside the given bytes is read, whatever they contain. Malformed information,
 * and rules that need other registers than the stack pointer and the frame pointer, give CFA_END.
 */
#pragma once

#include "inspect/module.h"

/* The canonical frame address (CFA) is the value of the stack pointer before the call. */
enum cfi_cfa {
  CFA_END,       /* there is no caller, or it cannot be found */
  CFA_FROM_SP,   /* stack pointer + cfa_words */
  CFA_FROM_FP,   /* frame pointer + cfa_words */
  CFA_STORED_FP, /* stored at frame pointer + cfa_words */
  CFA_GUESSED,   /* no information; frame pointer + cfa_words, if this code keeps one */
  CFA_SIGNAL,    /* a signal frame: the kernel saved all registers at the stack pointer */
};
enum cfi_fp {
  FP_UNCHANGED,
  FP_FROM_CFA, /* stored at CFA + fp_words */
  FP_FROM_FP,  /* stored at frame pointer + fp_words */
  FP_LOST,
};

/* In words of 8 bytes. A rule of zeros is CFA_END. */
struct cfi_rule {
  uint64_t cfa : 3;
  uint64_t fp : 2;
  uint64_t is_in_register : 1; /* the return address is in the link register, not at CFA + return_words */
  int64_t cfa_words : 22;
  int64_t fp_words : 18;
  int64_t return_words : 18;
};
_Static_assert(sizeof(struct cfi_rule) == sizeof(uint64_t), "a rule is one word");

#if defined(__x86_64__)
#define CFI_REGISTER_FP 6u
#define CFI_REGISTER_SP 7u
#define CFI_REGISTER_RETURN 16u
#elif defined(__aarch64__)
#define CFI_REGISTER_FP 29u
#define CFI_REGISTER_SP 31u
#define CFI_REGISTER_RETURN 30u
#endif

/* Finds the rule for a place. False if there is no information; then the rule is unchanged. */
bool cfi_find(const struct os_module_frames *bytes, uintptr_t place, struct cfi_rule *rule);
