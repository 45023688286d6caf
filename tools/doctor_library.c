/* doctor_library.c: checks for hakmem and other allocators: linked in, loaded and preloaded. */
#include "tools/doctor.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define COPIES_MAX 8

void doctor_look_library(struct doctor *doctor) {
  struct elf elf;
  struct stat status;
  const char *path = doctor->library;
  if (path == NULL || doctor->pid)
    return;
  if (stat(path, &status) != 0 || !elf_open(&elf, path))
    doctor_problem("%s: %m\nbuild or install hakmem again", path);
  else if (!elf.is_elf || elf_defines(&elf, "hak_malloc") != ELF_SYMBOL_EXPORTED)
    doctor_problem("%s is not hakmem's library\nbuild or install hakmem again", path);
  else if (strpbrk(path, ": ;$\t\n"))
    doctor_warn("the path of %s cannot stand in LD_PRELOAD\nmove it, or use hak run and hak env, which find a way "
                "round a space",
                path);
  else if (!(status.st_mode & S_IROTH))
    doctor_warn("%s cannot be read by other users, whose programs cannot load it\nchmod o+r", path);
  else
    doctor_ok("%s can be preloaded", path);
}

/* --- is it there? --- */

struct found {
  char path[PATH_MAX]; /* the first hakmem; "": none */
  bool is_deleted;
};

static void note_hakmem(struct doctor *doctor, const char *path, void *argument) {
  struct found *found = argument;
  if (*found->path || !doctor_is_hakmem(doctor, path))
    return;
  size_t length = strlen(path), mark = strlen(" (deleted)");
  memcpy(found->path, path, length + 1);
  found->is_deleted = length > mark && strcmp(path + length - mark, " (deleted)") == 0;
}

void doctor_look_loaded(struct doctor *doctor) {
  struct found loaded = {.path = ""}, wanted = {.path = ""};
  if (doctor->pid == 0)
    return;
  doctor_modules(doctor, note_hakmem, &loaded);
  doctor_paths(doctor, doctor_variable(doctor, "LD_PRELOAD"), note_hakmem, &wanted);
  if (loaded.is_deleted)
    doctor_note("%s: the file is gone or was replaced since the process loaded it\nstart the program again to get what "
                "is there",
                loaded.path);
  else if (*loaded.path)
    doctor_ok("%s is in the process", loaded.path);
  else if (doctor->has_hakmem)
    doctor_ok("%s has hakmem in it", doctor->program);
  else if (*wanted.path)
    doctor_problem("hakmem is not in process %ld, though LD_PRELOAD names %s\nsee the other findings, and what the "
                   "loader said when the program began",
                   doctor->pid, wanted.path);
  else
    doctor_problem("hakmem is not in process %ld, and its LD_PRELOAD does not name it\nstart it by: hak run -- CMD",
                   doctor->pid);
}

/* --- what is preloaded --- */

/* The name of the allocator in a library, NULL if there is none: by its file's name, else by what it defines. */
static const char *allocator_in(const struct doctor *doctor, const char *path) {
  const char *allocator = doctor_allocator_of(path);
  if (allocator || doctor_is_hakmem(doctor, path) || !strchr(path, '/'))
    return allocator;
  return elf_exports(doctor_file(doctor, path), "malloc") ? "an allocator" : NULL;
}

static void judge_preload(struct doctor *doctor, const char *path, void *argument) {
  bool *has_hakmem = argument;
  bool is_ours = doctor_is_hakmem(doctor, path);
  const char *allocator = allocator_in(doctor, path);
  if (strchr(path, '/') && access(doctor_file(doctor, path), R_OK) != 0)
    doctor_report(is_ours ? SEVERITY_PROBLEM : SEVERITY_WARNING,
                  "LD_PRELOAD names %s: %m\ngive the path that hak lib prints, or: hak run -- CMD", path);
  else if (allocator && !*has_hakmem)
    doctor_problem(
        "LD_PRELOAD names %s, %s, and no hakmem before it: it takes the place of hakmem\ntake it out of LD_PRELOAD",
        path, allocator);
  else if (allocator)
    doctor_note("LD_PRELOAD names %s, %s, behind hakmem: it is loaded and not used\ntake it out of LD_PRELOAD", path,
                allocator);
  else
    doctor_ok("%s can be preloaded", path);
  *has_hakmem |= is_ours;
}

/* If hakmem is not preloaded yet, `hak run` will preload it before all others. */
void doctor_look_preload(struct doctor *doctor) {
  struct found wanted = {.path = ""};
  const char *list = doctor_variable(doctor, "LD_PRELOAD");
  doctor_paths(doctor, list, note_hakmem, &wanted);
  bool has_hakmem = doctor->command && !*wanted.path;
  doctor_paths(doctor, list, judge_preload, &has_hakmem);
}

static void judge_preload_file(struct doctor *doctor, const char *path, void *argument) {
  (void)argument;
  const char *allocator = allocator_in(doctor, path);
  if (strchr(path, '/') && access(doctor_file(doctor, path), R_OK) != 0)
    doctor_warn("/etc/ld.so.preload names %s: %m; each program says so when it begins\ntake it out", path);
  else if (doctor_is_hakmem(doctor, path))
    doctor_note("/etc/ld.so.preload names %s: all programs run on hakmem\nset LD_PRELOAD for one program instead",
                path);
  else if (allocator)
    doctor_warn("/etc/ld.so.preload names %s, %s: programs without LD_PRELOAD run on it\ntake it out", path, allocator);
  else
    doctor_ok("/etc/ld.so.preload names %s", path);
}

