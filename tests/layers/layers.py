"""The layers of src/ and observe/: who may include whom.

    layers.py ROOT       judges ROOT/src, ROOT/observe, ROOT/tools and ROOT/include

A file includes its own folder and folders below; slab and large do not see each other; policy includes base
only; the operating system is entered from os, and from observe/inspect for observers, alone. A call graph without cycles follows from the first.
Each run first judges small made-up trees, one for each rule, which must be refused.
"""
import pathlib
import re
import sys
import tempfile

# What each folder may include, besides itself and public headers.
BELOW = {
    "base": set(),
    "os": {"base"},
    "policy": {"base"},
    "budget": {"policy", "os", "base"},
    "pages": {"budget", "policy", "os", "base"},
}
BELOW["slab"] = BELOW["large"] = BELOW["pages"] | {"pages"}
BELOW["heap"] = BELOW["pages"] | {"pages", "slab", "large"}
BELOW["reclaim"] = BELOW["heap"] | {"heap"}
# The core's top sees the core alone; observers see all of it but the top, and the ones below them.
BELOW["api"] = BELOW["reclaim"] | {"reclaim"}
CORE = set(BELOW)
BELOW["inspect"] = {"os", "base"}
BELOW["adapt"] = BELOW["count"] = BELOW["reclaim"] | {"reclaim", "inspect"}
BELOW["profile"] = BELOW["adapt"] | {"count"}
BELOW["stats"] = BELOW["profile"] | {"adapt", "profile"}
BELOW["live"] = BELOW["stats"] | {"stats"}
BELOW["observe"] = BELOW["live"] | {"live"}
# Where system calls are made: the core's, and what only observers ask.
SYSTEM_FOLDERS = {"os", "inspect"}
# Rules: numbers in, numbers out.
PURE = re.compile(r"^src/policy/|_policy\.[ch]$|^observe/adapt/policy_file\.")
# Programs, not layers: they may see everything.
PROGRAMS = {"tools"}

INCLUDE = re.compile(r'^\s*#\s*include\s+(?:"([^"]+)"|<([^>]+)>)', re.M)
# Functions of libc that enter the kernel or may allocate, as calls.
SYSTEM = re.compile(
    r"(?<![\w.>])(mmap|munmap|mremap|madvise|mprotect|syscall|prctl|getrlimit|setrlimit|open|openat|read|write|close"
    r"|sysconf|getpid|getenv|secure_getenv|clock_gettime|sched_yield|usleep|nanosleep|pthread_create"
    r"|pthread_setspecific|pthread_key_create|printf|fopen|sbrk|brk)\s*\("
)
COMMENT = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\])*"', re.S)
HEADERS_OF_SYSTEM = re.compile(r"^(sys/(mman|syscall|resource|prctl|random|stat)|linux/.*|sched|fcntl|unistd)\.h$")


def folder_of(name):
    return name.split("/")[0] if "/" in name else None


def faults_in(path, folder, text):
    for quoted, angled in INCLUDE.findall(text):
        name = quoted or angled
        target = folder_of(name)
        if target in BELOW and target != folder and folder not in PROGRAMS and target not in BELOW[folder]:
            yield f"{path}: {folder} includes {name}"
        if target == "tests" or name.startswith("../"):
            yield f"{path}: includes {name}"
        if angled and folder not in {"api"} | SYSTEM_FOLDERS | PROGRAMS and HEADERS_OF_SYSTEM.match(name):
            yield f"{path}: {folder} includes <{name}>: only os talks to the system"
        if PURE.search(str(path)) and angled and name not in ("stdbool.h", "stddef.h", "stdint.h", "string.h"):
            yield f"{path}: includes <{name}>: numbers in, numbers out"
        if PURE.search(str(path)) and target in BELOW and target not in ("base", "policy", "adapt"):
            yield f"{path}: includes {name}: numbers in, numbers out"
    if folder in SYSTEM_FOLDERS | PROGRAMS:
        return
    code = COMMENT.sub(lambda match: "\n" * match.group().count("\n") + " ", text)
    own = set(re.findall(r"^static\b[^;={}()]*?\b(\w+)\(", code, re.M))
    for match in SYSTEM.finditer(code):
        if match.group(1) in own:
            continue
        line = code.count("\n", 0, match.start()) + 1
        yield f"{path}: line {line}: {folder} calls {match.group(1)}: only os makes system calls"


