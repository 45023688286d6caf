/* view.h: what has been learned, and how sites are named in it. */
#ifndef HAK_ADAPT_VIEW_H
#define HAK_ADAPT_VIEW_H

#include "adapt/policy_file.h"

#include <string.h>

#define LEARNED_ARMS 2048u
#define LEARNED_MODULES 64u

/* A site is a module's tag and the offset of the return address in it. Tag 0: the address is in no known module and
 * means nothing in another process. */
#define LEARNED_OFFSET_BITS 40u
#define LEARNED_TAG_BITS 24u
#define LEARNED_TAG_SMALL ((1u << LEARNED_TAG_BITS) - 1) /* slabs: they have no site, and ranges of block sizes */
static inline uint64_t learned_site_of(uint32_t tag, uint64_t offset) {
  return (uint64_t)tag << LEARNED_OFFSET_BITS | (offset & (((uint64_t)1 << LEARNED_OFFSET_BITS) - 1));
}
static inline uint32_t learned_tag_of(uint64_t site) { return (uint32_t)(site >> LEARNED_OFFSET_BITS); }
static inline uint64_t learned_offset_of(uint64_t site) { return site & (((uint64_t)1 << LEARNED_OFFSET_BITS) - 1); }
#define LEARNED_SITE_SMALL learned_site_of(LEARNED_TAG_SMALL, 0)

/* Returns the tag of a module, from the hash of its build-id (inspect/module.h). */
static inline uint32_t learned_tag_of_build(uint32_t build) {
  uint32_t tag = (build ^ build >> LEARNED_TAG_BITS) & LEARNED_TAG_SMALL;
  return tag == 0 || tag == LEARNED_TAG_SMALL ? 1 : tag;
}

/* Notes a tag's module name in a list of LEARNED_MODULES, if there is room. Tag 0 marks a free place. */
static inline void learned_note_module(struct policy_module *modules, uint32_t tag, const char *name) {
  unsigned at = 0;
  while (at < LEARNED_MODULES && modules[at].tag != 0 && modules[at].tag != tag)
    at++;
  if (at == LEARNED_MODULES || modules[at].tag == tag)
    return;
  modules[at].tag = tag;
  memcpy(modules[at].name, name, strnlen(name, sizeof modules[at].name - 1));
}

struct learned_view {
  struct site_costs costs;
  struct site_table table;
  struct policy_module modules[LEARNED_MODULES];
};

#endif
