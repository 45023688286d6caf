/* A library whose function keeps its room on the stack: two of them differ in nothing else. */
typedef void bottom_function(void *argument);

__attribute__((visibility("default"))) void plugin_call(bottom_function *at_bottom, void *argument) {
  char room[ROOM_BYTES];
  __asm__ volatile("" : : "r"(room) : "memory");
  at_bottom(argument);
  __asm__ volatile("" : : "r"(room) : "memory");
}
