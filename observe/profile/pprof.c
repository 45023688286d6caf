#include "profile/pprof.h"

#include "base/text.h"
#include "inspect/maps.h"
#include "inspect/module.h"
#include "os/os.h"
#include "profile/gzip.h"
#include "profile/proto.h"

#include <string.h>
#include <sys/auxv.h>

/* Field numbers of profile.proto. */
enum profile_field {
  PROFILE_SAMPLE_TYPE = 1,
  PROFILE_SAMPLE = 2,
  PROFILE_MAPPING = 3,
  PROFILE_LOCATION = 4,
  PROFILE_FUNCTION = 5,
  PROFILE_STRING = 6,
  PROFILE_TIME_NS = 9,
  PROFILE_DURATION_NS = 10,
  PROFILE_PERIOD_TYPE = 11,
  PROFILE_PERIOD = 12,
  PROFILE_COMMENT = 13,
  PROFILE_DEFAULT_TYPE = 14,
};
enum { TYPE_NAME = 1, TYPE_UNIT = 2 };
enum { SAMPLE_LOCATIONS = 1, SAMPLE_VALUES = 2 };
enum {
  MAPPING_ID = 1,
  MAPPING_START = 2,
  MAPPING_LIMIT = 3,
  MAPPING_OFFSET = 4,
  MAPPING_FILE = 5,
  MAPPING_BUILD_ID = 6
};
enum { LOCATION_ID = 1, LOCATION_MAPPING = 2, LOCATION_ADDRESS = 3, LOCATION_LINE = 4 };
enum { LINE_FUNCTION = 1 };
enum { FUNCTION_ID = 1, FUNCTION_NAME = 2, FUNCTION_SYSTEM_NAME = 3 };

#define FIGURES 6u
#define SAMPLE_BYTES_MAX ((SAMPLES_DEPTH_MAX + FIGURES + 4) * PROTO_VARINT_BYTES_MAX)
#define MESSAGE_BYTES_MAX 128u         /* all other messages have few numbers */
#define RANGES_MAX 2048u               /* code in further mappings gets no mapping */
#define LOCATIONS_START ((size_t)4096) /* a multiple of any page */

/* A mapping for address look-up; the array is sorted by address. */
struct range {
  uintptr_t start, limit;
  uint64_t mapping;
};

/* Addresses that stand for places without an address. */
static const char place_of_others, place_of_nothing;

/* Numbers for addresses: 1, 2, 3, ... in the order of the first request. A struct of zeros is empty. */
struct location {
  uintptr_t address;
  uint64_t number; /* 0: the place is free */
};
struct locations {
  struct location *places; /* open addressing */
  size_t capacity, count;
};

struct writer {
  struct gzip gzip;
  struct locations locations;
  uint64_t string_count, mapping_count, function_count;
  uintptr_t main_start; /* start of mapping number 1 */
  size_t range_count;
  struct range ranges[RANGES_MAX];
  struct os_maps maps;
};

/* --- numbers of addresses --- */

static struct location *place_of(const struct locations *locations, uintptr_t address) {
  size_t mask = locations->capacity - 1;
  size_t i = (address * MIX_STEP >> 32) & mask;
  while (locations->places[i].number != 0 && locations->places[i].address != address)
    i = (i + 1) & mask;
  return &locations->places[i];
}

static void locations_clear(struct locations *locations) {
  if (locations->places)
    os_unmap(locations->places, locations->capacity * sizeof *locations->places);
  *locations = (struct locations){0};
}

static bool locations_grow(struct locations *locations) {
  struct locations grown = {.capacity = locations->capacity ? 2 * locations->capacity : LOCATIONS_START,
                            .count = locations->count};
  grown.places = os_map(grown.capacity * sizeof *grown.places, os_page_bytes());
  if (grown.places == NULL)
    return false;
  for (size_t i = 0; i < locations->capacity; i++)
    if (locations->places[i].number != 0)
      *place_of(&grown, locations->places[i].address) = locations->places[i];
  locations_clear(locations);
  *locations = grown;
  return true;
}

