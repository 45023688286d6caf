#include "inspect/access.h"

#include <signal.h>
#include <string.h>
#include <ucontext.h>

/* A handler that the program installs may call the one that it replaced, which may be ours. So each call of
 * os_access_watch that finds such a handler installs another of ours, which replaced that one; else the two would call
 * each other for ever. When all are in use, the last one is installed again, and the program's last handler is not
 * called. */
#define LEVELS 4u

static void (*look_at)(const struct os_access *access);
static struct sigaction before[LEVELS] SPARSE; /* what each of ours replaced */
static unsigned levels_used;

#if defined(__x86_64__)
#define ERROR_WRITE 2 /* of a page fault */
#elif defined(__aarch64__)
#define SYNDROME_MAGIC 0x45535201u /* of the record that holds the syndrome */
#define SYNDROME_CLASS_DATA 0x24u  /* a data abort of the program; bit 6: a write */

struct record_head {
  uint32_t magic, bytes;
};

static enum os_access_kind kind_of_records(const ucontext_t *context) {
  const unsigned char *at = (const unsigned char *)context->uc_mcontext.__reserved;
  const unsigned char *end = at + sizeof context->uc_mcontext.__reserved;
  struct record_head head;
  for (; at + sizeof head + sizeof(uint64_t) <= end; at += head.bytes) {
    memcpy(&head, at, sizeof head);
    if (head.magic == 0 || head.bytes < sizeof head)
      break;
    uint64_t syndrome;
    memcpy(&syndrome, at + sizeof head, sizeof syndrome);
    if (head.magic == SYNDROME_MAGIC && syndrome >> 26 == SYNDROME_CLASS_DATA)
      return syndrome >> 6 & 1 ? OS_ACCESS_WRITE : OS_ACCESS_READ;
  }
  return OS_ACCESS_UNKNOWN;
}
#endif

static struct os_access access_of(const siginfo_t *info, const ucontext_t *context) {
  struct os_access access = {.address = (uintptr_t)info->si_addr};
#if defined(__x86_64__)
  access.place = (uintptr_t)context->uc_mcontext.gregs[REG_RIP];
  access.kind = context->uc_mcontext.gregs[REG_ERR] & ERROR_WRITE ? OS_ACCESS_WRITE : OS_ACCESS_READ;
#elif defined(__aarch64__)
  access.place = context->uc_mcontext.pc;
  access.kind = kind_of_records(context);
#endif
  return access;
}

/* Ends the program as the kernel would have: the instruction runs again, or the sent signal comes again. */
static void end_by_default(int number, const siginfo_t *info) {
  struct sigaction none = {.sa_handler = SIG_DFL};
  sigaction(number, &none, NULL);
  if (info->si_code <= 0)
    raise(number);
}

static void pass_on(unsigned level, int number, siginfo_t *info, void *context) {
  struct sigaction former = before[level];
  if (former.sa_handler == SIG_DFL || (former.sa_handler == SIG_IGN && info->si_code > 0)) {
    end_by_default(number, info); /* the kernel lets no program ignore its own faults */
  } else if (former.sa_handler != SIG_IGN) {
    if (former.sa_flags & (int)SA_RESETHAND)
      before[level] = (struct sigaction){.sa_handler = SIG_DFL};
    if (former.sa_flags & SA_SIGINFO)
      former.sa_sigaction(number, info, context);
    else
      former.sa_handler(number);
  }
}

static void fault_handle(unsigned level, int number, siginfo_t *info, void *context) {
  if (info->si_code > 0) { /* not sent by a process */
    KEEP_ERRNO;
    struct os_access access = access_of(info, context);
    look_at(&access);
  }
  pass_on(level, number, info, context);
}

typedef void fault_handler(int number, siginfo_t *info, void *context);
static void handle_0(int number, siginfo_t *info, void *context) { fault_handle(0, number, info, context); }
static void handle_1(int number, siginfo_t *info, void *context) { fault_handle(1, number, info, context); }
static void handle_2(int number, siginfo_t *info, void *context) { fault_handle(2, number, info, context); }
static void handle_3(int number, siginfo_t *info, void *context) { fault_handle(3, number, info, context); }
static fault_handler *const handlers[LEVELS] = {handle_0, handle_1, handle_2, handle_3};

bool os_access_watch(void (*look)(const struct os_access *access)) {
  struct sigaction present;
  if (sigaction(SIGSEGV, NULL, &present) != 0)
    return false;
  for (unsigned level = 0; level < LEVELS; level++)
    if ((present.sa_flags & SA_SIGINFO) && present.sa_sigaction == handlers[level])
      return true;
  look_at = look;
  if (levels_used < LEVELS)
    before[levels_used++] = present;
  const struct sigaction ours = {
      .sa_sigaction = handlers[levels_used - 1],
      .sa_mask = present.sa_mask,
      .sa_flags = SA_SIGINFO | SA_ONSTACK | (present.sa_flags & (SA_RESTART | SA_NODEFER)),
  };
  return sigaction(SIGSEGV, &ours, NULL) == 0;
}
