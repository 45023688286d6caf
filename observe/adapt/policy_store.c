#include "adapt/policy_store.h"

#include "adapt/policy_engine.h"
#include "adapt/policy_file.h"
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

static void complain(const char *path, const char *sentence, const char *consequence) {
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

/* --- the start --- */

static const char *words_of(enum policy_file_error error) {
  static const char *const words[] = {
      [POLICY_FILE_OK] = "in order",
      [POLICY_FILE_FOREIGN] = "it is no policy file",
      [POLICY_FILE_DAMAGED] = "it is damaged",
      [POLICY_FILE_NEWER] = "it was written by a later version",
      [POLICY_FILE_OTHER] = "it is about other strategies than this version's",
  };
  return words[error];
}

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

static void take_content(const void *bytes, size_t length) {
  struct policy_file found;
  enum policy_file_error error = policy_file_open(&found, bytes, length);
  if (error == POLICY_FILE_OK) {
    apply_file(&found);
    return;
  }
  bool is_replaced = error == POLICY_FILE_DAMAGED && option_value(OPTION_POLICY) == POLICY_EVOLVING;
  complain(file.path, words_of(error),
           is_replaced ? ", so nothing is known yet; at the end it is replaced"
                       : ", so nothing is known yet; it stays as it is");
  if (error != POLICY_FILE_DAMAGED)
    file.path = NULL; /* it belongs to another program: do not write */
}

static void take_file(void *bytes) {
  size_t length = 0;
  enum os_file_error error = os_file_read(file.path, bytes, READ_BYTES_MAX, &length);
  bool may_be_absent = option_value(OPTION_POLICY) == POLICY_EVOLVING;
  if (error == OS_FILE_OK && length > 0) {
    take_content(bytes, length);
  } else if (error != OS_FILE_OK && (error != OS_FILE_ABSENT || !may_be_absent)) {
    complain(file.path, os_file_words(error), ", so nothing is known yet");
    file.path = NULL; /* unknown content: do not write */
  }
}

static void read_file(void) {
  const char *path = option_string(OPTION_POLICY_FILE);
  if (*path == 0 || option_value(OPTION_POLICY) == POLICY_OFF)
    return;
  if (!os_path_absolute(path, path_bytes, sizeof path_bytes)) {
    complain(path, "there is no such folder, or the name is too long", "; it is not used");
    return;
  }
  file.path = path_bytes;
  void *bytes = os_map(READ_BYTES_MAX, os_page_bytes());
  if (bytes == NULL) {
    complain(file.path, "no memory to read it", "; it stays as it is");
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

/* Reads the file's present content: another process may have written it since the start, or a user may have put another
 * file there. Returns why the file must stay; NULL if it may be replaced. */
static const char *reason_to_keep(void *bytes, struct policy_file *found, bool *is_found) {
  size_t length = 0;
  enum os_file_error error = os_file_read(file.path, bytes, READ_BYTES_MAX, &length);
  *is_found = false;
  if (error != OS_FILE_OK)
    return error == OS_FILE_ABSENT ? NULL : os_file_words(error);
  if (length == 0)
    return NULL;
  enum policy_file_error problem = policy_file_open(found, bytes, length);
  *is_found = problem == POLICY_FILE_OK;
  return *is_found || problem == POLICY_FILE_DAMAGED ? NULL : words_of(problem);
}

static void write_content(char *bytes) {
  struct policy_file others;
  bool is_found;
  const char *reason = reason_to_keep(bytes, &others, &is_found);
  if (reason == NULL) {
    char *content = bytes + READ_BYTES_MAX;
    size_t length = encode_file(content, is_found ? &others : NULL);
    enum os_file_error error = length ? os_file_replace(file.path, content, length) : OS_FILE_OK;
    reason = error == OS_FILE_OK ? NULL : os_file_words(error);
  }
  if (reason)
    complain(file.path, reason, "; what was learned is not kept");
}

static void write_file(void) {
  if (file.path == NULL || option_value(OPTION_POLICY) != POLICY_EVOLVING || !has_learned())
    return;
  char *bytes = os_map(2 * READ_BYTES_MAX, os_page_bytes());
  if (bytes == NULL) {
    complain(file.path, "no memory to write it", "; what was learned is not kept");
    return;
  }
  int lock = os_file_lock(file.path);
  write_content(bytes);
  os_file_unlock(lock);
  os_unmap(bytes, 2 * READ_BYTES_MAX);
}

const char *policy_store_write(void) { return in_slow_path(write_file); }

enum os_file_error policy_store_write_at(int fd, uint64_t *end) {
  struct os_file_part part;
  char *bytes = os_map(READ_BYTES_MAX, os_page_bytes());
  struct policy_state *view = policy_open();
  if (view)
    policy_table_tick(&view->table, (uint32_t)os_milliseconds());
  policy_close();
  size_t length = bytes && view ? encode_file(bytes, NULL) : 0;
  enum os_file_error error = length ? os_file_begin_at(&part, fd, *end) : OS_FILE_NO_MEMORY;
  if (!error)
    error = os_file_end(&part, os_file_add(&part, bytes, length));
  *end += length;
  if (bytes)
    os_unmap(bytes, READ_BYTES_MAX);
  return error;
}

COLD void policy_store_in_child(void) {
  if (file.path == NULL)
    return;
  const struct policy_state *view = policy_open();
  if (view)
    file.epochs_before = epochs_of(&view->table);
  policy_close();
}
