/* trap.c: undefined behaviour. In the check build it ends the program: the control of that build's flags. */
#include <limits.h>

int main(int argc, char **argv) {
  (void)argv;
  return INT_MAX - 1 + argc + argc < 0;
}
