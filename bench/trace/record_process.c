/* record_process.c: when a process is recorded, and how its recording ends.
 *
 * `hak record` sets in the environment: HAK_RECORD_FILE, an absolute path; HAK_RECORD_PID, the process it is for;
 * HAK_RECORD_RUN, a number; HAK_RECORD_LIMIT, bytes; HAK_RECORD_CHILDREN, if others are recorded too, each
 * into FILE.PID.
 *
 * A forked child finds the mode zeroed, whatever made the fork, and starts anew or is not recorded. An exec keeps the
 * process: its next image goes on in the same file. */
#include "record.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static _Atomic uint32_t mode_at_first = RECORD_UNSTARTED;
_Atomic uint32_t *record_mode = &mode_at_first;
uint32_t record_image;
static pid_t owner; /* the process that the recording is of */
static atomic_bool is_starting;

static pid_t process(void) { return (pid_t)syscall(SYS_getpid); }
/* False also in the child of a vfork, which has our memory but is another process. */
static bool is_recorded(void) {
  return atomic_load_explicit(record_mode, memory_order_relaxed) == RECORD_ON && process() == owner;
}

static void finish(uint32_t reason, uint64_t code) {
  bool was_hurried = record_self.is_hurried;
  record_self.is_hurried = was_hurried || reason == TRACE_END_SIGNAL || record_self.depth >= RECORD_INSIDE;
  record_self.depth += RECORD_INSIDE;
  record_lanes_flush();
  record_file_end(reason, code);
  record_self.depth -= RECORD_INSIDE;
  record_self.is_hurried = was_hurried;
}

/* --- the end ---------------------------------------------------------------------------------------- */

/* Other libraries' destructors, and threads, may still use malloc. */
static void at_end(void) {
  if (is_recorded()) {
    atomic_store(&record_is_ending, true);
    finish(TRACE_END_EXIT, 0);
  }
}
__attribute__((destructor)) static void unload(void) { at_end(); }

RECORD_EXPORT _Noreturn void _exit(int status) {
  at_end();
  for (;;)
    syscall(SYS_exit_group, status);
}
RECORD_EXPORT _Noreturn void _Exit(int status) { _exit(status); }

/* Signals whose default ends the process, and that programs leave at it. SIGINT is not among them: shells and
 * interpreters look whether it has its default. */
static const int deadly[] = {SIGABRT, SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTERM};

/* Set up so that the signal has its default again when this runs. */
static void on_deadly(int number, siginfo_t *info, void *context) {
  (void)context;
  int error = errno;
  if (is_recorded())
    finish(TRACE_END_SIGNAL, (uint64_t)number);
  /* A fault comes again by itself, at the same place. */
  if (info->si_code <= 0)
    syscall(SYS_tgkill, process(), syscall(SYS_gettid), number);
  errno = error;
}

static void watch_signals(void) {
  for (size_t i = 0; i < sizeof deadly / sizeof *deadly; i++) {
    struct sigaction before, ours = {.sa_flags = SA_SIGINFO | SA_RESETHAND | SA_NODEFER | SA_ONSTACK};
    ours.sa_sigaction = on_deadly;
    sigemptyset(&ours.sa_mask);
    if (sigaction(deadly[i], NULL, &before) == 0 && !(before.sa_flags & SA_SIGINFO) && before.sa_handler == SIG_DFL)
      sigaction(deadly[i], &ours, NULL);
  }
}

/* --- the start -------------------------------------------------------------------------------------- */

static void in_forked_child(void) { atomic_store(record_mode, RECORD_UNSTARTED); }

/* On a page of its own that the kernel zeroes in a forked child. */
static void move_mode(void) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  void *mapped = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped != MAP_FAILED) {
    madvise(mapped, page, MADV_WIPEONFORK);
    record_mode = mapped;
  }
  /* For kernels that do not. */
  pthread_atfork(NULL, NULL, in_forked_child);
}

static uint64_t number_in(const char *name) {
  const char *text = getenv(name);
  return text ? strtoull(text, NULL, 10) : 0;
}

