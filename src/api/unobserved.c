/* The table of observers in a build without any (HAKMEM_OBSERVE=OFF). */
#include "base/observers.h"
#include "base/text.h"
#include "os/say.h"

static void observers_start(void) {
  static const unsigned char options[] = {OPTIONS_OF_OBSERVERS};
  for (size_t i = 0; i < sizeof options; i++) {
    enum option option = (enum option)options[i];
    if (!option_is_set(option))
      continue;
    char bytes[256];
    struct text text = TEXT_IN(bytes);
    text_format(&text, "hakmem: %s does nothing: this library was built without observers\n",
                option_rows[option].environment);
    os_say(bytes);
  }
}

const struct observers observers = {.start = observers_start};
