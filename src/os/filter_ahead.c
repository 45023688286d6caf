/* What has to be known before a filter comes. */
#include "os/filter.h"
#include "os/os.h"
#include "os/say.h"

/* Reads ahead what later calls ask for; they then use the stored values. */
static void ask_ahead(void) {
  struct lifeline line;
  os_memory_limit_ask_again();
  os_say_prepare();
  lifeline_make(&line);
}

bool os_filter_comes(void) {
  if (os_filter_is_own())
    return false;
  ask_ahead();
  return os_filter_own();
}