/* Returns the number of an address, a new one if `count` has grown. 0: no memory. */
static uint64_t locations_number(struct locations *locations, uintptr_t address) {
  if (locations->count >= locations->capacity / 2 && !locations_grow(locations))
    return 0;
  struct location *place = place_of(locations, address);
  if (place->number == 0)
    *place = (struct location){address, ++locations->count};
  return place->number;
}

/* --- pieces --- */

/* Begins a field of this many bytes, which follow. */
static void put_head(struct writer *w, enum profile_field field, size_t length) {
  unsigned char bytes[2 * PROTO_VARINT_BYTES_MAX];
  struct proto head = PROTO_IN(bytes);
  proto_head(&head, field, length);
  gzip_add(&w->gzip, head.bytes, head.length);
}

static void put_message(struct writer *w, enum profile_field field, const struct proto *message) {
  put_head(w, field, message->length);
  gzip_add(&w->gzip, message->bytes, message->length);
}

static void put_number(struct writer *w, enum profile_field field, uint64_t value) {
  unsigned char bytes[2 * PROTO_VARINT_BYTES_MAX];
  struct proto number = PROTO_IN(bytes);
  proto_number(&number, field, value);
  gzip_add(&w->gzip, number.bytes, number.length);
}

/* Returns the string's number in the table. Readers refuse invalid UTF-8, so such bytes become question marks. */
static uint64_t put_string(struct writer *w, const char *string) {
  put_head(w, PROFILE_STRING, strlen(string));
  while (*string) {
    size_t length = proto_character_bytes(string);
    gzip_add(&w->gzip, length ? string : "?", length ? length : 1);
    string += length ? length : 1;
  }
  return w->string_count++;
}

/* --- types and comments --- */

static void put_type(struct writer *w, enum profile_field field, uint64_t name, uint64_t unit) {
  unsigned char bytes[MESSAGE_BYTES_MAX];
  struct proto type = PROTO_IN(bytes);
  proto_number(&type, TYPE_NAME, name);
  proto_number(&type, TYPE_UNIT, unit);
  put_message(w, field, &type);
}

static void put_comment(struct writer *w, const char *words, uint64_t bytes_count) {
  char bytes[128];
  struct text text = TEXT_IN(bytes);
  text_format(&text, "%s%lu bytes", words, bytes_count);
  put_number(w, PROFILE_COMMENT, put_string(w, bytes));
}

static void put_comments(struct writer *w, const struct samples *samples, const struct pprof_about *about) {
  put_number(w, PROFILE_COMMENT, put_string(w, about->version));
  if (samples->dropped.bytes)
    put_comment(w, "no memory to record samples of ", samples->dropped.bytes);
  if (samples->others.changed)
    put_comment(w, "no room for the stacks of ", samples->others.allocated.bytes);
}

static void put_about(struct writer *w, const struct samples *samples, const struct pprof_about *about) {
  put_string(w, ""); /* string 0 must be empty */
  uint64_t count = put_string(w, "count"), bytes = put_string(w, "bytes");
  put_type(w, PROFILE_SAMPLE_TYPE, put_string(w, "alloc_objects"), count);
  put_type(w, PROFILE_SAMPLE_TYPE, put_string(w, "alloc_space"), bytes);
  put_type(w, PROFILE_SAMPLE_TYPE, put_string(w, "inuse_objects"), count);
  uint64_t in_use = put_string(w, "inuse_space");
  put_type(w, PROFILE_SAMPLE_TYPE, in_use, bytes);
  put_type(w, PROFILE_SAMPLE_TYPE, put_string(w, "peak_objects"), count);
  put_type(w, PROFILE_SAMPLE_TYPE, put_string(w, "peak_space"), bytes);
  put_type(w, PROFILE_PERIOD_TYPE, put_string(w, "space"), bytes);
  put_number(w, PROFILE_DEFAULT_TYPE, in_use);
  put_number(w, PROFILE_PERIOD, about->period_bytes);
  put_number(w, PROFILE_TIME_NS, about->time_ns);
  put_number(w, PROFILE_DURATION_NS, about->duration_ns);
  put_comments(w, samples, about);
}