void doctor_look_preload_file(struct doctor *doctor) {
  doctor_paths(doctor, doctor_read(doctor, "/etc/ld.so.preload"), judge_preload_file, NULL);
}

/* --- other allocators --- */

static bool is_needed(const struct elf *elf, const char *name) {
  for (unsigned i = 0; i < elf->needed_count; i++)
    if (strcmp(elf->needed[i], name) == 0)
      return true;
  return false;
}

static void note_allocator(struct doctor *doctor, const char *path, void *argument) {
  bool *is_alone = argument;
  const char *allocator = doctor_allocator_of(path);
  if (allocator == NULL)
    return;
  *is_alone = false;
  doctor_note("%s (%s) is %s: hakmem, where it is preloaded, takes its place, but calls to its own names stay "
              "there\nbuild the program without it, if its own names are not used",
              path, allocator, doctor->pid && !is_needed(&doctor->elf, path) ? "in the process" : "linked in");
}

void doctor_look_allocators(struct doctor *doctor) {
  const struct elf *elf = &doctor->elf;
  bool is_alone = true;
  enum elf_symbol defined = doctor->has_hakmem ? ELF_SYMBOL_NONE : elf_defines(elf, "malloc");
  if (!*doctor->program)
    return;
  if (defined != ELF_SYMBOL_NONE && elf->interpreter) {
    is_alone = false;
    doctor_problem(
        "%s defines malloc itself, and its own comes before what is preloaded\nbuild it without its allocator",
        doctor->program);
  }
  if (doctor->pid)
    doctor_modules(doctor, note_allocator, &is_alone);
  else
    for (unsigned i = 0; i < elf->needed_count; i++)
      note_allocator(doctor, elf->needed[i], &is_alone);
  if (is_alone)
    doctor_ok("no other allocator is in sight");
}

void doctor_look_sanitizers(struct doctor *doctor) {
  static const struct {
    const char *name, *library, *symbol;
  } sanitizers[] = {
      {"AddressSanitizer", "libasan", "__asan_init"}, {"AddressSanitizer", "libclang_rt.asan", "__asan_init"},
      {"ThreadSanitizer", "libtsan", "__tsan_init"},  {"MemorySanitizer", "libmsan", "__msan_init"},
      {"LeakSanitizer", "liblsan", "__lsan_init"},    {"HWAddressSanitizer", "libhwasan", "__hwasan_init"},
  };
  const struct elf *elf = &doctor->elf;
  if (!*doctor->program)
    return;
  for (size_t i = 0; i < sizeof sanitizers / sizeof *sanitizers; i++) {
    bool is_there = elf_defines(elf, sanitizers[i].symbol) != ELF_SYMBOL_NONE;
    for (unsigned n = 0; n < elf->needed_count; n++)
      is_there |= strncmp(elf->needed[n], sanitizers[i].library, strlen(sanitizers[i].library)) == 0;
    if (is_there) {
      doctor_problem("%s is built with %s, which has an allocator of its own\ndo not preload hakmem into it",
                     doctor->program, sanitizers[i].name);
      return;
    }
  }
  doctor_ok("no sanitizer is in sight");
}

/* --- hakmem more than once --- */

struct copies {
  struct stat files[COPIES_MAX];
  unsigned count;
  char paths[2][PATH_MAX];
};

static void note_copy(struct doctor *doctor, const char *path, void *argument) {
  struct copies *copies = argument;
  struct stat status;
  if (!doctor_is_hakmem(doctor, path) || copies->count == COPIES_MAX || stat(doctor_file(doctor, path), &status) != 0)
    return;
  for (unsigned i = 0; i < copies->count; i++)
    if (copies->files[i].st_dev == status.st_dev && copies->files[i].st_ino == status.st_ino)
      return;
  if (copies->count < 2)
    snprintf(copies->paths[copies->count], PATH_MAX, "%s", path);
  copies->files[copies->count++] = status;
}

void doctor_look_copies(struct doctor *doctor) {
  static struct copies copies;
  if (!*doctor->program)
    return;
  if (doctor->has_hakmem) {
    stat(doctor->program, &copies.files[0]);
    snprintf(copies.paths[copies.count++], PATH_MAX, "%s", doctor->program);
  }
  if (doctor->pid) {
    doctor_modules(doctor, note_copy, &copies);
  } else if (doctor->elf.interpreter) {
    doctor_paths(doctor, doctor_variable(doctor, "LD_PRELOAD"), note_copy, &copies);
    doctor_paths(doctor, doctor_read(doctor, "/etc/ld.so.preload"), note_copy, &copies);
  }
  if (copies.count > 1)
    doctor_warn("hakmem is there %u times, among them %s and %s: malloc is the first one's, and the others' hak_ "
                "functions do not know its blocks\nkeep one",
                copies.count, copies.paths[0], copies.paths[1]);
  else if (copies.count == 1)
    doctor_ok("hakmem is there once");
}
