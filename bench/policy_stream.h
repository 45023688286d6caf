/* policy_stream.h: the events of large objects, from a trace of `hak record` or from text.
 *
 * Text is a line an event: `MILLISECONDS + SITE BYTES` of a block taken, `MILLISECONDS - SITE BYTES` of one freed.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { STREAM_SENTENCE = 512 };

struct stream_event {
  uint64_t ms;        /* since the start; never falls */
  uint64_t site;      /* that the block was taken at: as policy_site_of makes it; text: STREAM_TAG and SITE */
  uint64_t bytes;     /* as hakmem rounds them; 0: nothing but time has passed */
  const char *module; /* that the site lies in; NULL: unknown */
  bool is_taken;
};
#define STREAM_TAG 1u
#define STREAM_SITE_MAX (((uint64_t)1 << 62) - 1)

/* Calls `each` for every event, and at the end with one of no bytes. Path: a file, or - for text on stdin. False:
 * `problem` says why, in one sentence; what was called stays called. */
bool stream_read(const char *path, void (*each)(void *context, const struct stream_event *event), void *context,
                 char problem[STREAM_SENTENCE]);
