#include "os/vdso.h"

#include "base/words.h"

#include <elf.h>
#include <link.h>
#include <string.h>
#include <sys/auxv.h>

struct image {
  uintptr_t bias; /* address of what its program headers place at 0 */
  const ElfW(Dyn) * dynamic;
};

static struct image find_image(void) {
  struct image image = {0};
  uintptr_t base = getauxval(AT_SYSINFO_EHDR);
  if (base == 0)
    return image;
  const ElfW(Ehdr) *header = (const void *)base;
  const ElfW(Phdr) *segment = (const void *)(base + header->e_phoff);
  for (unsigned i = 0; i < header->e_phnum; i++)
    if (segment[i].p_type == PT_LOAD)
      image.bias = base + segment[i].p_offset - segment[i].p_vaddr;
    else if (segment[i].p_type == PT_DYNAMIC)
      image.dynamic = (const void *)(base + segment[i].p_offset);
  return image;
}

/* The kernel relocates nothing in the image: addresses are as they were linked. */
static const void *find_table(const struct image *image, ElfW(Sxword) tag) {
  for (const ElfW(Dyn) *entry = image->dynamic; entry && entry->d_tag != DT_NULL; entry++)
    if (entry->d_tag == tag)
      return (const void *)(image->bias + entry->d_un.d_ptr);
  return NULL;
}

/* The symbol table has no length of its own. An image has one of two hash tables, or both. */
static size_t count_symbols(const struct image *image) {
  const uint32_t *hash = find_table(image, DT_HASH);
  if (hash)
    return hash[1];
  hash = find_table(image, DT_GNU_HASH);
  if (!hash)
    return 0;
  uint32_t bucket_count = hash[0], first = hash[1], last = 0;
  const uint32_t *buckets = hash + 4 + hash[2] * (sizeof(ElfW(Addr)) / sizeof *hash), *chains = buckets + bucket_count;
  for (uint32_t i = 0; i < bucket_count; i++)
    last = buckets[i] > last ? buckets[i] : last;
  if (last < first)
    return first;
  while ((chains[last - first] & 1) == 0)
    last++;
  return last + 1;
}

COLD void *os_vdso_function(const char *name) {
  struct image image = find_image();
  const ElfW(Sym) *symbols = find_table(&image, DT_SYMTAB);
  const char *names = find_table(&image, DT_STRTAB);
  size_t count = symbols && names ? count_symbols(&image) : 0;
  for (size_t i = 0; i < count; i++)
    if (symbols[i].st_shndx != SHN_UNDEF && strcmp(names + symbols[i].st_name, name) == 0)
      return (void *)(image.bias + symbols[i].st_value);
  return NULL;
}
