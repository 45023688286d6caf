#include "reclaim/pressure.h"

#include "base/options.h"
#include "os/cgroup.h"
#include "os/filter.h"
#include "os/os.h"

static struct {
  int fd; /* -1: none */
  struct os_file file;
  bool was_asked_for;
} pressure = {.fd = -1};

static void pressure_open(void) {
  pressure.fd = option_value(OPTION_CGROUP) == CGROUP_ON && os_may_call() ? os_pressure_open("") : -1;
  pressure.file = pressure.fd < 0 ? (struct os_file){0} : os_file_identity(pressure.fd);
}

/* False if the program has closed the descriptor; the number may stand for a file of its own then. */
static bool pressure_is_ours(void) {
  return pressure.fd >= 0 && os_may_call() && os_file_is(pressure.fd, pressure.file);
}

static void pressure_close(void) {
  if (pressure_is_ours())
    os_text_close(pressure.fd);
  pressure.fd = -1;
}

bool pressure_came(void) {
  if (pressure.fd < 0 && !pressure.was_asked_for) {
    pressure.was_asked_for = true;
    pressure_open();
  }
  if (!pressure_is_ours())
    return false;
  enum os_pressure found = os_pressure_poll(pressure.fd);
  if (found == OS_PRESSURE_GONE)
    pressure_close();
  return found == OS_PRESSURE_CAME;
}

COLD void pressure_in_child(void) {
  pressure_close();
  pressure.was_asked_for = false;
}
