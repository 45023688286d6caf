// A freed range is reused for the call site it came from: operator new counts as no site, whoever called it does.
#include <cstddef>
#include <new>

#include "../reclaim/again.h"

static const std::size_t range_bytes = std::size_t{2} << 20;
static const unsigned rounds = 100;

static hak_stats stats() {
  hak_stats read{};
  TEST_HAK(hak_stats_get)(&read);
  return read;
}

// Two callers of every form.
template <int number> struct site {
  __attribute__((noinline)) static void *one() { return test_opaque(::operator new(range_bytes)); }
  __attribute__((noinline)) static void *many() { return test_opaque(::operator new[](range_bytes)); }
  __attribute__((noinline)) static void *or_null() { return test_opaque(::operator new(range_bytes, std::nothrow)); }
  __attribute__((noinline)) static void *aligned() {
    return test_opaque(::operator new(range_bytes, std::align_val_t{64}));
  }
};

static void form(void *(*ask)(), void *(*ask_elsewhere)(), const char *name) {
  for (unsigned i = 0; i < rounds; i++) // known as steady after some
    ::operator delete(ask());
  hak_stats before = stats();
  for (unsigned i = 0; i < rounds; i++)
    ::operator delete(ask());
  hak_stats after = stats();
  auto hits = after.cache_hits_of_site - before.cache_hits_of_site;
  CHECK_SAY(hits == rounds, "%s: %u ranges, %lu of their site", name, rounds, static_cast<unsigned long>(hits));
  // What this site left serves another one, too, but is not that one's.
  ::operator delete(ask_elsewhere());
  hak_stats other = stats();
  CHECK_SAY(other.cache_hits == after.cache_hits + 1, "%s: nothing was reused", name);
  CHECK_SAY(other.cache_hits_of_site == after.cache_hits_of_site, "%s: the operator counts as the site", name);
}

int main(int argc, char **argv) {
  test_begin(argc, argv);
  static const char *const options[] = {"HAKMEM_TARGET_MB", "4096", nullptr}; // with a target no thread keeps ranges
  test_again_with(argv, options);
  CHECK(TEST_HAK(hak_stats_get) != nullptr);
  form(site<0>::one, site<1>::one, "new");
  form(site<0>::many, site<1>::many, "new[]");
  form(site<0>::or_null, site<1>::or_null, "nothrow new");
  form(site<0>::aligned, site<1>::aligned, "aligned new");
}