/* --- mappings --- */

static uint64_t put_build_id(struct writer *w, uintptr_t start) {
  unsigned char id[OS_MODULE_ID_BYTES];
  char hex[2 * OS_MODULE_ID_BYTES + 1];
  size_t length = start ? os_module_id_mapped(start, id) : 0;
  for (size_t i = 0; i < length; i++) {
    hex[2 * i] = "0123456789abcdef"[id[i] >> 4];
    hex[2 * i + 1] = "0123456789abcdef"[id[i] & 15];
  }
  hex[2 * length] = 0;
  return length ? put_string(w, hex) : 0;
}

/* The kernel's suffix for a removed file. If another file has its name, the build-ids differ. */
static void drop_deleted(char *name) {
  static const char mark[] = " (deleted)";
  size_t length = strlen(name);
  if (length >= sizeof mark && strcmp(name + length - (sizeof mark - 1), mark) == 0)
    name[length - (sizeof mark - 1)] = 0;
}

static uint64_t put_mapping(struct writer *w, const struct os_mapping *mapping, uintptr_t first_page) {
  unsigned char bytes[MESSAGE_BYTES_MAX];
  struct proto message = PROTO_IN(bytes);
  drop_deleted(mapping->name);
  uint64_t build_id = put_build_id(w, first_page);
  proto_number(&message, MAPPING_ID, ++w->mapping_count);
  proto_number(&message, MAPPING_START, mapping->start);
  proto_number(&message, MAPPING_LIMIT, mapping->limit);
  proto_number(&message, MAPPING_OFFSET, mapping->offset);
  proto_number(&message, MAPPING_FILE, put_string(w, mapping->name));
  proto_number(&message, MAPPING_BUILD_ID, build_id);
  put_message(w, PROFILE_MAPPING, &message);
  return w->mapping_count;
}

static bool is_code_of_file(const struct os_mapping *mapping) {
  return mapping->is_executable && (*mapping->name == '/' || strcmp(mapping->name, "[vdso]") == 0);
}

/* Writes the mapping with the program's entry, or all others. */
static void put_listed(struct writer *w, bool is_main) {
  struct os_mapping mapping;
  uintptr_t first_page = 0; /* of the file that is listed, and that file's name */
  uint32_t first_name = 0;
  os_maps_open(&w->maps);
  while (os_maps_next(&w->maps, &mapping)) {
    uint32_t name = os_module_build(NULL, 0, mapping.name);
    if (mapping.offset == 0) {
      first_page = mapping.start;
      first_name = name;
    }
    bool holds_entry = getauxval(AT_ENTRY) - mapping.start < mapping.limit - mapping.start;
    if (!is_code_of_file(&mapping) || (is_main && !holds_entry) || w->range_count == RANGES_MAX)
      continue;
    if (is_main)
      w->main_start = mapping.start;
    bool is_known = !is_main && mapping.start == w->main_start;
    uint64_t number = is_known ? 1 : put_mapping(w, &mapping, first_name == name ? first_page : 0);
    if (!is_main)
      w->ranges[w->range_count++] = (struct range){mapping.start, mapping.limit, number};
  }
  os_maps_close(&w->maps);
}

static uint64_t mapping_of(const struct writer *w, uintptr_t address) {
  size_t low = 0, high = w->range_count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (address >= w->ranges[middle].limit)
      low = middle + 1;
    else
      high = middle;
  }
  return low < w->range_count && address >= w->ranges[low].start ? w->ranges[low].mapping : 0;
}

