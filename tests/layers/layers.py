"""The layers of src/ and observe/: who may include whom.

    layers.py ROOT [OBJECT...]    judges ROOT/src, ROOT/observe, ROOT/tools and ROOT/include, and the calls between objects

A file includes its own folder and folders below; slab and large do not see each other; policy includes base
only; the operating system is entered from os, and from observe/inspect for observers, alone. Observers
access no member of a heap. Calls follow the same order, also those of a function that is declared by
hand, and no two files of the core call each other in a circle. The name of a static function has two words.
Each run first judges small made-up trees, one for each rule, which must be refused.
"""
import pathlib
import re
import subprocess
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
BELOW["checked"] = BELOW["heap"] | {"heap"}
BELOW["threads"] = BELOW["checked"] | {"checked"}
BELOW["reclaim"] = BELOW["threads"] | {"threads"}
# The core's top sees the core alone; observers see all of it but the top, and the ones below them.
BELOW["api"] = BELOW["reclaim"] | {"reclaim"}
CORE = set(BELOW)
BELOW["inspect"] = {"os", "base"}
BELOW["adapt"] = BELOW["count"] = BELOW["reclaim"] | {"reclaim", "inspect"}
BELOW["profile"] = BELOW["adapt"] | {"count"}
BELOW["guard"] = BELOW["profile"] | {"profile"}
BELOW["stats"] = BELOW["guard"] | {"adapt", "guard"}
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
# Observers ask heaps by functions.
HEAP_VARIABLE = re.compile(r"\bstruct heap \*(?:const )?(\w+)\s*[=;,)]")
STATIC_FUNCTION = re.compile(r"^(?:COLD |NOINLINE |WIDE |_Noreturn )*static\b[^;={}()\n]*?\b(\w+)\([^;{}]*\) *\{", re.M)
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
    code = COMMENT.sub(lambda match: "\n" * match.group().count("\n") + " ", text)
    for name in STATIC_FUNCTION.findall(code) if path.suffix == ".c" else ():
        if "_" not in name and name != "ElfW":  # a macro for a type
            yield f"{path}: {name}() is one word: a static function has a verb and a noun"
    if folder not in CORE:
        for name in set(HEAP_VARIABLE.findall(text)) | {"heap_current()"}:
            if re.search(rf"(?<!\w){re.escape(name)}->", text):
                yield f"{path}: {folder} reads a member of {name}: threads/watch.h has functions"
    if folder in SYSTEM_FOLDERS | PROGRAMS:
        return
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
    ("src/heap/a.c", '#include "threads/registry.h"\n', "heap includes threads/registry.h"),
    ("src/heap/a.c", '#include "checked/checked.h"\n', "heap includes checked/checked.h"),
    ("src/checked/a.c", '#include "threads/registry.h"\n', "checked includes threads/registry.h"),
    ("src/api/a.c", '#include "stats/stats.h"\n', "api includes stats/stats.h"),
    ("src/large/a.c", '#include "adapt/policy_engine.h"\n', "large includes adapt/policy_engine.h"),
    ("observe/live/a.c", '#include "api/alloc.h"\n', "live includes api/alloc.h"),
    ("observe/profile/a.c", '#include "stats/stats.h"\n', "profile includes stats/stats.h"),
    ("src/heap/a.c", '#include "profile/samples.h"\n', "heap includes profile/samples.h"),
    ("src/reclaim/a.c", '#include "stats/stats.h"\n', "reclaim includes stats/stats.h"),
    ("src/heap/a.c", '#include "../api/alloc.h"\n', "includes ../api/alloc.h"),
    ("src/pages/a.c", "#include <sys/mman.h>\n", "pages includes <sys/mman.h>"),
    ("src/pages/a.c", "void f(void) { madvise(0, 0, 0); }\n", "pages calls madvise"),
    ("observe/live/a.c", "int f(struct heap *own) { return own->id; }\n", "reads a member of own"),
    ("observe/live/a.c", "int f(void) { return heap_current()->id; }\n", "reads a member of heap_current()"),
    ("src/heap/a.c", "COLD static int *go(int a,\n          int b) {\n", "go() is one word"),
    ("tools/a.c", "static void go(void) { }\n", "go() is one word"),
    ("src/extra/a.c", "\n", "no layer called extra"),
    ("observe/extra/a.c", "\n", "no layer called extra"),
    ("tools/a.c", '#include "../src/heap/heap.h"\n', "includes ../src/heap/heap.h"),
    ("include/hakmem/a.h", '#include "base/words.h"\n', "a public header includes base/words.h"),
]
INNOCENT = {
    "src/heap/a.c": '#include "heap/heap.h"\n#include "slab/slab.h"\n/* madvise() is os\'s. */\nvoid os_write(int);\n',
    "src/reclaim/a.c": '#include "heap/heap.h"\n#include "large/large.h"\n#include "pages/extent.h"\n',
    "observe/stats/a.c": '#include "reclaim/reclaim.h"\nint f(struct heap *own, struct heap_figures *heap) { return heap->id; }\n',
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


# --- calls ---

RELOCATIONS = re.compile(r"^RELOCATION RECORDS FOR \[(\S+)\]:$")


def calls_of_object(path):
    """The functions that an object defines, and those of others that its code refers to."""
    defined, used, section = set(), set(), ""
    for line in subprocess.run(["nm", path], check=True, capture_output=True, text=True).stdout.splitlines():
        words = line.split()
        if len(words) == 3 and words[1] in "TW":
            defined.add(words[2])
    text = subprocess.run(["objdump", "-r", path], check=True, capture_output=True, text=True).stdout
    for line in text.splitlines():
        found = RELOCATIONS.match(line)
        section = found.group(1) if found else section
        words = line.split()
        if section.startswith(".text") and len(words) == 3 and words[1].startswith("R_"):
            used.add(re.sub(r"[-+]0x[0-9a-f]+$", "", words[2]))
    return defined, used - defined


def calls_between(objects):
    """{(file, file): names}. A file is named folder/name.c."""
    parts = {}
    for path in objects:
        path = pathlib.Path(path)
        parts[f"{path.parent.name}/{path.name.removesuffix('.o')}"] = calls_of_object(path)
    home = {name: file for file, (defined, _) in parts.items() for name in defined}
    calls = {}
    for file, (_, used) in parts.items():
        for name in used & home.keys():
            if home[name] != file:
                calls.setdefault((file, home[name]), set()).add(name)
    return calls


def faults_of_calls(calls):
    for (caller, called), names in sorted(calls.items()):
        above, below = folder_of(caller), folder_of(called)
        if above in BELOW and below in BELOW and above != below and below not in BELOW[above]:
            yield f"{caller} calls {', '.join(sorted(names))} of {called}"
    core = {}
    for caller, called in calls:
        if folder_of(caller) in CORE and folder_of(called) in CORE:
            core.setdefault(caller, set()).add(called)
    while core:  # what calls nobody that is left is in no circle
        ends = [file for file, called in core.items() if not called & core.keys()]
        for file in ends:
            del core[file]
        if not ends:
            yield f"circles of calls through {', '.join(sorted(core))}"
            return


CALLS_REFUSED = [
    ({("heap/a.c", "heap/b.c"): {"f"}, ("heap/b.c", "heap/a.c"): {"g"}}, "circles of calls through heap/a.c, heap/b.c"),
    (
        {("os/a.c", "os/b.c"): {"f"}, ("os/b.c", "os/c.c"): {"g"}, ("os/c.c", "os/a.c"): {"h"}, ("api/d.c", "os/a.c"): {"f"}},
        "circles of calls through api/d.c, os/a.c, os/b.c, os/c.c",
    ),
    ({("slab/a.c", "heap/b.c"): {"f"}}, "slab/a.c calls f of heap/b.c"),
    ({("api/a.c", "stats/b.c"): {"f"}}, "api/a.c calls f of stats/b.c"),
]
CALLS_INNOCENT = {("heap/a.c", "heap/b.c"): {"f"}, ("heap/b.c", "slab/c.c"): {"g"}, ("stats/a.c", "heap/b.c"): {"h"}}


def controls_of_calls(calls):
    for made, expected in CALLS_REFUSED:
        said = list(faults_of_calls(made))
        assert expected in said, f"control: {expected!r} not in {said}"
    assert not list(faults_of_calls(CALLS_INNOCENT))
    if calls:  # objects are read at all, and a circle among the real ones would be seen
        assert "slab_set_take" in calls[("heap/bin.c", "slab/slab.c")], "the call of slab_set_take is not seen"
        assert list(faults_of_calls(calls | {("slab/slab.c", "heap/bin.c"): {"made_up"}}))


def main():
    controls()
    count, found = faults(pathlib.Path(sys.argv[1]))
    calls = calls_between([path for argument in sys.argv[2:] for path in argument.split(";")])  # lists of CMake
    controls_of_calls(calls)
    found += faults_of_calls(calls)
    for fault in found:
        print(fault)
    refused = len(CONTROLS) + len(CALLS_REFUSED)
    print(f"{count} files, {len(calls)} pairs that call, {len(found)} faults; {refused} controls refused")
    return int(bool(found) or count == 0)


if __name__ == "__main__":
    sys.exit(main())
