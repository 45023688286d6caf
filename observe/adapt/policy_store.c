#include "adapt/policy_store.h"

#include "adapt/policy_engine.h"
#include "base/text.h"
#include "heap/slow_path.h"
#include "inspect/file.h"
#include "os/os.h"
#include "os/say.h"

#define READ_BYTES_MAX ((size_t)1 << 20) /* no file that we write is larger */

static SPARSE char path_bytes[OPTION_TEXT_BYTES];
static struct {
  const char *path;       /* NULL: nothing is written */
  uint64_t epochs_before; /* epochs that were played before the start or the fork */
} file;

/* Returns the epochs of the priors: each epoch counts for the prior of its range. */
static uint64_t epochs_of(const struct policy_table *table) {
  uint64_t epochs = 0;
  for (unsigned range = 0; range < POLICY_RANGES; range++)
    epochs += table->priors[range].epochs;
  return epochs;
}

/* Holds a sentence about a path of any length. */
static SPARSE char complaint[OPTION_TEXT_BYTES + 256];

static void complain_of_file(const char *path, const char *sentence, const char *consequence) {
  struct text text = TEXT_IN(complaint);
  text_format(&text, "hakmem: policy file %s: %s%s\n", path, sentence, consequence);
}

/* Refused if a signal handler that interrupted a slow path called exit. */
static const char *in_slow_path(void (*work)(void)) {
  complaint[0] = 0;
  if (slow_path_begin()) {
    work();
    slow_path_end();
    os_say(complaint);
  }
  return complaint;
}

const char *policy_store_open(const char *path, void *bytes, size_t capacity, struct policy_file *found,
                              enum policy_file_error *problem) {
  size_t length = 0;
  enum os_file_error error = os_file_read(path, bytes, capacity, &length);
  if (error) {
    *problem = error == OS_FILE_ABSENT ? POLICY_FILE_ABSENT : POLICY_FILE_UNREADABLE;
    return os_file_words(error);
  }
  *problem = policy_file_open(found, bytes, length);
  return *problem ? policy_file_words(*problem) : NULL;
}

/* --- the start --- */

static void merge_file(struct policy_state *view, const struct policy_file *found) {
  policy_file_merge(found, &view->table);
  for (uint32_t i = 0; i < found->module_count; i++) {
    struct policy_module module = policy_file_module(found, i);
    policy_note_module(view->modules, module.tag, module.name);
  }
}

static void apply_file(const struct policy_file *found) {
  struct policy_state *view = policy_open();
  if (view) {
    merge_file(view, found);
    file.epochs_before = epochs_of(&view->table);
  }
  policy_close();
}

static void take_file(void *bytes) {
  struct policy_file found;
  enum policy_file_error problem;
  const char *words = policy_store_open(file.path, bytes, READ_BYTES_MAX, &found, &problem);
  bool is_new = problem == POLICY_FILE_EMPTY || (problem == POLICY_FILE_ABSENT && policy_is_evolving());
  const char *effect = ", so nothing is known yet; it stays as it is";
  if (problem == POLICY_FILE_ABSENT || problem == POLICY_FILE_UNREADABLE)
    effect = ", so nothing is known yet";
  else if (problem == POLICY_FILE_DAMAGED && policy_is_evolving())
    effect = ", so nothing is known yet; at the end it is replaced";
  if (problem == POLICY_FILE_OK)
    apply_file(&found);
  else if (!is_new)
    complain_of_file(file.path, words, effect);
  if (problem > POLICY_FILE_DAMAGED)
    file.path = NULL;
}

static void read_file(void) {
  const char *path = option_string(OPTION_POLICY_FILE);
  if (*path == 0 || option_value(OPTION_POLICY) == POLICY_OFF)
    return;
  if (!os_path_absolute(path, path_bytes, sizeof path_bytes)) {
    complain_of_file(path, "there is no such folder, or the name is too long", "; it is not used");
    return;
  }
  file.path = path_bytes;
  void *bytes = os_map(READ_BYTES_MAX, os_page_bytes());
  if (bytes == NULL) {
    complain_of_file(file.path, os_file_words(OS_FILE_NO_MEMORY), "; it stays as it is");
    file.path = NULL;
    return;
  }
  take_file(bytes);
  os_unmap(bytes, READ_BYTES_MAX);
}

