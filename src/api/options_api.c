/* hak_option_set and hak_option_get. */
#include "base/observers.h"
#include "base/options.h"
#include "base/text.h"
#include "budget/usage.h"
#include "hakmem/hakmem.h"
#include "reclaim/background.h"

#include <string.h>

_Static_assert(HAK_OPTION_BYTES > 20, "a number and its terminator fit");

int hak_option_set(const char *name, const char *value) {
  enum option option;
  if (name == NULL || !option_find(name, &option))
    return ENOENT;
  enum option_error error = option_set(option, value);
  if (error != OPTION_OK)
    return error == OPTION_FIXED ? EPERM : EINVAL;
  KEEP_ERRNO;
  usage_limits_apply();
  if (observers.options_changed != NULL)
    observers.options_changed();
  background_apply();
  return 0;
}

int hak_option_get(const char *name, char *value, size_t size) {
  enum option option;
  if (name == NULL || !option_find(name, &option))
    return ENOENT;
  char bytes[HAK_OPTION_BYTES];
  struct text text = TEXT_IN(bytes);
  const char *found = option_string(option);
  if (found == NULL) {
    option_text(option, option_value(option), &text);
    found = bytes;
  }
  size_t length = strlen(found);
  if (length >= size)
    return ERANGE;
  memcpy(value, found, length + 1);
  return 0;
}