/* --- stacks --- */

/* A location that has a name instead of an address. */
static void put_named(struct writer *w, struct proto *location, const char *name) {
  unsigned char function_bytes[MESSAGE_BYTES_MAX], line_bytes[MESSAGE_BYTES_MAX];
  struct proto function = PROTO_IN(function_bytes), line = PROTO_IN(line_bytes);
  uint64_t string = put_string(w, name);
  proto_number(&function, FUNCTION_ID, ++w->function_count);
  proto_number(&function, FUNCTION_NAME, string);
  proto_number(&function, FUNCTION_SYSTEM_NAME, string);
  put_message(w, PROFILE_FUNCTION, &function);
  proto_number(&line, LINE_FUNCTION, w->function_count);
  proto_message(location, LOCATION_LINE, &line);
}

/* Returns the location's number, and writes it if its address is new. Without memory, nothing is written any more. */
static uint64_t put_location(struct writer *w, uintptr_t address) {
  unsigned char bytes[MESSAGE_BYTES_MAX];
  struct proto location = PROTO_IN(bytes);
  size_t known = w->locations.count;
  uint64_t number = locations_number(&w->locations, address);
  if (number == 0)
    w->gzip.file->error = OS_FILE_NO_MEMORY;
  if (w->locations.count == known)
    return number;
  proto_number(&location, LOCATION_ID, number);
  if (address == (uintptr_t)&place_of_others || address == (uintptr_t)&place_of_nothing) {
    put_named(w, &location, address == (uintptr_t)&place_of_others ? "[other stacks]" : "[no stack]");
  } else {
    proto_number(&location, LOCATION_MAPPING, mapping_of(w, address));
    proto_number(&location, LOCATION_ADDRESS, address);
  }
  put_message(w, PROFILE_LOCATION, &location);
  return number;
}

static void put_stack(struct writer *w, const struct samples *samples, const struct sample_stack *stack) {
  unsigned char bytes[SAMPLE_BYTES_MAX];
  struct proto sample = PROTO_IN(bytes);
  uint64_t numbers[SAMPLES_DEPTH_MAX];
  const uintptr_t *addresses = sample_stack_addresses(stack);
  size_t count = 0;
  for (; count < stack->depth; count++)
    numbers[count] = put_location(w, addresses[count] - 1);
  if (count == 0)
    numbers[count++] = put_location(w, (uintptr_t)(stack == &samples->others ? &place_of_others : &place_of_nothing));
  struct sample_weight peak = samples_at_peak(samples, stack);
  const uint64_t figures[FIGURES] = {sample_objects(stack->allocated),
                                     stack->allocated.bytes,
                                     sample_objects(stack->live),
                                     stack->live.bytes,
                                     sample_objects(peak),
                                     peak.bytes};
  proto_numbers(&sample, SAMPLE_LOCATIONS, numbers, count);
  proto_numbers(&sample, SAMPLE_VALUES, figures, FIGURES);
  put_message(w, PROFILE_SAMPLE, &sample);
}

/* --- the file --- */

#define WRITER_BYTES round_up(sizeof(struct writer), os_page_bytes())

void pprof_add(struct os_file_part *file, const struct samples *samples, const struct pprof_about *about) {
  KEEP_ERRNO;
  size_t cursor = 0;
  struct writer *w = os_map(WRITER_BYTES, os_page_bytes());
  if (w == NULL) {
    file->error = OS_FILE_NO_MEMORY;
    return;
  }
  gzip_begin(&w->gzip, file);
  put_about(w, samples, about);
  put_listed(w, true); /* must come first */
  put_listed(w, false);
  for (const struct sample_stack *stack; !file->error && (stack = samples_next(samples, &cursor)) != NULL;)
    put_stack(w, samples, stack);
  gzip_end(&w->gzip);
  locations_clear(&w->locations);
  os_unmap(w, WRITER_BYTES);
}