def faults(root):
    found = []
    files = sorted(
        path
        for pattern in ("src/*/*", "observe/*", "observe/*/*", "tools/*")
        for path in root.glob(pattern)
        if path.suffix in (".c", ".h", ".cc")
    )
    for path in files:
        folder = path.parent.name
        name = path.relative_to(root)
        if folder not in BELOW and folder not in PROGRAMS:
            found.append(f"{name}: no layer called {folder}")
            continue
        found += faults_in(name, folder, path.read_text())
    for path in sorted((root / "include").rglob("*.h")):
        for quoted, angled in INCLUDE.findall(path.read_text()):
            if folder_of(quoted or angled) in BELOW:
                found.append(f"{path.relative_to(root)}: a public header includes {quoted or angled}")
    return len(files), found


# (file, its text, what must be said about it)
CONTROLS = [
    ("src/base/a.c", '#include "os/os.h"\n', "base includes os/os.h"),
    ("src/slab/a.c", '#include "large/large.h"\n', "slab includes large/large.h"),
    ("src/large/a.h", '#include "slab/slab.h"\n', "large includes slab/slab.h"),
    ("src/policy/a.c", '#include "os/os.h"\n', "policy includes os/os.h"),
    ("src/policy/a.c", "#include <time.h>\n", "a.c: includes <time.h>"),
    ("observe/adapt/a_policy.c", "#include <time.h>\n", "a_policy.c: includes <time.h>"),
    ("observe/adapt/a_policy.c", '#include "pages/metadata.h"\n', "a_policy.c: includes pages/metadata.h"),
    ("src/budget/a.c", '#include "pages/extent.h"\n', "budget includes pages/extent.h"),
    ("src/heap/a.c", '#include "stats/stats.h"\n', "heap includes stats/stats.h"),
    ("src/heap/a.c", '#include "reclaim/reclaim.h"\n', "heap includes reclaim/reclaim.h"),
    ("src/api/a.c", '#include "stats/stats.h"\n', "api includes stats/stats.h"),
    ("src/large/a.c", '#include "adapt/learned.h"\n', "large includes adapt/learned.h"),
    ("observe/live/a.c", '#include "api/alloc.h"\n', "live includes api/alloc.h"),
    ("observe/profile/a.c", '#include "stats/stats.h"\n', "profile includes stats/stats.h"),
    ("src/heap/a.c", '#include "profile/samples.h"\n', "heap includes profile/samples.h"),
    ("src/reclaim/a.c", '#include "stats/stats.h"\n', "reclaim includes stats/stats.h"),
    ("src/heap/a.c", '#include "../api/alloc.h"\n', "includes ../api/alloc.h"),
    ("src/pages/a.c", "#include <sys/mman.h>\n", "pages includes <sys/mman.h>"),
    ("src/pages/a.c", "void f(void) { madvise(0, 0, 0); }\n", "pages calls madvise"),
    ("src/extra/a.c", "\n", "no layer called extra"),
    ("observe/extra/a.c", "\n", "no layer called extra"),
    ("tools/a.c", '#include "../src/heap/heap.h"\n', "includes ../src/heap/heap.h"),
    ("include/hakmem/a.h", '#include "base/words.h"\n', "a public header includes base/words.h"),
]
INNOCENT = {
    "src/heap/a.c": '#include "heap/heap.h"\n#include "slab/slab.h"\n/* madvise() is os\'s. */\nvoid os_write(int);\n',
    "src/reclaim/a.c": '#include "heap/heap.h"\n#include "large/large.h"\n#include "pages/extent.h"\n',
    "observe/stats/a.c": '#include "reclaim/reclaim.h"\n',
    "src/os/a.c": "#include <sys/mman.h>\nvoid f(void) { madvise(0, 0, 0); }\n",
}


def judge_text(name, text):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        (root / name).parent.mkdir(parents=True)
        (root / name).write_text(text)
        return faults(root)[1]


def controls():
    for name, text, expected in CONTROLS:
        said = judge_text(name, text)
        assert any(expected in fault for fault in said), f"control {name}: {expected!r} not in {said}"
    for name, text in INNOCENT.items():
        assert not judge_text(name, text), judge_text(name, text)


def main():
    controls()
    count, found = faults(pathlib.Path(sys.argv[1]))
    for fault in found:
        print(fault)
    print(f"{count} files, {len(found)} faults; {len(CONTROLS)} controls refused")
    return int(bool(found) or count == 0)


if __name__ == "__main__":
    sys.exit(main())
