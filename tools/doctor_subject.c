/* doctor_subject.c: finds the file, the environment and the mappings of the subject. */
#include "inspect/maps.h"
#include "tools/doctor.h"
#include "tools/tool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SCRIPTS_MAX 4 /* the kernel follows about as many */
#define LINE_BYTES 256

/* A text that every version of hakmem contains: the message about an unknown option. */
static const char hakmem_words[] = " is no option of hakmem";

static bool path_set(char path[PATH_MAX], const char *text) {
  size_t length = strlen(text);
  if (length >= PATH_MAX)
    return false;
  memcpy(path, text, length + 1);
  return true;
}

static bool is_program(const char *path) {
  struct stat status;
  return stat(path, &status) == 0 && S_ISREG(status.st_mode) && access(path, X_OK) == 0;
}

/* Finds the file that a shell would run. */
static bool program_find(const struct doctor *doctor, const char *name, char path[PATH_MAX]) {
  if (strchr(name, '/'))
    return path_set(path, name);
  const char *folders = doctor_variable(doctor, "PATH");
  for (const char *at = folders ? folders : "/bin:/usr/bin"; *name != 0; at++) {
    int length = (int)strcspn(at, ":");
    int written = snprintf(path, PATH_MAX, "%.*s%s%s", length, at, length ? "/" : "./", name);
    if (written < PATH_MAX && is_program(path))
      return true;
    at += length;
    if (*at == 0)
      return false;
  }
  return false;
}

/* Cuts the next word off *text; NULL after the last. */
static char *word_next(char **text) {
  char *word = *text + strspn(*text, " \t");
  if (*word == 0)
    return NULL;
  *text = word + strcspn(word, " \t");
  if (**text)
    *(*text)++ = 0;
  return word;
}

/* The program that "#!/usr/bin/env ..." runs; NULL if there is none. */
static char *program_of_env(char *words) {
  static const char *const with_value[] = {"-u", "--unset", "-C", "--chdir"};
  char *word = word_next(&words);
  while (word && (*word == '-' || strchr(word, '='))) {
    for (size_t i = 0; i < sizeof with_value / sizeof *with_value; i++)
      if (strcmp(word, with_value[i]) == 0) {
        (void)word_next(&words);
        break;
      }
    word = word_next(&words);
  }
  return word;
}

/* Copies the first line of the script that is open, and returns the program in it that runs the script; NULL if the
 * line names none. *is_searched: env looks for it, where the kernel takes the name as it is. */
static char *interpreter_name(const struct elf *script, char line[LINE_BYTES + 1], bool *is_searched) {
  size_t length = script->length - 2 < LINE_BYTES ? script->length - 2 : LINE_BYTES;
  memcpy(line, script->bytes + 2, length);
  line[length] = 0;
  line[strcspn(line, "\n")] = 0;
  char *words = line, *name = word_next(&words);
  *is_searched = name && strcmp(doctor_base_name(name), "env") == 0;
  return *is_searched ? program_of_env(words) : name;
}

/* Sets path to the interpreter of the script that is open. */
static void interpreter_find(const struct doctor *doctor, char path[PATH_MAX]) {
  char line[LINE_BYTES + 1];
  bool is_searched;
  char *name = interpreter_name(&doctor->elf, line, &is_searched);
  if (name == NULL)
    tool_fail(2, "%s: its first line names no interpreter", doctor->program);
  char *end = strchr(name, '\r');
  if (end) {
    *end = 0;
    tool_fail(2,
              "%s: its first line ends in a carriage return, which counts as a part of the name %s; sed -i 's/\\r$//' "
              "takes them out",
              doctor->program, name);
  }
  if (!(is_searched ? program_find(doctor, name, path) : path_set(path, name)))
    tool_fail(2, "%s: its first line names %s, which is not there", doctor->program, name);
}

static bool is_script(const struct elf *file) { return file->length > 2 && memcmp(file->bytes, "#!", 2) == 0; }

static void program_open(struct doctor *doctor) {
  const char *name = doctor->command[0];
  if (!elf_open(&doctor->elf, doctor->program))
    tool_fail(2, errno == EINVAL ? "%s: is empty" : "%s: %m", name);
  for (unsigned i = 0; i < SCRIPTS_MAX && is_script(&doctor->elf); i++) {
    char path[PATH_MAX];
    if (i == 0)
      path_set(doctor->script, doctor->program);
    interpreter_find(doctor, path);
    path_set(doctor->program, path);
    if (!elf_open(&doctor->elf, path))
      tool_fail(2, "%s, which runs %s: %m", path, name);
  }
  doctor->has_hakmem = elf_contains(&doctor->elf, hakmem_words);
}

void doctor_of_command(struct doctor *doctor) {
  const char *name = doctor->command[0];
  struct stat status;
  if (!program_find(doctor, name, doctor->program))
    tool_fail(2, "%s: command not found", name);
  if (stat(doctor->program, &status) != 0)
    tool_fail(2, "%s: %m", name);
  if (!is_program(doctor->program))
    tool_fail(2, "%s: is not an executable file", name);
  program_open(doctor);
}

/* --- a process --- */

/* The variables of a process that are text with zeros between. */
static char **environment_split(char *bytes, size_t length) {
  size_t count = 0;
  for (size_t i = 0; i < length; i++)
    count += bytes[i] == 0;
  char **environment = calloc(count + 2, sizeof *environment);
  size_t at = 0;
  for (size_t i = 0; environment && i < length; i += strlen(bytes + i) + 1)
    environment[at++] = bytes + i;
  return environment;
}

