/* policy_works.h: the workloads of policy_load, as calls of three functions that touch memory or print events. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LOAD_SITES = 128, LOAD_SLOTS = 128 };

/* Sites count from 1 to LOAD_SITES, slots from 0; a slot holds one block. Times are milliseconds of the workload's own
 * clock, on which the purge delay is a second. */
struct load {
  void (*take)(struct load *load, unsigned site, unsigned slot, size_t bytes);
  void (*give)(struct load *load, unsigned slot);
  void (*wait)(struct load *load, uint32_t ms);
  void (*turn)(struct load *load); /* the program changes its ways here */
  unsigned speed;                  /* how much faster than that clock the real one is */
  unsigned times;                  /* as long */
  bool is_tiny;                    /* does it work? */
};

struct policy_work {
  const char *name, *about;
  void (*run)(struct load *load);
};
extern const struct policy_work policy_works[];
extern const size_t policy_work_count;
