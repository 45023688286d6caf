/* policy_state.h: what has been learned, and how sites are named in it. */
#pragma once

#include "adapt/policy_file.h"

#include <string.h>

#define POLICY_ARMS 2048u
#define POLICY_ARMS_SHORT 256u /* while memory is short: 2048 take a hundredth of 96 MiB */
#define POLICY_MODULES 64u

/* A site is a module's tag and the offset of the return address in it. Tag 0: the address is in no known module and
 * means nothing in another process. */
#define POLICY_OFFSET_BITS 40u
#define POLICY_TAG_BITS 24u
#define POLICY_TAG_SMALL ((1u << POLICY_TAG_BITS) - 1) /* slabs: they have no site, and ranges of block sizes */
static inline uint64_t policy_site_of(uint32_t tag, uint64_t offset) {
  return (uint64_t)tag << POLICY_OFFSET_BITS | (offset & (((uint64_t)1 << POLICY_OFFSET_BITS) - 1));
}
static inline uint32_t policy_tag_of(uint64_t site) { return (uint32_t)(site >> POLICY_OFFSET_BITS); }
static inline uint64_t policy_offset_of(uint64_t site) { return site & (((uint64_t)1 << POLICY_OFFSET_BITS) - 1); }
#define POLICY_SITE_SMALL policy_site_of(POLICY_TAG_SMALL, 0)

/* Returns the tag of a module, from the hash of its build-id (inspect/module.h). */
static inline uint32_t policy_tag_of_build(uint32_t build) {
  uint32_t tag = (build ^ build >> POLICY_TAG_BITS) & POLICY_TAG_SMALL;
  return tag == 0 || tag == POLICY_TAG_SMALL ? 1 : tag;
}

/* Notes a tag's module name in a list of POLICY_MODULES, if there is room. Tag 0 marks a free place. */
static inline void policy_note_module(struct policy_module *modules, uint32_t tag, const char *name) {
  unsigned at = 0;
  while (at < POLICY_MODULES && modules[at].tag != 0 && modules[at].tag != tag)
    at++;
  if (at == POLICY_MODULES || modules[at].tag == tag)
    return;
  modules[at].tag = tag;
  memcpy(modules[at].name, name, strnlen(name, sizeof modules[at].name - 1));
}

struct policy_state {
  struct policy_table table;
  struct policy_module modules[POLICY_MODULES];
};