static bool start(void) {
  const char *path = getenv("HAK_RECORD_FILE");
  bool is_first = owner == 0, is_meant = path && number_in("HAK_RECORD_PID") == (uint64_t)process();
  owner = process();
  if (!path || (!is_meant && !getenv("HAK_RECORD_CHILDREN")))
    return false;
  char own_path[4096], program[4096];
  int length = snprintf(own_path, sizeof own_path, is_meant ? "%s" : "%s.%d", path, (int)owner);
  ssize_t program_bytes = readlink("/proc/self/exe", program, sizeof program - 1);
  program[program_bytes < 0 ? 0 : program_bytes] = 0;
  if (length < 0 || (size_t)length >= sizeof own_path || !record_lanes_open())
    return false;
  record_image++;
  record_modules_open(program);
  if (is_first)
    watch_signals();
  else
    record_file_forget();
  /* The file wants to be asked for only while it is recorded. */
  atomic_store(record_mode, RECORD_ON);
  if (record_file_open(own_path, number_in("HAK_RECORD_LIMIT"), number_in("HAK_RECORD_RUN"), program))
    return true;
  atomic_store(record_mode, RECORD_OFF);
  return false;
}

bool record_start(void) {
  /* Before libc has set up the environment nothing can be known. */
  if (!environ || atomic_exchange(&is_starting, true))
    return false;
  int error = errno;
  record_self.depth++;
  if (record_mode == &mode_at_first)
    move_mode();
  bool is_on = start();
  if (!is_on)
    atomic_store(record_mode, RECORD_OFF);
  record_self.depth--;
  atomic_store(&is_starting, false);
  errno = error;
  return is_on;
}

__attribute__((constructor)) static void load(void) {
  (void)record_wanted();
  if (is_recorded())
    at_quick_exit(at_end);
}

/* --- exec ------------------------------------------------------------------------------------------- */

static void *behind(const char *name) {
  record_self.depth++;
  void *found = dlsym(RTLD_NEXT, name);
  record_self.depth--;
  return found;
}

/* What the lanes hold goes with this image, if the exec succeeds. */
static bool before_exec(void) {
  bool is_ours = is_recorded();
  if (is_ours)
    finish(TRACE_END_EXEC, 0);
  return is_ours;
}
static int after_exec(bool is_ours, int result) {
  int error = errno;
  if (is_ours)
    record_file_resume();
  errno = error;
  return result;
}

#define EXEC(name, parameters, arguments)                                                                              \
  RECORD_EXPORT int name parameters {                                                                                  \
    int(*call) parameters;                                                                                             \
    *(void **)&call = behind(#name);                                                                                   \
    bool is_ours = before_exec();                                                                                      \
    return after_exec(is_ours, call arguments);                                                                        \
  }
EXEC(execve, (const char *path, char *const words[], char *const variables[]), (path, words, variables))
EXEC(execv, (const char *path, char *const words[]), (path, words))
EXEC(execvp, (const char *file, char *const words[]), (file, words))
EXEC(execvpe, (const char *file, char *const words[], char *const variables[]), (file, words, variables))
EXEC(fexecve, (int fd, char *const words[], char *const variables[]), (fd, words, variables))

/* The words of a list, as an array; `tail` may read what stands behind them, `call` is made with them. */
#define EXEC_LIST(name, tail, call)                                                                                    \
  RECORD_EXPORT int name(const char *path, const char *word, ...) {                                                    \
    va_list list;                                                                                                      \
    size_t count = 1;                                                                                                  \
    va_start(list, word);                                                                                              \
    for (const char *at = word; at; at = va_arg(list, const char *))                                                   \
      count++;                                                                                                         \
    va_end(list);                                                                                                      \
    char *words[count];                                                                                                \
    va_start(list, word);                                                                                              \
    words[0] = (char *)(uintptr_t)word;                                                                                \
    for (size_t i = 1; i < count; i++)                                                                                 \
      words[i] = va_arg(list, char *);                                                                                 \
    tail;                                                                                                              \
    va_end(list);                                                                                                      \
    return call;                                                                                                       \
  }
EXEC_LIST(execl, (void)0, execv(path, words))
EXEC_LIST(execlp, (void)0, execvp(path, words))
EXEC_LIST(execle, char *const *variables = va_arg(list, char *const *), execve(path, words, variables))
