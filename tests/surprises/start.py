"""The system calls of programs on hakmem, by strace, beside those on libc's malloc.

    start.py LIBRARY PROGRAM GROWING DEPLOYMENT      PROGRAM takes `exit`, GROWING `grow`; DEPLOYMENT: docs/deployment.md

A small program makes no call that it does not make on libc's malloc, but for memory; at its end, none at all. What a big
one makes is what docs/deployment.md says. A small program touches no page of what few programs use. The judge is shown to see more: options that report something.
"""
import collections
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import cases

LIBRARY, PROGRAM, GROWING, DEPLOYMENT = sys.argv[1:5]
MEMORY = {"mmap", "munmap", "mprotect", "madvise", "mremap", "brk"}
ASKED_ONCE = {"prlimit64": 2}  # RLIMIT_AS and RLIMIT_DATA, with the first reservation; libc asks for another limit
CALL = re.compile(r"^(?:\[pid +\d+\] |\d+ +)?([a-z_0-9]+)\(")


def lines_of(library, *words, **options):
    """What strace saw after the loader had mapped the libraries."""
    with tempfile.NamedTemporaryFile("r") as log:
        command = ["strace", "-f", "-o", log.name, *words]
        environment = {"PATH": os.environ["PATH"], **options}
        if library:
            command[1:1] = ["-E", f"LD_PRELOAD={library}"]
        ended = subprocess.run(command, env=environment, capture_output=True, timeout=200)
        assert ended.returncode == 0, f"{words}: {ended.returncode} {ended.stderr}"
        return log.read().splitlines()


def calls(lines):
    return collections.Counter(match.group(1) for line in lines if (match := CALL.match(line)))


def more(ours, theirs):
    """What ours has and theirs has not, in kind and in number."""
    return {name: count - theirs[name] for name, count in ours.items() if count > theirs[name] and name not in MEMORY}


def of_the_program(lines):
    """From the end of the loader on: it unmaps its cache behind the last library."""
    library = max(i for i, line in enumerate(lines) if "openat(" in line and ".so" in line)
    return lines[next(i for i, line in enumerate(lines) if i > library and "munmap(" in line) :]


def look_at_small(_):
    plain, ours = (calls(of_the_program(lines_of(library, PROGRAM, "exit"))) for library in ("", LIBRARY))
    found = more(ours, plain)
    assert found == ASKED_ONCE or not found, f"a small program makes {found}"
    loud = more(calls(of_the_program(lines_of(LIBRARY, PROGRAM, "exit", HAKMEM_STATS="text"))), plain)
    assert len(loud) > 3, f"the judge sees no reports: {loud}"


def mappings(**options):
    """The library's mappings in a small program, which prints them itself: rights, KiB resident, KiB of its own. The last
    one has the zeroed variables."""
    environment = {"PATH": os.environ["PATH"], "LD_PRELOAD": LIBRARY, **options}
    text = subprocess.run(["cat", "/proc/self/smaps"], env=environment, capture_output=True, text=True, timeout=60,
                          check=True).stdout
    found, end = [], None
    for part in re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", text, flags=re.M):
        line = part.partition("\n")[0]
        if os.path.realpath(LIBRARY) in line or line.startswith(f"{end}-"):
            end = line.split()[0].partition("-")[2] if os.path.realpath(LIBRARY) in line else None
            sizes = dict(re.findall(r"^(Rss|Anonymous): +(\d+) kB", part, re.M))
            found.append((part.split()[1], int(sizes["Rss"]), int(sizes["Anonymous"])))
    return found


def look_at_pages(_):
    """What few programs use lies in segments of its own (src/hakmem.ld.in), which a small program does not touch."""
    found = mappings()
    if [rights for rights, _, _ in found].count("r-xp") < 2:
        print("the linker made one segment of code, so pages are not looked at")
        return
    code = [resident for rights, resident, _ in found if rights == "r-xp"]
    assert found[2][0] == "r--p" and found[2][1] == 0 and code[1] == 0, f"rare pages are touched: {found}"
    assert sum(own for _, _, own in found[:-1]) <= 16, f"relocations and initialised variables take more pages: {found}"
    assert 0 < found[-1][2] <= 44, f"zeroed variables take more pages (src/hakmem.ld.in): {found}"
    loud = mappings(HAKMEM_STATS="text")
    assert [resident for rights, resident, _ in loud if rights == "r-xp"][1] > 0, f"the judge sees no page: {loud}"


def look_at_constructors(_):
    """libgcc's constructor for __builtin_cpu_supports asks the processor a dozen times. A virtual machine's host answers."""
    if shutil.which("nm") is None:
        return
    names = subprocess.run(["nm", LIBRARY], capture_output=True, text=True, timeout=60, check=True).stdout
    assert "__cpu_indicator_init" not in names, "libgcc asks the processor at each start: see checked/checked_zero.c"


def look_at_end(_):
    """Between the last write of the program and its end."""
    lines = lines_of(LIBRARY, PROGRAM, "exit")
    written = max(i for i, line in enumerate(lines) if " ok" in line)
    assert len(lines) - written <= 3, f"at the end: {lines[written:]}"


def look_at_big(_):
    with open(DEPLOYMENT) as file:
        page = file.read()
    section = page[page.index("\n## seccomp\n") :]
    section = section[: section.index("\n## ", 1)]
    promised = set(re.findall(r"`([a-z_0-9]+)`", section))
    plain, ours = (calls(of_the_program(lines_of(library, GROWING, "grow"))) for library in ("", LIBRARY))
    found = set(more(ours, plain))
    assert found <= promised, f"docs/deployment.md lacks {found - promised}"
    assert found & {"openat", "read"}, f"the judge saw no files being read: {found}"


cases.need("strace")
if subprocess.run(["strace", "-o", "/dev/null", "true"], capture_output=True).returncode != 0:
    cases.skip("strace may not trace here")
cases.run(look_at_small, look_at_pages, look_at_constructors, look_at_end, look_at_big)
