/* policy_file.h: what was learned, as bytes that outlive the process. Pure: the bytes lie in memory of the caller's.
 *
 *   | head, 128 bytes | modules, 32 bytes each | records, 100 bytes each | checksum, 8 bytes |
 *
 * Numbers are little-endian. The mark and the version are the first 12 bytes and the checksum of everything before it
 * is the last 8 in every version, so a file of a later one is told from a damaged one. The checksum is CRC-64/XZ
 * (polynomial of ECMA-182): it finds every run of up to 64 changed bits.
 */
#ifndef HAK_ADAPT_POLICY_FILE_H
#define HAK_ADAPT_POLICY_FILE_H

#include "adapt/site_policy.h"

#define POLICY_FILE_VERSION 1u
#define POLICY_FILE_NAME_BYTES 28u
#define POLICY_FILE_WRITER_BYTES 32u

enum policy_file_error {
  POLICY_FILE_OK,
  POLICY_FILE_FOREIGN, /* no policy file at all; what begins like one is a damaged one */
  POLICY_FILE_DAMAGED,
  POLICY_FILE_NEWER, /* whole, of a version that is not known here */
  POLICY_FILE_OTHER, /* whole, but its ratings are of other strategies or ranges of sizes */
};

/* For people: what the upper bits of a site stand for (adapt/view.h). */
struct policy_module {
  uint32_t tag; /* not 0 */
  char name[POLICY_FILE_NAME_BYTES];
};

enum policy_record_kind {
  POLICY_RECORD_SITE,  /* the arm of one site and range */
  POLICY_RECORD_PRIOR, /* what all sites of a range have learned; site 0 */
  POLICY_RECORD_REST,  /* what those without a place have; site 0 */
  POLICY_RECORD_KINDS,
};

struct policy_record {
  uint64_t site;
  uint64_t total[KEEP_STRATEGIES]; /* nanoseconds, of the run that wrote the file; not carried on */
  uint64_t total_acted;
  int32_t rating[KEEP_STRATEGIES];
  uint32_t epochs, switches;
  uint8_t kind, range, leader;
};

/* What a file says of an arm; site: 0 unless that is its kind. */
struct policy_record policy_record_of(const struct evolve_arm *arm, enum policy_record_kind kind, uint64_t site,
                                      unsigned range);

/* --- reading --- */

struct policy_file {
  const unsigned char *bytes;
  uint32_t module_count, record_count;
  uint32_t epoch_events;                 /* of the writer's */
  struct site_costs costs;               /* in force when it was written */
  char writer[POLICY_FILE_WRITER_BYTES]; /* "hakmem 0.1.0" */
};

/* Checks all of the bytes, and fills *file only if they are in order; then the bytes must stay for as long as it is
 * used. Texts are terminated and free of control characters. */
enum policy_file_error policy_file_open(struct policy_file *file, const void *bytes, size_t length);

/* The i-th, of an opened file. */
struct policy_module policy_file_module(const struct policy_file *file, uint32_t i);
struct policy_record policy_file_record(const struct policy_file *file, uint32_t i);

/* Gives everything in the file its place in a table; what has none because its set is full is left out. */
void policy_file_apply(const struct policy_file *file, struct site_table *table);

/* What others have written meanwhile: of each arm whichever has played more stays, the table's or the file's. */
void policy_file_merge(const struct policy_file *file, struct site_table *table);

/* --- writing: begin, modules, records, end --- */

struct policy_file_writer {
  unsigned char *bytes;
  size_t capacity, length;
  uint32_t module_count, record_count;
  bool fits; /* nothing was left out, or came in another order */
};

/* Bytes of a file with so many modules and records. One table takes 2 * SITE_RANGES records and one for each place. */
size_t policy_file_bytes(uint32_t module_count, uint32_t record_count);

/* by: who writes, cut to POLICY_FILE_WRITER_BYTES - 1 bytes, as a module's name is to its bytes. */
void policy_file_begin(struct policy_file_writer *writer, void *bytes, size_t capacity, const struct site_costs *costs,
                       const char *by);
void policy_file_add_module(struct policy_file_writer *writer, uint32_t tag, const char *name);
void policy_file_add_record(struct policy_file_writer *writer, const struct policy_record *record);
/* All of a table that has played an epoch, but for sites below site_min. */
void policy_file_add_table(struct policy_file_writer *writer, const struct site_table *table, uint64_t site_min);
/* One strategy leads in all ranges, and no site has an arm: with HAKMEM_POLICY=frozen it always acts. */
void policy_file_add_fixed(struct policy_file_writer *writer, enum keep strategy);
/* Bytes of the whole file; 0 if something did not fit. */
size_t policy_file_end(struct policy_file_writer *writer);

#endif
