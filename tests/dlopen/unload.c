/* A plugin that is linked with hakmem statically is closed. hakmem's thread, its fork handlers and what it registered
 * for the end of the main thread outlive that. argv[1] is the plugin. */
#include <dlfcn.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../check.h"

static void use_and_close(const char *path) {
  void *plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  CHECK_SAY(plugin != NULL, "%s", dlerror());
  int (*use)(void) = (int (*)(void))dlsym(plugin, "plugin_use");
  CHECK(use != NULL && use());
  CHECK(dlclose(plugin) == 0);
  usleep(200000); /* the thread works */
}

int main(int argc, char **argv) {
  CHECK(argc > 1);
  test_begin(argc, argv);
  use_and_close(argv[1]);
  use_and_close(argv[1]);
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0)
    _exit(0);
  int status;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  pthread_exit(NULL); /* the last thread that the kernel counts: the process ends with 0 */
}
