/* doctor_program.c: checks whether the program can run on a preloaded library. */
#include "tools/doctor.h"

#include <elf.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#ifdef __x86_64__
#define OWN_MACHINE EM_X86_64
#else
#define OWN_MACHINE EM_AARCH64
#endif

#define LINK_IT "link libhakmem.a into it; docs/deployment.md, Static linking"

static bool is_whole(const struct doctor *doctor) { return doctor->elf.is_elf && doctor->elf.bits == 64; }

void doctor_look_script(struct doctor *doctor) {
  if (*doctor->script)
    doctor_ok("%s is a script, run by %s", doctor->script, doctor->program);
}

void doctor_look_machine_code(struct doctor *doctor) {
  const struct elf *elf = &doctor->elf;
  if (!*doctor->program)
    return;
  if (!elf->is_elf)
    doctor_problem("%s is neither a program nor a script whose first line names an interpreter\n"
                   "begin it with #!/bin/sh, for example",
                   doctor->program);
  else if (elf->bits != 64)
    doctor_problem("%s is a program of 32 bits, and hakmem is of 64\nbuild it for 64 bits", doctor->program);
  else if (elf->machine != OWN_MACHINE)
    doctor_problem("%s is a program for another machine (ELF machine %u, not %u)\nbuild hakmem and it for the same one",
                   doctor->program, elf->machine, (unsigned)OWN_MACHINE);
  else
    doctor_ok("%s is a program of 64 bits for this machine", doctor->program);
}

void doctor_look_static(struct doctor *doctor) {
  if (!is_whole(doctor))
    return;
  if (doctor->elf.interpreter)
    doctor_ok("%s is loaded by %s, which preloads", doctor->program, doctor->elf.interpreter);
  else if (doctor->has_hakmem)
    doctor_ok("%s is statically linked, with hakmem in it", doctor->program);
  else
    doctor_problem("%s is statically linked: nothing can be preloaded into it\n" LINK_IT, doctor->program);
}

/* --- the same libc --- */

static const char *libc_of_loader(const char *interpreter) {
  const char *name = doctor_base_name(interpreter);
  if (strncmp(name, "ld-musl", strlen("ld-musl")) == 0)
    return "musl";
  return strncmp(name, "ld-linux", strlen("ld-linux")) == 0 ? "glibc" : NULL;
}

static const char *libc_of_library(const struct elf *elf) {
  for (unsigned i = 0; i < elf->needed_count; i++) {
    if (strcmp(elf->needed[i], "libc.so.6") == 0)
      return "glibc";
    if (strcmp(elf->needed[i], "libc.so") == 0 || strncmp(elf->needed[i], "libc.musl-", strlen("libc.musl-")) == 0)
      return "musl";
  }
  return NULL;
}

void doctor_look_libc(struct doctor *doctor) {
  struct elf library;
  if (!is_whole(doctor) || !doctor->elf.interpreter || doctor->has_hakmem || !doctor->library ||
      !elf_open(&library, doctor->library))
    return;
  const char *of_program = libc_of_loader(doctor->elf.interpreter), *of_library = libc_of_library(&library);
  if (of_program == NULL || of_library == NULL)
    return;
  if (strcmp(of_program, of_library) != 0)
    doctor_problem("%s is of %s, and %s of %s: it cannot be loaded\n%s", doctor->program, of_program, doctor->library,
                   of_library,
                   strcmp(of_program, "musl") == 0 ? "hak build musl, and preload that library"
                                                   : "hak build release, and preload that library");
  else
    doctor_ok("%s and libhakmem.so are of %s", doctor->program, of_program);
}

/* --- raised privileges --- */

/* Reads AT_SECURE from the process's auxiliary vector. */
static bool process_is_secure(const struct doctor *doctor) {
  char path[PATH_MAX];
  size_t length;
  unsigned long pair[2];
  snprintf(path, sizeof path, "%s%s/auxv", doctor->root, doctor->proc);
  const char *bytes = doctor_read_bytes(path, &length);
  for (size_t i = 0; bytes && i + sizeof pair <= length; i += sizeof pair) {
    memcpy(pair, bytes + i, sizeof pair);
    if (pair[0] == AT_SECURE)
      return pair[1] != 0;
  }
  return false;
}

/* Returns what raises privileges in the file, and whether that would raise those of this user: of several marks the one
 * that would. */
static const char *privilege_of_file(const struct doctor *doctor, bool *is_raised) {
  struct stat status;
  struct statvfs mount;
  *is_raised = false;
  if (stat(doctor->program, &status) != 0 || (statvfs(doctor->program, &mount) == 0 && (mount.f_flag & ST_NOSUID) != 0))
    return NULL;
  const struct {
    bool is_there, is_more;
    const char *words;
  } marks[] = {
      {(status.st_mode & S_ISUID) != 0, status.st_uid != getuid(), "set-uid"},
      {(status.st_mode & S_ISGID) != 0 && (status.st_mode & S_IXGRP) != 0, status.st_gid != getgid(), "set-gid"},
      {getxattr(doctor->program, "security.capability", NULL, 0) > 0, getuid() != 0, "given capabilities by its file"},
  };
  bool is_ignored = doctor_line_number(doctor_read(doctor, "%s/status", doctor->proc), "NoNewPrivs:") == 1;
  const char *found = NULL;
  for (size_t i = 0; i < sizeof marks / sizeof *marks && !*is_raised; i++)
    if (marks[i].is_there) {
      *is_raised = !is_ignored && marks[i].is_more;
      found = *is_raised || found == NULL ? marks[i].words : found;
    }
  return found;
}

static bool has_own_options(const struct doctor *doctor) {
  for (char **variable = doctor->environment; variable && *variable; variable++)
    if (doctor_is_option(*variable))
      return true;
  return false;
}

static void report_raised(const struct doctor *doctor, const char *what) {
  const char *program = doctor->program;
  if (!doctor->has_hakmem)
    doctor_problem("%s %s: the loader preloads nothing into it\n%s", program, what,
                   doctor->command ? LINK_IT ", or copy it without the mark" : LINK_IT);
  else if (has_own_options(doctor))
    doctor_warn("%s %s: it reads no HAKMEM_ variable\nset options by hak_option_set", program, what);
  else
    doctor_ok("%s %s, and has hakmem in it", program, what);
}

void doctor_look_privileges(struct doctor *doctor) {
  if (doctor->pid) {
    if (process_is_secure(doctor))
      report_raised(doctor, "runs with raised privileges");
    else
      doctor_ok("the process runs with the privileges of the user that started it");
    return;
  }
  if (!*doctor->program)
    return;
  bool is_raised;
  const char *privilege = privilege_of_file(doctor, &is_raised);
  char what[64];
  snprintf(what, sizeof what, "is %s", privilege ? privilege : "");
  if (is_raised)
    report_raised(doctor, what);
  else if (privilege && !doctor->has_hakmem)
    doctor_note("%s %s: run by others, it runs without hakmem\n" LINK_IT, doctor->program, what);
  else
    doctor_ok("%s runs with our privileges", doctor->program);
}
