#include "reclaim/hole_walk.h"

#include "base/counters.h"
#include "heap/envelope.h"
#include "heap/pool.h"
#include "os/lock.h"
#include "os/os.h"
#include "pages/collapse.h"
#include "pages/extent.h"
#include "reclaim/reclaim.h"

static SPARSE struct hole_batch batch; /* too long for a small stack; the round's lock guards both */
static struct pool *batch_pool;        /* whose slabs the batch has taken out of their lists; NULL: none */

void hole_walk_begin(enum hole_search search, uint64_t delay_ms) {
  batch.search = search;
  batch.now_ms = (uint32_t)os_milliseconds();
  batch.delay_ms = (uint32_t)delay_ms;
}

/* Puts the batch's slabs into their lists again. False: the pool's lock is stuck (heap/pool.h). A later call tries
 * again. */
static bool batch_end(void) {
  struct pool *pool = batch_pool;
  if (LIKELY(pool == NULL))
    return true;
  if (pool_is_stuck(pool) || !pool_lock(pool))
    return false;
  slab_set_holes_give(&pool->slabs, &batch);
  pool->is_purging = false;
  batch_pool = NULL;
  inbox_unlock(pool);
  return true;
}

#define LEFT_MS 1u

/* Purges the next batch of the holes of a pool, whose lock is held. Gives the lock; is_patient: for long enough that a
 * thread that waits gets it. Returns false at the walk's end. The last batch has ended. */
COLD static bool purge_batch(struct pool *pool, bool is_patient, size_t *given_back) {
  static _Atomic uint32_t nothing;
  bool more = slab_set_holes_take(&pool->slabs, &batch), is_awaited = lock_is_awaited(&pool->lock);
  pool->is_purging = batch.slab_count > 0; /* until they are in their lists again, no thread may end the pool */
  inbox_unlock(pool);
  if (batch.slab_count == 0) {
    if (is_patient && is_awaited && more)
      os_futex_wait_for(&nothing, 0, LEFT_MS);
    return more;
  }
  batch_pool = pool;
  for (unsigned i = 0; i < batch.hole_count; i++) {
    collapse_forget(batch.holes[i].start, batch.holes[i].bytes);
    if (pages_purge(batch.holes[i].start, batch.holes[i].bytes) != PURGE_REFUSED)
      *given_back += batch.holes[i].bytes;
  }
  counter_note(hole_batches);
  return batch_end() && more;
}

size_t hole_walk_pool(struct pool *pool, bool (*may_go_on)(void)) {
  size_t given_back = 0;
  if (!batch_end() || !reclaim_goes_on(may_go_on) || !reclaim_is_on() || !lock_try(&pool->lock))
    return 0;
  inbox_drain_to_slabs(pool);
  slab_set_holes_begin(&pool->slabs);
  while (purge_batch(pool, true, &given_back) && reclaim_goes_on(may_go_on) && reclaim_is_on() && pool_lock(pool))
    ;
  return given_back;
}

bool hole_walk_step(struct pool *pool, size_t *given_back) {
  return batch_end() && reclaim_is_on() && lock_try(&pool->lock) && purge_batch(pool, false, given_back);
}
