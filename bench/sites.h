/* sites.h: functions that differ in nothing but the call site of their malloc: ALL_128(SITE) defines site_00 to
 * site_7f, ALL_128(SITE_NAME) lists them. The return address of malloc is the site's own: the asm keeps the call from
 * becoming a jump, and its operand keeps the compiler from merging the functions. */
#pragma once

#include <stdlib.h>

#define SITE(n)                                                                                                        \
  static __attribute__((noinline)) unsigned char *site_##n(size_t size) {                                              \
    unsigned char *block = malloc(size);                                                                               \
    __asm__ volatile("" : "+r"(block) : "i"(0x##n) : "memory");                                                        \
    return block;                                                                                                      \
  }
#define SITE_NAME(n) site_##n,
/* clang-format off */
#define SITE_ROW(X, h)                                          \
  X(h##0) X(h##1) X(h##2) X(h##3) X(h##4) X(h##5) X(h##6) X(h##7) \
  X(h##8) X(h##9) X(h##a) X(h##b) X(h##c) X(h##d) X(h##e) X(h##f)
#define ALL_128(X)                                                                                                \
  SITE_ROW(X, 0) SITE_ROW(X, 1) SITE_ROW(X, 2) SITE_ROW(X, 3) SITE_ROW(X, 4) SITE_ROW(X, 5) SITE_ROW(X, 6) \
  SITE_ROW(X, 7)
#define ALL_256(X)                                                                                                \
  ALL_128(X)                                                                                                      \
  SITE_ROW(X, 8) SITE_ROW(X, 9) SITE_ROW(X, a) SITE_ROW(X, b) SITE_ROW(X, c) SITE_ROW(X, d) SITE_ROW(X, e) \
  SITE_ROW(X, f)
/* clang-format on */
