/* live_page.h: the format of the page with figures that a process keeps for readers (option `live`).
 *
 *   head      constant once the page can be found, except `awake` and `sequence`
 *   names     the names of the columns, each terminated
 *   slot 0/1  two snapshots: one is whole while the other is written
 *
 * Programs and readers may be of different versions: a reader looks for tables and columns by name, and takes offsets
 * and lengths from the head. The layout number changes only when this file's structs do.
 *
 * sequence rises by two for each snapshot and is odd during a write. Snapshot k (from 1 on) lies in slot k % 2, is
 * whole from sequence 2k on, and is overwritten from 2k + 3 on.
 *   P1  words[0] of a whole slot is the checksum of the others, words[1] is its k
 */
#pragma once

#include "base/words.h"

#define LIVE_FILE_NAME "hakmem-live"
#define LIVE_MARK "hakmem live page" /* not terminated */
#define LIVE_LAYOUT 1u
#define LIVE_TABLES_MAX 8u
#define LIVE_VERSION_BYTES 128u

struct live_table {
  char name[16];
  uint32_t columns, rows_max;
  uint32_t names_at; /* from the page's begin */
  uint32_t words_at; /* from a slot's begin, in words: how many rows there are, then the rows */
};

struct live_head {
  char mark[sizeof LIVE_MARK - 1];
  uint32_t layout, page_bytes;
  uint32_t slot_at[2]; /* from the page's begin */
  uint32_t slot_words, table_count;
  uint64_t pid;     /* as the process knows it */
  uint64_t made_ns; /* CLOCK_MONOTONIC */
  char version[LIVE_VERSION_BYTES];
  _Atomic uint64_t sequence;
  _Atomic uint32_t awake; /* futex word of the background thread: waking it makes a fresh snapshot */
  uint32_t reserved;
  struct live_table tables[LIVE_TABLES_MAX];
};

enum live_word { LIVE_CHECKSUM, LIVE_NUMBER, LIVE_HEADER_WORDS };

/* Adds a word to the checksum, which covers the words after the first and depends on their order. */
static inline uint64_t live_checksum_on(uint64_t sum, uint64_t word) {
  sum = (sum ^ word) * 0x9e3779b97f4a7c15u;
  return sum ^ sum >> 29;
}

static inline uint64_t live_snapshot_of(uint64_t sequence) { return sequence / 2; }
/* Tells whether a copy of snapshot k is whole, if `sequence` was read after the copy. */
static inline bool live_is_whole(uint64_t k, uint64_t sequence) { return sequence >= 2 * k && sequence < 2 * k + 3; }
