/* What works in a process with one thread only works in a big one of which memory is given back.
 *     alone unshare    into a new user namespace
 *     alone setns      into another mount namespace and back
 *     alone setuid     the other way round: libc changes the user of every thread
 *     alone worker     argv[2] is the library; a thread loads it and ends: the main thread is not taken for gone
 * In a program that the library is linked into, hak_option_set("background", "off") ends the thread.
 */
#include <dirent.h>
#include <sched.h>

#include "../threads.h"
#include "again.h"

#define BLOCKS 60000
#define BLOCK_BYTES 1000
#define NOBODY 65534u

static void *(*take)(size_t);
static void (*give)(void *);

/* After this something is due to be given back. */
static void churn(void) {
  static char *blocks[BLOCKS];
  for (int i = 0; i < BLOCKS; i++) {
    blocks[i] = CHECK_GOT(take(BLOCK_BYTES));
    memset(blocks[i], 1, BLOCK_BYTES);
  }
  for (int i = 0; i < BLOCKS; i++)
    give(blocks[i]);
}

/* How many threads there are; how many of them have this user, if it is wanted. */
static int threads(unsigned user, int *of_user) {
  int count = 0;
  DIR *tasks = CHECK_GOT(opendir("/proc/self/task"));
  for (struct dirent *entry; (entry = readdir(tasks)) != NULL;) {
    char path[300], line[256];
    unsigned id = user + 1;
    snprintf(path, sizeof path, "/proc/self/task/%s/status", entry->d_name);
    FILE *file = entry->d_name[0] == '.' ? NULL : fopen(path, "r");
    if (file == NULL)
      continue;
    count++;
    while (of_user && fgets(line, sizeof line, file))
      if (sscanf(line, "Uid: %u", &id) == 1)
        break;
    fclose(file);
    if (of_user)
      *of_user += id == user;
  }
  closedir(tasks);
  return count;
}

static void wait_for_threads(int wanted) {
  for (double end = test_seconds() + TEST_PATIENCE_SECONDS; threads(0, NULL) != wanted; usleep(20000))
    CHECK_SAY(test_seconds() < end, "%d threads, not %d", threads(0, NULL), wanted);
}

static void prepare(void) {
  churn();
  wait_for_threads(2); /* so the rest of the test shows something */
#if defined(TEST_CORE) || defined(TEST_STATIC)
  CHECK(TEST_HAK(hak_option_set)("background", "off") == 0);
#endif
}

static void unshares(void) {
  for (int i = 0; i < 20; i++) {
#if defined(TEST_CORE) || defined(TEST_STATIC)
    CHECK(TEST_HAK(hak_option_set)("background", "on") == 0);
#endif
    prepare();
    if (unshare(CLONE_NEWUSER) != 0) {
      CHECK_SAY(errno != EINVAL, "there is another thread");
      test_skip_if(i == 0, "user namespaces are forbidden here");
      CHECK(errno == ENOSPC || errno == EUSERS || errno == EPERM); /* nested too deep */
    }
    CHECK(threads(0, NULL) == 1);
  }
}

static void joins(void) {
  int own = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
  test_skip_if(own < 0 || unshare(CLONE_NEWNS) != 0, "mount namespaces are forbidden here");
  prepare();
  CHECK_SAY(setns(own, CLONE_NEWNS) == 0, "errno %d", errno);
}

static void *stay(void *unused) {
  while (pause() != 0) /* setuid interrupts it */
    ;
  return NULL;
}

static void sets_user(void) {
  pthread_t thread;
  test_skip_if(getuid() != 0, "only root changes its user");
  CHECK(pthread_create(&thread, NULL, stay, NULL) == 0);
  churn();
  wait_for_threads(3);
  int of_user = 0;
  CHECK(setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
  int count = threads(NOBODY, &of_user);
  CHECK_SAY(count == 3, "%d threads", count);
  CHECK_SAY(of_user == 3, "%d of 3 threads changed", of_user);
}

#if !defined(TEST_CORE) && !defined(TEST_STATIC)
static void *load(void *path) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  CHECK_SAY(library != NULL, "%s", dlerror());
  *(void **)&take = dlsym(library, "hak_malloc");
  *(void **)&give = dlsym(library, "hak_free");
  CHECK(take && give);
  return NULL;
}

static void loads_in_worker(char *path) {
  test_thread_run(load, path);
  churn();
  wait_for_threads(2);
}

#else
static void loads_in_worker(char *path) {}
#endif

int main(int argc, char **argv) {
  const char *mode = argc > 1 ? argv[1] : "unshare";
  test_begin_with(argc, argv, "HAKMEM_BACKGROUND", "on");
  take = t_malloc;
  give = t_free;
  if (strcmp(mode, "setns") == 0)
    joins();
  else if (strcmp(mode, "setuid") == 0)
    sets_user();
  else if (strcmp(mode, "worker") == 0)
    loads_in_worker(argv[2]);
  else
    unshares();
}