static bool environment_read(struct doctor *doctor) {
  char path[PATH_MAX];
  size_t length;
  snprintf(path, sizeof path, "%s%s/environ", doctor->root, doctor->proc);
  char *bytes = doctor_read_bytes(path, &length);
  doctor->environment = bytes ? environment_split(bytes, length) : NULL;
  return doctor->environment != NULL;
}

static bool program_read(const struct doctor *doctor, char path[PATH_MAX]) {
  char from[PATH_MAX];
  snprintf(from, sizeof from, "%s%s/exe", doctor->root, doctor->proc);
  ssize_t length = readlink(from, path, PATH_MAX - 1);
  path[length > 0 ? length : 0] = 0;
  return length > 0;
}

/* Says why, and ends the program, if the process is not there or has no memory, maybe since a moment ago. */
static void fail_if_gone(const struct doctor *doctor) {
  char path[PATH_MAX];
  const char *maps = doctor_read(doctor, "%s/maps", doctor->proc);
  snprintf(path, sizeof path, "%s%s", doctor->root, doctor->proc);
  if (access(path, F_OK) != 0 && !doctor_has_proc(doctor))
    tool_fail(2, "no process can be looked at: /proc is not mounted here");
  if (access(path, F_OK) != 0)
    tool_fail(2, "there is no process %ld", doctor->pid);
  if (maps && *maps == 0)
    tool_fail(2, "process %ld has no memory of its own: it has ended, or is a part of the kernel", doctor->pid);
}

void doctor_of_process(struct doctor *doctor) {
  char file[PATH_MAX];
  doctor->maps = doctor_read(doctor, "%s/maps", doctor->proc);
  if (doctor->maps == NULL || *doctor->maps == 0 || !program_read(doctor, doctor->program) ||
      !environment_read(doctor)) {
    fail_if_gone(doctor);
    tool_fail(2, "not permitted to look at process %ld: that takes the same user, or root", doctor->pid);
  }
  /* Its paths are relative to its root, which may be a container's. */
  snprintf(file, sizeof file, "%s%s/root", doctor->root, doctor->proc);
  if (access(file, X_OK) == 0)
    path_set(doctor->files, file);
  snprintf(file, sizeof file, "%s%s/exe", doctor->root, doctor->proc);
  if (!elf_open(&doctor->elf, file)) {
    int error = errno;
    fail_if_gone(doctor);
    errno = error;
    tool_fail(2, "the program of process %ld cannot be read: %m", doctor->pid);
  }
  doctor->has_hakmem = elf_contains(&doctor->elf, hakmem_words);
}

/* --- libraries --- */

bool doctor_is_hakmem(const struct doctor *doctor, const char *path) {
  if (strncmp(doctor_base_name(path), "libhakmem", strlen("libhakmem")) == 0)
    return true;
  /* It may have any name. The program itself is looked at apart (has_hakmem). */
  return strchr(path, '/') && strcmp(path, doctor->program) != 0 &&
         elf_exports(doctor_file(doctor, path), "hak_malloc");
}

const char *doctor_allocator_of(const char *path) {
  static const char *const beginnings[][2] = {
      {"libjemalloc", "jemalloc"},
      {"libtcmalloc", "tcmalloc"},
      {"libmimalloc", "mimalloc"},
      {"librpmalloc", "rpmalloc"},
      {"libsnmalloc", "snmalloc"},
      {"libtbbmalloc", "tbbmalloc"},
      {"libhoard", "Hoard"},
      {"libscudo", "Scudo"},
      {"libhardened_malloc", "hardened_malloc"},
      {"libc_malloc_debug", "glibc's debugging malloc"},
  };
  const char *name = doctor_base_name(path);
  for (size_t i = 0; i < sizeof beginnings / sizeof *beginnings; i++)
    if (strncmp(name, beginnings[i][0], strlen(beginnings[i][0])) == 0)
      return beginnings[i][1];
  return NULL;
}

void doctor_paths(struct doctor *doctor, const char *list, doctor_visit *visit, void *argument) {
  char path[PATH_MAX];
  for (size_t length; list && *list; list += length) {
    list += strspn(list, ": \t\n");
    length = strcspn(list, ": \t\n");
    if (length == 0 || length >= sizeof path)
      continue;
    memcpy(path, list, length);
    path[length] = 0;
    visit(doctor, path, argument);
  }
}

const char *doctor_file(const struct doctor *doctor, const char *path) {
  static char seen[2 * PATH_MAX];
  snprintf(seen, sizeof seen, "%s%s", *path == '/' ? doctor->files : "", path);
  return seen;
}

void doctor_modules(struct doctor *doctor, doctor_visit *visit, void *argument) {
  char path[PATH_MAX], last[PATH_MAX] = "";
  struct os_maps maps;
  struct os_mapping mapping;
  snprintf(path, sizeof path, "%s%s/maps", doctor->root, doctor->proc);
  os_maps_open_at(&maps, open(path, O_RDONLY | O_CLOEXEC));
  while (os_maps_next(&maps, &mapping))
    if (mapping.is_executable && *mapping.name == '/' && strcmp(mapping.name, last) != 0 &&
        path_set(last, mapping.name))
      visit(doctor, last, argument);
  os_maps_close(&maps);
}
