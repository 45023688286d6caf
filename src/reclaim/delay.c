#include "reclaim/delay.h"

#include "budget/usage.h"
#include "os/os.h"

#define SHORT_SHARE 20u
#define SHORT_MS_MIN ((uint64_t)50)
#define SHORT_BYTES_OF_MS ((size_t)2 << 20)
#define CHARGED_BYTES_OF_MS (((size_t)128 << 20) / 1000)

static _Atomic uint64_t full_until_ms;
static size_t owed_bytes; /* the round's lock guards it */

uint64_t delay_in_force_ms(void) {
  uint64_t full_ms = delay_full_ms();
  if (option_is_set(OPTION_PURGE_DELAY_MS) || os_milliseconds() < delay_full_until_ms())
    return full_ms;
  return min_size(full_ms, max_size(max_size(full_ms / SHORT_SHARE, SHORT_MS_MIN), usage_held() / SHORT_BYTES_OF_MS));
}

uint64_t delay_full_until_ms(void) { return load_relaxed(&full_until_ms); }

void delay_owe(size_t given_back) { owed_bytes += given_back; }

void delay_charge(size_t given_back, uint64_t delay_ms) {
  given_back += owed_bytes;
  owed_bytes = 0;
  if (given_back > 0 && delay_ms < delay_full_ms())
    store_relaxed(&full_until_ms, os_milliseconds() + given_back / CHARGED_BYTES_OF_MS);
}
