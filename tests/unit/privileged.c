/* privileged: a program that the kernel marks as privileged (AT_SECURE) takes no option from the environment, so none
 * names a file, opens a channel or weakens a check. A set-uid copy of this program runs with all options set.
 *
 *   privileged plain    the copy is not set-uid: must fail */
#include "unit.h"

#include "base/text.h"

#include <dirent.h>
#include <sys/auxv.h>
#include <sys/sendfile.h>
#include <sys/stat.h>

#define NOBODY 65534
#define SETTINGS_MAX 128 /* options and their aliases */
#define SETTING_BYTES 400

static bool is_plain;
static char folder[200], copy[220], settings[SETTINGS_MAX][SETTING_BYTES];

/* In the copy. */
static int find_options(void) {
  int found = 0;
  if (getauxval(AT_SECURE) == 0)
    found += printf("AT_SECURE is not set\n") > 0;
  void *block = hak_malloc(100);
  for (int i = 0; i < OPTION_COUNT; i++) {
    const char *text = option_string((enum option)i);
    if (i != OPTION_POOLS /* unit.h sets it */ && (option_is_set((enum option)i) || (text != NULL && *text)))
      found += printf("%s is set\n", option_rows[i].environment) > 0;
  }
  hak_free(block);
  return found > 0;
}

/* Writes "NAME=VALUE" with a value that is not the preset's. */
static void setting(char *out, const char *name, enum option option) {
  const struct option_row *row = &option_rows[option];
  struct text text = {.bytes = out, .capacity = SETTING_BYTES};
  long value = option_default(option, PRESET_BALANCED);
  text_string(&text, name);
  text_string(&text, "=");
  if (option_string(option) != NULL) {
    text_string(&text, folder);
    text_string(&text, "/written-%p");
  } else {
    option_text(option, value == row->maximum ? row->minimum : row->minimum + 1 + (value == row->minimum + 1), &text);
  }
}

static char **environment(void) {
  static char *list[SETTINGS_MAX + 1];
  unsigned count = 0;
  for (int i = 0; i < OPTION_COUNT; i++)
    setting(settings[count++], option_rows[i].environment, (enum option)i);
  for (size_t i = 0; i < option_alias_count; i++)
    setting(settings[count++], option_aliases[i].environment, option_aliases[i].option);
  assert_true(count <= SETTINGS_MAX);
  for (unsigned i = 0; i < count; i++)
    list[i] = settings[i];
  return list;
}

static void make_copy(void) {
  struct stat status;
  unit_folder_make(folder, sizeof folder);
  assert_int_equal(chmod(folder, 0777), 0);
  snprintf(copy, sizeof copy, "%s/program", folder);
  int from = open("/proc/self/exe", O_RDONLY), to = open(copy, O_WRONLY | O_CREAT | O_EXCL, 0700);
  assert_true(from >= 0 && to >= 0 && fstat(from, &status) == 0);
  for (off_t at = 0; at < status.st_size;)
    assert_true(sendfile(to, from, &at, (size_t)(status.st_size - at)) > 0);
  assert_int_equal(fchmod(to, is_plain ? 0755 : 04755), 0);
  close(from);
  close(to);
}

/* Returns the number of the folder's files; all go. */
static unsigned remove_files(void) {
  unsigned count = 0;
  DIR *entries = UNIT_GOT(opendir(folder));
  for (struct dirent *entry; (entry = readdir(entries)) != NULL;)
    if (entry->d_name[0] != '.') {
      count++;
      unlinkat(dirfd(entries), entry->d_name, 0);
    }
  closedir(entries);
  rmdir(folder);
  return count;
}

/* As nobody. Returns its wait status. */
static int run_copy(char *word, char **variables) {
  int status;
  pid_t child = fork();
  if (child == 0) {
    if (setgid(NOBODY) == 0 && setuid(NOBODY) == 0)
      execve(copy, (char *[]){copy, word, NULL}, variables);
    _exit(2);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  return status;
}

UNIT_TEST(takes_no_option) {
  unit_skip_if(geteuid() != 0, "only root can make a set-uid program of another user's");
  make_copy();
  if (!is_plain && run_copy("seen", (char *[]){NULL}) != 0) {
    remove_files();
    unit_skip_if(true, "set-uid has no effect here");
  }
  int status = run_copy("find", environment());
  assert_int_equal(remove_files(), 1); /* the copy: nothing was written */
  assert_int_equal(status, 0);
}

int main(int count, char **words) {
  if (count == 2 && strcmp(words[1], "seen") == 0)
    return getauxval(AT_SECURE) == 0;
  if (count == 2 && strcmp(words[1], "find") == 0)
    return find_options();
  is_plain = count == 2 && strcmp(words[1], "plain") == 0;
  return unit_run(NULL, NULL);
}
