#include "reclaim/delay.h"

#include "budget/usage.h"
#include "os/os.h"

#define SHORT_SHARE 20u
#define SHORT_MS_MIN ((uint64_t)50)
#define SHORT_BYTES_OF_MS ((size_t)2 << 20)
#define CHARGED_BYTES_OF_MS (((size_t)128 << 20) / 1000)
#define WANTED_BYTES_OF_MS (((size_t)16 << 20) / 1000)

static _Atomic uint64_t full_until_ms;

static struct {
  size_t owed_bytes;
  size_t sum_bytes; /* given back sooner than after the full delay, less WANTED_BYTES_OF_MS since */
  uint64_t sum_ms;  /* when that was so */
} given;            /* the round's lock guards it */

uint64_t delay_in_force_ms(void) {
  uint64_t full_ms = delay_full_ms();
  if (option_is_set(OPTION_PURGE_DELAY_MS) || os_milliseconds() < delay_full_until_ms())
    return full_ms;
  return min_size(full_ms, max_size(max_size(full_ms / SHORT_SHARE, SHORT_MS_MIN), usage_held() / SHORT_BYTES_OF_MS));
}

uint64_t delay_full_until_ms(void) { return load_relaxed(&full_until_ms); }

/* Returns for how long the full delay holds. What went back in all, beyond the most that was ever in use at once, was
 * wanted again. */
static uint64_t hold_ms(size_t given_back, uint64_t now_ms) {
  uint64_t forgotten_bytes = (now_ms - given.sum_ms) * WANTED_BYTES_OF_MS;
  given.sum_bytes = sub_sat(given.sum_bytes, forgotten_bytes) + given_back;
  given.sum_ms = now_ms;
  size_t wanted_bytes = sub_sat(given.sum_bytes, usage_taken_peak());
  return max_size(given_back / CHARGED_BYTES_OF_MS, wanted_bytes / WANTED_BYTES_OF_MS);
}

void delay_charge(size_t given_back, uint64_t delay_ms, bool is_over) {
  given_back += given.owed_bytes;
  given.owed_bytes = is_over ? 0 : given_back;
  if (!is_over || given_back == 0 || delay_ms >= delay_full_ms())
    return;
  uint64_t now_ms = os_milliseconds();
  store_relaxed(&full_until_ms, now_ms + hold_ms(given_back, now_ms));
}
