"""What the tests of hak compare share, a plugin of theirs: programs and allocators made for it, and the verb itself.

It asserts nothing (PYTEST_DONT_REWRITE).
"""

import contextlib
import os
import pathlib
import subprocess
import sys

import forked
import pytest
from cases import until

from lab.run import program
from lab.store import rows

LIBC = program.libc()

# Blocks of 36 MiB, a byte a 64 KiB, which glibc's malloc maps and unmaps each time (up to 32 MiB it learns to keep them);
# then small ones.
WORK = """
#include <stdio.h>
#include <stdlib.h>
int main(void) {
  for (int i = 0; i < 12; i++) {
    volatile char *block = malloc(36 << 20);
    for (size_t at = 0; at < 36 << 20; at += 65536)
      block[at] = 1;
    free((void *)block);
  }
  for (int i = 0; i < 20000; i++)
    free(malloc((size_t)(i % 500)));
  puts("done");
}
"""
HEAD = """
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
void *__libc_malloc(size_t size);
void __libc_free(void *block);
"""
SLOW = (
    HEAD
    + """
void *malloc(size_t size) {
  for (volatile int i = 0; i < 3000; i++) {}
  return __libc_malloc(size);
}
"""
)
LARGE = (
    HEAD
    + """
__attribute__((constructor)) static void start(void) {
  char *waste = mmap(NULL, 24 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memset(waste, 1, 24 << 20);
}
void *malloc(size_t size) { return __libc_malloc(size); }
"""
)
KEEPING = (
    HEAD
    + """
static char *kept;
void *malloc(size_t size) {
  if (size != 36 << 20)
    return __libc_malloc(size);
  if (!kept)
    kept = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return kept;
}
void free(void *block) {
  if (block != kept)
    __libc_free(block);
}
"""
)
BROKEN = HEAD + "void *malloc(size_t size) { return size ? (abort(), NULL) : NULL; }\n"
OWN = HEAD + "void *malloc(size_t size) { return __libc_malloc(size); }\n"


@pytest.fixture(scope="session")
def made(tmp_path_factory) -> pathlib.Path:
    """A folder with the programs and libraries of this file."""
    folder = tmp_path_factory.mktemp("made")

    def cc(name, source, *flags):
        (folder / f"{name}.c").write_text(source)
        subprocess.run(["cc", "-O1", "-fno-builtin", "-o", name, f"{name}.c", *flags], cwd=folder, check=True)

    for name, source in (("slow", SLOW), ("large", LARGE), ("keeping", KEEPING), ("broken", BROKEN), ("own", OWN)):
        cc(f"{name}.so", source, "-shared", "-fPIC")
    cc("work", WORK)
    cc("static", WORK, "-static")
    cc("linked", WORK, "-Wl,--no-as-needed", f"{folder}/own.so")
    cc("inside", OWN + WORK, "-rdynamic")
    return folder


@pytest.fixture
def hak(build, library, tmp_path, monkeypatch):
    """hak(WORD...) is hak compare: an object with returncode, stdout, stderr. hak.rows(): what it wrote."""
    monkeypatch.setenv("HAK_BUILD", str(build))
    monkeypatch.setenv("HAK_LIB", str(library))

    def words(*more):
        return ["compare", "--json", str(tmp_path / "rows"), *map(str, more)]

    def run(*more):
        return forked.hak(*words(*more))

    run.words = lambda *more: [sys.executable, "-m", "lab", *words(*more)]
    run.rows = lambda: rows.read([tmp_path / "rows"])
    return run


def marked(mark: str, file="cmdline") -> set[int]:
    """Other processes that have the mark among their arguments, or in this file of /proc."""
    found = set()
    for word in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if mark.encode() in pathlib.Path(f"/proc/{word}/{file}").read_bytes() and int(word) != os.getpid():
                found.add(int(word))
    return found


def gone(mark: str, file="cmdline") -> bool:
    """None is left; what was killed may need a moment."""
    return until(lambda: not marked(mark, file))
