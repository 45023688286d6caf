#include "base/options.h"

#define WORDS(...) {__VA_ARGS__}
#define NO_WORDS {""}
#define OFF_ON 0, SWITCH_ON, WORDS("off", "on")
#define ROW(option, name, environment, unit, defaults, ...) [OPTION_##option] = {name, environment, unit, __VA_ARGS__},

const struct option_row option_rows[OPTION_COUNT] = {
#include "base/option_rows.def"
};
