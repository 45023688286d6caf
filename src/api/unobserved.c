/* The table of observers in a build without any (HAKMEM_OBSERVE=OFF). */
#include "base/observers.h"
#include "base/text.h"
#include "os/say.h"

static const enum option options_of_observers[] = {
    OPTION_STATS,        OPTION_STATS_FILE,        OPTION_POLICY, OPTION_POLICY_FILE, OPTION_COUNTING,
    OPTION_HEAP_PROFILE, OPTION_HEAP_PROFILE_FILE, OPTION_LIVE,   OPTION_GUARD,
};

/* Reports options that ask for an observer. */
static void observers_start(void) {
  for (size_t i = 0; i < sizeof options_of_observers / sizeof *options_of_observers; i++) {
    enum option option = options_of_observers[i];
    if (!option_is_set(option))
      continue;
    char bytes[256];
    struct text text = TEXT_IN(bytes);
    text_string(&text, "hakmem: ");
    text_string(&text, option_rows[option].environment);
    text_string(&text, " does nothing: this library was built without observers\n");
    os_say(bytes);
  }
}

const struct observers observers = {.start = observers_start};
