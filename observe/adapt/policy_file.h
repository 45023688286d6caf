/* policy_file.h: the file format for what was learned. Pure: the bytes lie in the caller's memory.
 *
 *   | head, 128 bytes | modules, 32 bytes each | records, 100 bytes each | checksum, 8 bytes |
 *
 * Head, modules and records are the bytes of the structs below. Numbers are little-endian. In every version the first
 * 12 bytes are the mark and the version, and the last 8 are the checksum of everything before. So a file of a later
 * version is not mistaken for a damaged one. The checksum is CRC-64/XZ (polynomial of ECMA-182), which detects every
 * run of up to 64 changed bits.
 */
#pragma once

#include "adapt/policy_table.h"

#define POLICY_FILE_VERSION 1u
#define POLICY_FILE_NAME_BYTES 28u
#define POLICY_FILE_WRITER_BYTES 32u

/* Up to POLICY_FILE_DAMAGED the file may be replaced. Else it is somebody's, or its content is not known. */
enum policy_file_error {
  POLICY_FILE_OK,
  POLICY_FILE_ABSENT, /* policy_store_open only */
  POLICY_FILE_EMPTY,
  POLICY_FILE_DAMAGED,
  POLICY_FILE_FOREIGN,    /* no policy file; a file that begins like one counts as damaged */
  POLICY_FILE_NEWER,      /* whole, but of a later version */
  POLICY_FILE_OTHER,      /* whole, but for other strategies or ranges of sizes */
  POLICY_FILE_UNREADABLE, /* policy_store_open only */
};
/* Returns "it is damaged" and similar words. */
const char *policy_file_words(enum policy_file_error error);

/* The name of a module, for people: the upper bits of a site are its tag (adapt/policy_state.h). */
struct policy_module {
  uint32_t tag; /* not 0 */
  char name[POLICY_FILE_NAME_BYTES];
};

enum policy_record_kind {
  POLICY_RECORD_SITE,  /* the arm of one site and range */
  POLICY_RECORD_PRIOR, /* what all sites of a range have learned; site 0 */
  POLICY_RECORD_REST,  /* the arm of all sites without a place; site 0 */
  POLICY_RECORD_KINDS,
};

struct policy_record {
  uint64_t site;
  uint64_t total[KEEP_STRATEGIES]; /* nanoseconds, of the run that wrote the file; the next run starts at 0 */
  uint64_t total_acted;
  int32_t rating[KEEP_STRATEGIES];
  uint32_t epochs, switches;
  uint8_t kind, range, leader, nothing; /* nothing: 0, the last byte in the file */
};

/* --- reading --- */

struct policy_file {
  char mark[8];
  uint32_t version, strategies, ranges, range_first;
  uint32_t epoch_events; /* the writer's POLICY_EPOCH_EVENTS */
  uint32_t module_count, record_count;
  struct policy_table_costs costs; /* in force when it was written */
  uint32_t delays_ms[KEEP_STRATEGIES];
  char writer[POLICY_FILE_WRITER_BYTES]; /* the begin of hak_version, for people */
  const unsigned char *bytes;            /* the head ends before this member */
};

/* Checks all bytes and fills *file only if they are in order. *file points into the bytes. Texts are terminated and
 * free of control characters. */
enum policy_file_error policy_file_open(struct policy_file *file, const void *bytes, size_t length);

/* Return the i-th module and record of an opened file. */
struct policy_module policy_file_module(const struct policy_file *file, uint32_t i);
struct policy_record policy_file_record(const struct policy_file *file, uint32_t i);

/* Puts the file's content into a table: of each arm the version with more epochs stays. Entries whose set is full are
 * left out. */
void policy_file_merge(const struct policy_file *file, struct policy_table *table);

/* --- writing: begin, modules, records, end --- */

struct policy_file_writer {
  struct policy_file head;
  unsigned char *bytes;
  size_t capacity, length;
  bool fits; /* false: something did not fit, or came in the wrong order */
};

/* Returns the bytes of a file with these numbers of modules and records. A table takes 2 * POLICY_RANGES records and
 * one for each place. */
size_t policy_file_bytes(uint32_t module_count, uint32_t record_count);

/* by: the writer's version, cut to POLICY_FILE_WRITER_BYTES - 1 bytes. Names of modules are cut too. */
void policy_file_begin(struct policy_file_writer *writer, void *bytes, size_t capacity,
                       const struct policy_table_costs *costs, const char *by);
void policy_file_add_module(struct policy_file_writer *writer, uint32_t tag, const char *name);
void policy_file_add_record(struct policy_file_writer *writer, const struct policy_record *record);
/* Adds all arms of a table that have played an epoch, except sites below site_min. */
void policy_file_add_table(struct policy_file_writer *writer, const struct policy_table *table, uint64_t site_min);
/* Adds priors in which one strategy leads in all ranges, and no sites. With HAKMEM_POLICY=frozen it always acts. */
void policy_file_add_fixed(struct policy_file_writer *writer, enum keep strategy);
/* Returns the bytes of the whole file; 0 if something did not fit. */
size_t policy_file_end(struct policy_file_writer *writer);
