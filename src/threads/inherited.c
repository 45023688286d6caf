#include "threads/inherited.h"

#include "budget/usage.h"
#include "checked/checked.h"
#include "threads/registry.h"

#define BYTES_MIN ((size_t)8 << 20) /* of the slabs' blocks: a smaller heap is not worth a pool of its own */
#define CALLS_TO_MOVE 64u           /* slow calls; each free is one until then */
#define CALLS_TO_LOOK 256u          /* slow calls between two looks at I2 */
#define SHARE_FREE 8u               /* I2 */
#define GENERATIONS_MOST 4u         /* I3 */

COLD void inherited_in_child(struct heap *home) {
  if (home == NULL || pools_live_bytes() < BYTES_MIN || pools_generation() >= GENERATIONS_MOST || checked_is_on())
    return;
  pools_inherit(true);
  home->inherited_calls = CALLS_TO_MOVE;
  __atomic_store_n(&home->front.key, KEY_OF_NONE, __ATOMIC_RELAXED); /* frees take the slow path */
}

COLD void inherited_return(struct heap *heap) {
  bool has_moved = !pool_is_inherited(heap_pool(heap));
  heap->inherited_calls = 0;
  pools_inherit(false);
  heap_move(heap, has_moved ? pool_attach() : NULL);
}

COLD void inherited_step(struct heap *heap) {
  if (--heap->inherited_calls > 0)
    return;
  heap->inherited_calls = CALLS_TO_LOOK;
  bool returns = pool_is_inherited(heap_pool(heap)) ? usage_is_short() || !heap_move(heap, pool_attach())
                                                    : pools_inherited_freed(SHARE_FREE) || usage_is_short();
  if (returns)
    inherited_return(heap);
}
