/* How a block is made to read as zero: it is written, or its pages are given back. */
#include "large/large.h"

#include "budget/usage.h"
#include "large/record.h"
#include "os/filter.h"
#include "os/os.h"
#include "pages/collapse.h"
#include "pages/huge.h"
#include "pages/page_map.h"

#include <string.h>

/* To clear a range of which few pages are resident, it is purged: a purge costs a fault for each page that is used
 * again, but a range that was cleared is resident as a whole. While sparse ranges are the rule, 1/MIXED_SHARE may be
 * resident, because ranges that were cleared leave their pages to later ones. */
#define SPARSE_BYTES_MIN ((size_t)128 << 10) /* from this length on, if at most 1/SPARSE_SHARE is resident */
#define SPARSE_SHARE 32u
#define MIXED_SHARE 4u
#define SPARSE_HEAP_MIN ((size_t)1 << 20) /* of large objects. Fewer are in the processor's caches: clearing is cheap */
#define LONG_BYTES_MIN ((size_t)32 << 20) /* from this length on, unless nearly all is resident */

/* The balance of sparse ranges: each counts 1, each other one DENSE_COST. From SPARSE_RULE on they are the rule. Below
 * 0 it is the number of others in a row. After DENSE_LOOKS none is looked at until there were DENSE_TURNS, because a
 * look is a system call. */
#define SPARSE_RULE 4
#define SPARSE_MAX 8
#define DENSE_COST 2
#define DENSE_LOOKS 4
#define DENSE_TURNS 20

static int balance_after(int balance, bool sparse) {
  if (sparse)
    return balance < 0 ? 1 : balance < SPARSE_MAX ? balance + 1 : balance;
  if (balance > 0)
    return balance > DENSE_COST ? balance - DENSE_COST : 0;
  return balance > -DENSE_TURNS ? balance - 1 : -DENSE_LOOKS;
}

/* Tells whether a range is to be purged to clear it. */
static bool is_sparse(const char *base, size_t bytes) {
  static _Atomic int balance; /* an update may be lost */
  if (bytes >= LONG_BYTES_MIN)
    return !huge_is_dense(base, bytes);
  if (bytes < SPARSE_BYTES_MIN || usage_taken_large() < SPARSE_HEAP_MIN || !os_may_call())
    return false;
  int before = load_relaxed(&balance);
  bool is_looked_at = before > -DENSE_LOOKS || before == -DENSE_TURNS;
  size_t resident = is_looked_at ? os_resident_bytes(base, bytes) : bytes;
  bool sparse = resident <= bytes / SPARSE_SHARE;
  store_relaxed(&balance, balance_after(before, sparse));
  return sparse || (before >= SPARSE_RULE && resident <= bytes / MIXED_SHARE);
}

COLD void large_clear(void *block, size_t size) {
  KEEP_ERRNO;
  struct large *range = map_entry(block) == ENTRY_LARGE ? map_record(block) : NULL;
  if (range != NULL && is_sparse(range->base, large_range_bytes(range)) &&
      os_purge(range->base, large_range_bytes(range))) {
    collapse_forget(range->base, large_range_bytes(range));
    range->noted = false;
  } else {
    memset(block, 0, size);
  }
}
