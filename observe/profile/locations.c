#include "profile/locations.h"

#include "os/os.h"

#define LOCATIONS_START ((size_t)4096) /* a multiple of any page */

static struct location *place_of(const struct locations *locations, uintptr_t address) {
  size_t mask = locations->capacity - 1;
  size_t i = (address * MIX_STEP >> 32) & mask;
  while (locations->places[i].number != 0 && locations->places[i].address != address)
    i = (i + 1) & mask;
  return &locations->places[i];
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

uint64_t locations_number(struct locations *locations, uintptr_t address) {
  if (locations->count >= locations->capacity / 2 && !locations_grow(locations))
    return 0;
  struct location *place = place_of(locations, address);
  if (place->number == 0)
    *place = (struct location){address, ++locations->count};
  return place->number;
}

void locations_clear(struct locations *locations) {
  if (locations->places)
    os_unmap(locations->places, locations->capacity * sizeof *locations->places);
  *locations = (struct locations){0};
}