const char *policy_store_read(void) { return in_slow_path(read_file); }

/* --- the end --- */

static bool has_site_of(const struct policy_table *table, uint32_t tag) {
  for (size_t i = 0; i < (size_t)table->set_count * POLICY_WAYS; i++)
    if (table->places[i].taken && table->places[i].arm.epochs > 0 && policy_tag_of(table->places[i].site) == tag)
      return true;
  return false;
}

static void add_everything(struct policy_file_writer *writer, const struct policy_state *view) {
  for (const struct policy_module *module = view->modules; module < view->modules + POLICY_MODULES; module++)
    if (module->tag != 0 && has_site_of(&view->table, module->tag))
      policy_file_add_module(writer, module->tag, module->name);
  policy_file_add_table(writer, &view->table, policy_site_of(1, 0));
}

/* Concludes open epochs. Returns whether this process has learned anything. */
static bool has_learned(void) {
  struct policy_state *view = policy_open();
  if (view)
    policy_table_conclude(&view->table, (uint32_t)os_milliseconds());
  bool has = view && epochs_of(&view->table) != file.epochs_before;
  policy_close();
  return has;
}

/* Returns the bytes of the file, 0 if it does not fit in READ_BYTES_MAX. others: the file's present content,
 * or NULL. */
static size_t encode_file(void *bytes, const struct policy_file *others) {
  struct policy_file_writer writer;
  size_t length = 0;
  struct policy_state *view = policy_open();
  if (view) {
    if (others)
      merge_file(view, others);
    policy_file_begin(&writer, bytes, READ_BYTES_MAX, &view->table.costs, hak_version());
    add_everything(&writer, view);
    length = policy_file_end(&writer);
  }
  policy_close();
  return length;
}

/* Another process may have written the file since the start, or a user may have put another file there. */
static void write_content(char *bytes) {
  struct policy_file others;
  enum policy_file_error problem;
  const char *words = policy_store_open(file.path, bytes, READ_BYTES_MAX, &others, &problem);
  if (problem <= POLICY_FILE_DAMAGED) {
    char *content = bytes + READ_BYTES_MAX;
    size_t length = encode_file(content, problem == POLICY_FILE_OK ? &others : NULL);
    enum os_file_error error = length ? os_file_replace(file.path, content, length) : OS_FILE_OK;
    words = error ? os_file_words(error) : NULL;
  }
  if (words)
    complain_of_file(file.path, words, "; what was learned is not kept");
}

static void write_file(void) {
  if (file.path == NULL || !policy_is_evolving() || !has_learned())
    return;
  char *bytes = os_map(2 * READ_BYTES_MAX, os_page_bytes());
  if (bytes == NULL) {
    complain_of_file(file.path, os_file_words(OS_FILE_NO_MEMORY), "; what was learned is not kept");
    return;
  }
  int lock = os_file_lock(file.path);
  write_content(bytes);
  os_file_unlock(lock);
  os_unmap(bytes, 2 * READ_BYTES_MAX);
}

const char *policy_store_write(void) { return in_slow_path(write_file); }

void policy_store_add_to(struct os_file_part *part) {
  char *bytes = os_map(READ_BYTES_MAX, os_page_bytes());
  struct policy_state *view = policy_open();
  if (view)
    policy_table_tick(&view->table, (uint32_t)os_milliseconds());
  policy_close();
  size_t length = bytes && view ? encode_file(bytes, NULL) : 0;
  if (length)
    os_file_add(part, bytes, length);
  else
    part->error = OS_FILE_NO_MEMORY;
  if (bytes)
    os_unmap(bytes, READ_BYTES_MAX);
}

COLD void policy_store_in_child(void) {
  if (file.path == NULL)
    return;
  const struct policy_state *view = policy_open();
  if (view)
    file.epochs_before = epochs_of(&view->table);
  policy_close();
}
