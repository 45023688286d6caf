/* calls.h: plays a row of calls of the malloc family, which the input gives, against a shadow heap.
 *
 * A call is a byte for what, a byte for which block, and its arguments. A player has slots; a slot holds the number of
 * a record, and a slot's record is touched by this player only.
 */
#pragma once

#include "fuzz.h"

#define SHADOW_FULL_BYTES 4096u
#include "../model/records.h"
#include "base/options.h"
#include "hakmem/stats.h"

#include <stdatomic.h>

enum { CALLS_SLOTS = 64, CALLS_LIVE_BYTES_MAX = 24 << 20 };
enum { CALLS_OPTIONS_MAX = 3 }; /* for an input: each change reads the limits of control groups */
_Static_assert(OPTION_COUNT <= 64, "a bit for each option");

struct player {
  struct fuzz_input input;
  uint32_t slots[CALLS_SLOTS]; /* record + 1; 0: none */
  size_t live_bytes;           /* of what it made; blocks may go to other players */
};

/* Three bytes: any scale up to 4 MiB, with exact low bits. */
static inline size_t player_size(struct player *player) {
  uint64_t scale = fuzz_number(&player->input, 1), low = fuzz_number(&player->input, 2);
  return scale < 200 ? low % 1025 : scale < 245 ? low : low << scale % 7;
}

static inline void player_allocate(struct player *player, uint32_t index) {
  uint64_t way = fuzz_number(&player->input, 1);
  struct shadow_request request = {.way = (unsigned)(way % 8), .alignment = 16, .count = way / 8 % 8 + 1};
  if (request.way < SHADOW_WAYS && request.way >= SHADOW_ALIGNED_ALLOC)
    request.alignment = (size_t)8 << (way / 8 % 18);
  request.size = player_size(player);
  request.tag = fuzz_number(&player->input, 1) * 0x9e3779b97f4a7c15u;
  struct shadow_record *record = &shadow.records[index];
  if (player->live_bytes > CALLS_LIVE_BYTES_MAX || !shadow_allocate(record, &request))
    return;
  player->live_bytes += record->usable;
  record_enter(index);
}

static inline void player_resize(struct player *player, uint32_t index) {
  struct shadow_record *record = &shadow.records[index];
  size_t size = player_size(player), before = record->usable;
  record_leave(index);
  if (player->live_bytes < CALLS_LIVE_BYTES_MAX && shadow_resize(record, size ? size : 1, size * 0x9e3779b97f4a7c15u))
    player->live_bytes += record->usable > before ? record->usable - before : 0;
  record_enter(index);
}

static _Atomic unsigned options_set;
static _Atomic uint64_t options_touched; /* bits */

/* Any option that may change, any of its words, or a number of any scale. */
static inline void player_set_option(struct player *player) {
  const struct option_row *row = &option_rows[fuzz_number(&player->input, 1) % OPTION_COUNT];
  uint64_t draw = fuzz_number(&player->input, 2);
  char number[24];
  const char *value = NULL;
  if (row->time != OPTION_ANY_TIME || atomic_fetch_add(&options_set, 1) >= CALLS_OPTIONS_MAX)
    return;
  if (*row->choices[0]) {
    unsigned choices = 0;
    while (choices < OPTION_CHOICES_MAX && *row->choices[choices])
      choices++;
    value = row->choices[draw % choices];
  } else {
    long span = (long)row->maximum - row->minimum, at = (long)(draw >> 4) << (draw & 7);
    snprintf(number, sizeof number, "%ld", (long)row->minimum + (at < span ? at : span));
    value = number;
  }
  atomic_fetch_or(&options_touched, UINT64_C(1) << (row - option_rows));
  int error = hak_option_set(row->name, draw % 5 == 0 ? NULL : value);
  CHECK_SAY(error == 0 || row == &option_rows[OPTION_PROFILE], "%s=%s", row->name, value); /* secure is for the start */
}

static inline void calls_end(void) {
  CHECK(shadow.root == 0);
  hak_profile_stop();
  for (unsigned i = 0; i < OPTION_COUNT; i++)
    if (options_touched >> i & 1)
      CHECK(hak_option_set(option_rows[i].name, NULL) == 0);
  options_touched = 0;
  options_set = 0;
}

/* What is no call of the family. */
static inline void player_look(struct player *player) {
  struct hak_stats stats;
  switch (fuzz_number(&player->input, 1) % 6) {
  case 0:
    t_trim(0);
    break;
  case 1:
    hak_profile_start((size_t)1 << fuzz_number(&player->input, 1) % 24);
    break;
  case 2:
    hak_profile_stop();
    break;
  case 3:
    hak_stats_get(&stats);
    break;
  default:
    player_set_option(player);
  }
}

enum { CALL_ALLOCATE, CALL_FREE, CALL_RESIZE, CALL_LOOK, CALL_OTHER };

/* Plays the next call. Returns CALL_OTHER if it is the target's own: *slot says with which block. */
static inline unsigned player_step(struct player *player, uint32_t *slot) {
  static const unsigned char calls[16] = {
      CALL_ALLOCATE, CALL_ALLOCATE, CALL_ALLOCATE, CALL_ALLOCATE, CALL_ALLOCATE, CALL_FREE,  CALL_FREE, CALL_FREE,
      CALL_FREE,     CALL_RESIZE,   CALL_RESIZE,   CALL_LOOK,     CALL_OTHER,    CALL_OTHER, CALL_FREE, CALL_ALLOCATE};
  unsigned call = calls[fuzz_number(&player->input, 1) % 16];
  *slot = (uint32_t)(fuzz_number(&player->input, 1) % CALLS_SLOTS);
  uint32_t number = player->slots[*slot];
  bool is_live = number != 0 && shadow.records[number - 1].address != NULL;
  if (call == CALL_LOOK)
    player_look(player);
  else if (call != CALL_OTHER && number != 0 && !is_live)
    player_allocate(player, number - 1);
  else if (call == CALL_RESIZE && is_live)
    player_resize(player, number - 1);
  else if (call != CALL_OTHER && is_live)
    record_free(number - 1);
  return call;
}

static inline bool player_is_done(const struct player *player) { return player->input.at == player->input.end; }

static inline void player_begin(struct player *player, struct fuzz_input input, uint32_t first) {
  *player = (struct player){.input = input};
  for (uint32_t i = 0; i < CALLS_SLOTS; i++)
    player->slots[i] = first + i + 1;
}

static inline void player_end(struct player *player) {
  for (uint32_t i = 0; i < CALLS_SLOTS; i++)
    if (player->slots[i] && shadow.records[player->slots[i] - 1].address)
      record_free(player->slots[i] - 1);
}
