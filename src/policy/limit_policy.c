#include "policy/limit_policy.h"

#define MARGIN_SHARE 16
#define MARGIN_BYTES_MIN ((size_t)16 << 20)
#define MARGIN_BYTES_MAX ((size_t)1 << 30)
#define NEAR_SHARE 8      /* within an eighth of the limit, free memory goes back, */
#define LEFT_SHARE 2      /* but as much as half of what is left may stay, */
#define UNTOUCHED_SHARE 8 /* or an eighth, if what is held may still become resident */

size_t limit_margin(size_t group_bytes) {
  size_t share = min_size(max_size(group_bytes / MARGIN_SHARE, MARGIN_BYTES_MIN), MARGIN_BYTES_MAX);
  return min_size(share, group_bytes / 2);
}

size_t limit_hard(size_t option_bytes, size_t group_max_bytes, size_t group_swap_bytes) {
  size_t limit = option_bytes != 0 ? option_bytes : SIZE_MAX;
  if (group_max_bytes > SIZE_MAX - group_swap_bytes || group_max_bytes + group_swap_bytes == SIZE_MAX)
    return limit;
  size_t group_bytes = group_max_bytes + group_swap_bytes;
  return min_size(limit, group_bytes - limit_margin(group_bytes));
}

bool limit_admits(size_t limit_bytes, size_t held_bytes, size_t bytes) {
  if (bytes == 0 || limit_bytes == SIZE_MAX)
    return true;
  return bytes <= limit_bytes && held_bytes <= limit_bytes - bytes;
}

/* Returns what a limit leaves beside the part of these bytes that is not free. */
static size_t left_beside(const struct limit_view *view, size_t bytes) {
  return sub_sat(view->high_bytes, sub_sat(bytes, view->free_bytes));
}

size_t limit_keep(const struct limit_view *view) {
  if (view->charged_bytes >= view->high_bytes)
    return 0;
  size_t excess = sub_sat(view->held_bytes, view->high_bytes - view->high_bytes / NEAR_SHARE), keep = SIZE_MAX;
  if (excess > 0) {
    size_t left = max_size(left_beside(view, view->held_bytes) / LEFT_SHARE,
                           left_beside(view, view->charged_bytes) / UNTOUCHED_SHARE);
    keep = max_size(sub_sat(view->free_bytes, excess), left);
  }
  if (view->target_bytes != 0) {
    excess = sub_sat(sub_sat(view->held_bytes, view->live_bytes), view->target_bytes);
    keep = min_size(keep, excess > 0 ? sub_sat(view->free_bytes, excess) : SIZE_MAX);
  }
  return keep;
}
