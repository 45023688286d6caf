/* record_module.c: which library a call site is in, so that it means the same in the next run. */
#include "record.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>

enum { TABLE_SLOTS = 2 * TRACE_MODULES_MAX };
_Static_assert((TABLE_SLOTS & (TABLE_SLOTS - 1)) == 0, "a mask");

/* A row is written once, under the lock, and read after `count` says that it is there.
 *   M1  rows are in the order of their numbers; module number n is row n - 1
 *   M2  slots: 0, or the number of a module; linear probing from the hash of its address */
static struct module {
  const void *first;
  uint64_t base, name_hash;
} modules[TRACE_MODULES_MAX];
static _Atomic uint16_t slots[TABLE_SLOTS];
static uint32_t count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char main_program[TRACE_NAME_BYTES];

static uint64_t hash_of(const char *text) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (; *text; text++)
    hash = (hash ^ (unsigned char)*text) * 0x100000001b3ull;
  return hash;
}

static const char *last_component(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

void record_modules_open(const char *program) {
  program = last_component(program);
  size_t length = strnlen(program, TRACE_NAME_BYTES - 1);
  memcpy(main_program, program, length);
  main_program[length] = 0;
  pthread_mutex_init(&lock, NULL);
  for (int i = 0; i < TABLE_SLOTS; i++)
    atomic_store_explicit(&slots[i], 0, memory_order_relaxed);
  count = 0;
}

/* The build-id note of a mapped file whose program headers lie in its first page, as linkers lay them. */
static uint32_t read_build_id(const unsigned char *first, uint64_t base, unsigned char *id) {
  const ElfW(Ehdr) *head = (const ElfW(Ehdr) *)first;
  if (memcmp(head->e_ident, ELFMAG, SELFMAG) != 0 || head->e_phentsize != sizeof(ElfW(Phdr)) ||
      head->e_phoff + (uint64_t)head->e_phnum * sizeof(ElfW(Phdr)) > 4096)
    return 0;
  const ElfW(Phdr) *segment = (const ElfW(Phdr) *)(first + head->e_phoff);
  for (int i = 0; i < head->e_phnum; i++) {
    const unsigned char *at = (const unsigned char *)(uintptr_t)(base + segment[i].p_vaddr);
    const unsigned char *end = at + segment[i].p_memsz;
    while (segment[i].p_type == PT_NOTE && (size_t)(end - at) >= sizeof(ElfW(Nhdr))) {
      const ElfW(Nhdr) *note = (const ElfW(Nhdr) *)at;
      size_t name_bytes = (note->n_namesz + 3u) & ~(size_t)3, id_bytes = note->n_descsz;
      at += sizeof *note;
      if ((size_t)(end - at) < name_bytes + id_bytes)
        break;
      if (note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 && memcmp(at, "GNU", 4) == 0 &&
          id_bytes <= TRACE_BUILD_ID_BYTES) {
        memcpy(id, at + name_bytes, id_bytes);
        return (uint32_t)id_bytes;
      }
      at += name_bytes + ((id_bytes + 3u) & ~(size_t)3);
    }
  }
  return 0;
}

static void write_module(uint32_t number, const void *first, uint64_t base, const char *path) {
  struct {
    struct trace_chunk chunk;
    struct trace_module module;
  } text = {.chunk = {.kind = TRACE_MODULE, .payload_bytes = sizeof text.module, .items = number}};
  text.chunk.time_us = record_clock_us();
  const char *name = *path ? last_component(path) : main_program;
  memcpy(text.module.name, name, strnlen(name, TRACE_NAME_BYTES - 1));
  text.module.build_id_bytes = read_build_id(first, base, text.module.build_id);
  record_file_chunk(&text.chunk);
}

/* The number in slot chain, or 0; *free_slot is then where it goes. */
static uint32_t look_up(const void *first, uint64_t base, uint64_t name_hash, uint32_t *free_slot) {
  uint64_t mixed = (uint64_t)(uintptr_t)first * 0x9e3779b97f4a7c15ull;
  for (uint32_t slot = (uint32_t)(mixed >> 40);; slot++) {
    slot &= TABLE_SLOTS - 1;
    uint32_t number = atomic_load_explicit(&slots[slot], memory_order_acquire);
    if (number == 0) {
      *free_slot = slot;
      return 0;
    }
    const struct module *row = &modules[number - 1];
    if (row->first == first && row->base == base && row->name_hash == name_hash)
      return number;
  }
}

struct record_site record_site_of(const void *address) {
  const void *first = NULL;
  const struct link_map *map = NULL;
  /* Without locks where libc has it: the caller may be inside dlopen, or a child of a fork. */
#ifdef DLFO_STRUCT_HAS_EH_DBASE
  struct dl_find_object found;
  if (_dl_find_object((void *)(uintptr_t)address, &found) == 0) {
    first = found.dlfo_map_start;
    map = found.dlfo_link_map;
  }
#else
  Dl_info info;
  void *extra = NULL;
  if (dladdr1(address, &info, &extra, RTLD_DL_LINKMAP)) {
    first = info.dli_fbase;
    map = extra;
  }
#endif
  struct record_site site = {0, (uint64_t)(uintptr_t)address};
  if (!map)
    return site;
  uint64_t hash = hash_of(map->l_name);
  uint32_t slot, number = look_up(first, map->l_addr, hash, &slot);
  if (number == 0) {
    pthread_mutex_lock(&lock);
    number = look_up(first, map->l_addr, hash, &slot);
    if (number == 0 && count < TRACE_MODULES_MAX) {
      modules[count] = (struct module){first, map->l_addr, hash};
      number = ++count;
      write_module(number, first, map->l_addr, map->l_name);
      atomic_store_explicit(&slots[slot], (uint16_t)number, memory_order_release);
    }
    pthread_mutex_unlock(&lock);
  }
  if (number) {
    site.module = number;
    site.offset = (uint64_t)(uintptr_t)address - map->l_addr;
  }
  return site;
}
