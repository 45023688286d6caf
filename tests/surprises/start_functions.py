"""The functions that small programs run lie in the library's section .text.start (src/start_functions.txt).

    start_functions.py LIBRARY [--fix]

callgrind tells which instructions of the library each program runs. A function of `cat` that lies elsewhere is a
failure, one of the other programs a hint: they run more on some systems than on others. --fix adds all of them to the
list. A name that no source has is a failure; --fix takes it out. A build by another compiler has other functions of its
own, because it inlines others: run --fix with its library, too.

The variables that the start writes (.data, .bss) fit in one page, which each process has of its own. If they do not,
src/hakmem.ld.in may put those of a file that is not used at the start into .bss.sparse.
"""
import bisect
import functools
import mmap
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import cases

LIBRARY = pathlib.Path(sys.argv[1]).resolve()
FIX = "--fix" in sys.argv[2:]
ROOT = pathlib.Path(__file__).resolve().parents[2]
LIST = ROOT / "src" / "start_functions.txt"
STRICT = ["cat", "/dev/null"]
OTHERS = [["date"], ["sort", "/etc/passwd"], ["sed", "-n", "1p", "/etc/passwd"], ["sh", "-c", "echo; (true); true"]]
MIXED = LIBRARY.parent.parent / "bin" / "random_mixed"
if MIXED.exists():
    OTHERS.append([str(MIXED), "4000000", "400", "1"])


def output(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True, timeout=300).stdout


def symbols():
    """Sorted addresses and names of the library's functions."""
    found = re.findall(r"^([0-9a-f]+) [tTwW] (\S+)$", output("nm", str(LIBRARY)), re.M)
    return sorted((int(address, 16), name) for address, name in found)


def sections(name):
    """Where the sections of this name begin and end."""
    found = re.findall(rf" {name}\s+(?:PROG|NO)BITS\s+([0-9a-f]+) [0-9a-f]+ ([0-9a-f]+)", output("readelf", "-SW", str(LIBRARY)))
    return [(int(begin, 16), int(begin, 16) + int(length, 16)) for begin, length in found]


def pages(ranges):
    return {address // mmap.PAGESIZE for begin, end in ranges for address in range(begin, end)}


def valgrind(tool, *program):
    words = ["valgrind", "-q", f"--tool={tool[0]}", *tool[1:], *program]
    return subprocess.run(words, check=True, capture_output=True, text=True, timeout=300,
                          env={"PATH": "/usr/bin:/bin", "LD_PRELOAD": str(LIBRARY)}).stdout  # fmt: skip


@functools.cache
def base_of_library():
    maps = valgrind(["none"], "cat", "/proc/self/maps")
    return min(int(line.split("-")[0], 16) for line in maps.splitlines() if line.endswith(str(LIBRARY)))


@functools.cache
def executed(program):
    """Addresses in the library of the instructions that the program runs there. Valgrind before 3.20 does not know the
    object, because it has two segments of code: then the addresses are those of the process, alike in each program, and
    some lie outside of it."""
    with tempfile.TemporaryDirectory() as folder:
        valgrind(["callgrind", "--dump-instr=yes", "--compress-strings=no", "--compress-pos=no",
                  f"--callgrind-out-file={folder}/out.%p"], *program)  # fmt: skip
        texts = [path.read_text(encoding="utf-8") for path in pathlib.Path(folder).iterdir()]  # also of a fork's child
    addresses = set()
    for part in (part for text in texts for part in re.split(r"^ob=", text, flags=re.M)[1:]):
        name, _, lines = part.partition("\n")
        if name == "???" or name.endswith(LIBRARY.name):
            offset = base_of_library() if name == "???" else 0
            addresses |= {int(word, 16) - offset for word in re.findall(r"^(0x[0-9a-f]+) ", lines, re.M)}
    return addresses


def run_in(program, table, places):
    """Names of the functions that the program runs and that lie in one of these sections."""
    begins, addresses = [address for address, _ in table], executed(tuple(program))
    assert addresses & {address for address, name in table if name == "malloc"}, f"{program} does not run malloc of {LIBRARY}"
    return {table[bisect.bisect_right(begins, address) - 1][1].split(".")[0] for address in addresses
            if begins[0] <= address <= begins[-1] and any(begin <= address < end for begin, end in places)}  # fmt: skip


def listed():
    return [line for line in LIST.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]


def stale(names):
    sources = "\n".join(path.read_text(encoding="utf-8") for folder in ("src", "observe", "include")
                        for path in (ROOT / folder).rglob("*.[ch]"))  # fmt: skip
    return {name for name in names if not re.search(rf"\b{name.split()[-1]}\b", sources)}


def fix(missing, gone):
    lines = [line for line in LIST.read_text(encoding="utf-8").splitlines() if line not in gone]
    head = max(i for i, line in enumerate(lines) if line.startswith("#")) + 1
    LIST.write_text("\n".join(lines[:head] + sorted({*lines[head:], *missing})) + "\n", encoding="utf-8")


cases.need("valgrind", "nm", "readelf")
functions, start, elsewhere = symbols(), sections(r"\.text\.start"), sections(r"\.text\.rare")
if not start:
    cases.skip("the linker made no section .text.start")
names = listed()
wrong = run_in(STRICT, functions, elsewhere)
hints = set().union(*(run_in(program, functions, elsewhere) for program in OTHERS)) - wrong
gone = stale(names)
assert len(run_in(STRICT, functions, start)) > 50, "hardly a function is seen to run"
assert stale(["no_such_function"]), "a name that no source has is not seen"
for what, found in (("run by cat, not in the list", wrong), ("run by other small programs, not in the list", hints), ("in no source", gone)):
    print(f"{what}: {' '.join(sorted(found)) or 'none'}")
if FIX:
    fix(wrong | hints, gone)
variables = sections(r"\.data") + sections(r"\.bss")
assert len(variables) == 2 and len(pages(variables)) == 1, f".data and .bss: {variables}"
assert len(pages([*variables, (variables[1][1], variables[1][1] + mmap.PAGESIZE)])) == 2, "another page is not seen"
sys.exit(bool((wrong or gone) and not FIX))
