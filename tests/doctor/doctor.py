"""hakmem-doctor: each finding has a case that provokes it, and is not there in a tree where everything is in order.

doctor.py TOOL COMPILER [--library LIBRARY]
"""

import itertools
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import cases
from tree import GROUP, HUGE, OLD_GROUP, PID, Programs, Tree

NOBODY = 65534
NET_RAW = bytes.fromhex("0100000200200000000000000000000000000000")  # a file capability
BROKEN_FILES = 150


ARGUMENTS = cases.arguments("tool", "compiler", library={})


def tool(*words, env=None, status=(0, 1), **options):
    env = {"PATH": os.environ["PATH"]} | (env or {})
    command = [ARGUMENTS.tool, *map(str, words)]
    result = subprocess.run(command, check=False, capture_output=True, env=env, timeout=200, **options)
    assert result.returncode in status, f"{words}: status {result.returncode}: {result.stderr}"
    return result


def diagnosis(*words, **options):
    result = tool("--json", *words, **options)
    found = json.loads(result.stdout)
    # What is preloaded into the program is preloaded into the tool too.
    assert all(line.startswith(b"ERROR: ld.so") for line in result.stderr.splitlines()), result.stderr
    assert found["schema"] == "hakmem-doctor" and found["version"] == 1
    counted = [sum(f["severity"] == severity for f in found["findings"]) for severity in ("problem", "warning", "note")]
    assert counted == [found["problems"], found["warnings"], found["notes"]]
    assert result.returncode == (1 if found["problems"] else 0)
    return found["findings"]


def bad(findings):
    return [f for f in findings if f["severity"] != "ok"]


# A case: check, severity, words of the sentence, what is changed. Cases of a process, then those of a program.
def process_cases(made):
    def maps(*paths):
        return lambda tree: tree.maps.extend(map(str, paths))

    def without_hakmem(tree):
        tree.maps.pop()

    def refused(tree):
        tree.maps.pop()
        tree.variables["LD_PRELOAD"] = ARGUMENTS.library or made.harmless.with_name("libhakmem.so")
        made.harmless.with_name("libhakmem.so").touch()

    def hold(megabytes):
        return lambda tree: tree.write(f"{GROUP}/memory.current", f"{megabytes << 20}\n")

    def change(path, old, new):
        return lambda tree: tree.change(path, old, new)

    def write(path, text):
        return lambda tree: tree.write(path, text)

    def limit_v1(megabytes):
        return write(f"{OLD_GROUP}/memory.limit_in_bytes", f"{megabytes << 20}\n")

    def variables(**values):
        return lambda tree: tree.variables.update(values)

    def both(*changes):
        return lambda tree: [change(tree) for change in changes]

    def limit(name, value):
        line = f"Max {name}".ljust(26)
        old = {"processes": "1000", "open files": "1024", "locked memory": "8388608"}.get(name, "unlimited")
        return change("proc/PROC/limits", line + old.ljust(20), line + str(value).ljust(20))

    no_swap = write("sys/fs/cgroup/memory.swap.max", "0\n")  # in a group above
    copies, huge, status = two_copies(made), f"{HUGE}/enabled", "proc/PROC/status"
    never, lost = "always madvise [never]\n", made.folder / "none/x"
    many = "".join(f"{i}\n" for i in range(5))
    return [
        ("loaded", "problem", "is not in process", without_hakmem),
        ("loaded", "problem", "though LD_PRELOAD names", refused),
        ("loaded", "note", "was replaced", lambda t: t.maps.__setitem__(-1, "/usr/lib/libhakmem.so.0 (deleted)")),
        ("privileges", "problem", "raised privileges", lambda t: t.secure(True)),
        ("allocators", "note", "(mimalloc)", maps("/usr/lib/libmimalloc.so.3")),
        ("copies", "warning", "2 times", maps(*copies)),
        ("option-names", "warning", "HAKMEM_PROFILE may be meant", variables(HAKMEM_PROFIL="speed")),
        ("option-names", "warning", "hak options lists all", variables(HAKMEM_NONSENSE_WORD="1")),
        ("option-values", "warning", "8 stays in force; HAKMEM_KEEP_MB takes 0 to", variables(HAKMEM_KEEP_MB="lots")),
        ("option-values", "warning", "takes dontneed, free, off", variables(HAKMEM_PURGE="some")),
        ("option-values", "warning", "is not taken", variables(HAKMEM_PROFILE="safe")),
        ("option-pairs", "warning", "while HAKMEM_PURGE is off", variables(HAKMEM_PURGE="off", HAKMEM_KEEP_MB="9")),
        ("option-pairs", "warning", "while HAKMEM_PURGE is off", variables(HAKMEM_PURGE="0", HAKMEM_POLICY="evolving")),
        ("option-pairs", "warning", "HAKMEM_POLICY_FILE has no effect", variables(HAKMEM_POLICY_FILE="/tmp/x")),
        ("option-pairs", "warning", "HAKMEM_STATS_PID has no effect", variables(HAKMEM_STATS_PID="77")),
        ("option-pairs", "warning", "HAKMEM_STATS_FILE has", variables(HAKMEM_STATS_FILE="/tmp/x", HAKMEM_STATS="off")),
        ("option-pairs", "warning", "HAKMEM_CANARY has no effect", variables(HAKMEM_CANARY="on")),
        ("option-pairs", "warning", "HAKMEM_QUARANTINE has no effect", variables(HAKMEM_QUARANTINE="9")),
        ("option-pairs", "warning", "HAKMEM_HEAP_PROFILE_KB has", variables(HAKMEM_HEAP_PROFILE_KB="9")),
        ("option-pairs", "note", "writes no profile", variables(HAKMEM_HEAP_PROFILE="on")),
        ("option-pairs", "warning", "nothing to go by", variables(HAKMEM_POLICY="frozen")),
        ("option-pairs", "warning", "above HAKMEM_HEAP_KB_MAX", variables(HAKMEM_BIN_KB_MAX="9000")),
        ("option-pairs", "warning", "beside HAKMEM_STATS", variables(HAKMEM_SS_OS_STATS="1", HAKMEM_STATS="off")),
        ("option-pairs", "note", "4 GiB", variables(HAKMEM_LIMIT_MB="5000")),
        ("option-pairs", "note", "480 MiB", both(no_swap, variables(HAKMEM_LIMIT_MB="500"))),
        ("policy-file", "warning", "makes none", variables(HAKMEM_POLICY="frozen", HAKMEM_POLICY_FILE=lost)),
        ("policy-file", "warning", "be written", variables(HAKMEM_POLICY="evolving", HAKMEM_POLICY_FILE=lost)),
        ("policy-file", "note", "whole path", variables(HAKMEM_POLICY="evolving", HAKMEM_POLICY_FILE="x")),
        ("foreign-options", "note", "MALLOC_ARENA_MAX acts on glibc", variables(MALLOC_ARENA_MAX="1")),
        ("foreign-options", "note", "MALLOC_CONF acts on jemalloc", variables(MALLOC_CONF="prof:true")),
        ("foreign-options", "note", "GLIBC_TUNABLES", variables(GLIBC_TUNABLES="glibc.malloc.tcache_count=0")),
        ("proc", "warning", "/proc is not mounted", lambda t: t.root.joinpath("proc/self").rename(t.root / "elsewhere")),
        ("huge-pages", "note", "hakmem refuses them", write(huge, "[always] madvise never\n")),
        ("huge-pages", "note", "has no effect", write(huge, never)),
        ("huge-pages", "warning", "has no effect", both(write(huge, never), variables(HAKMEM_HUGE="all"))),
        ("huge-pages", "note", "not in this kernel", lambda t: (t.remove(huge), t.remove(f"{HUGE}/defrag"))),
        ("compaction", "warning", "stalls", write(f"{HUGE}/defrag", "[always] defer madvise never\n")),
        ("overcommit", "note", "strict", write("proc/sys/vm/overcommit_memory", "2\n")),
        ("overcommit", "warning", "10.8 GiB of 11.4 GiB", both(write("proc/sys/vm/overcommit_memory", "2\n"),
            change("proc/meminfo", "Committed_AS:    4000000", "Committed_AS:    11400000"))),
        ("memory", "warning", "are left", change("proc/meminfo", "MemAvailable:    8000000", "MemAvailable:   90000")),
        ("swap", "warning", "swap is full", change("proc/meminfo", "SwapFree:        4000000", "SwapFree:        9")),
        ("cgroup", "warning", "near its limit", hold(500)),
        ("cgroup", "warning", "kills before", variables(HAKMEM_CGROUP="off")),
        ("cgroup", "note", "too late", both(write(f"{GROUP}/memory.max", f"{24 << 20}\n"), hold(4))),
        ("cgroup", "warning", "killed 2 processes", change(f"{GROUP}/memory.events", "oom_kill 0", "oom_kill 2")),
        ("cgroup", "note", "5 processes share", write(f"{GROUP}/cgroup.procs", many)),
        ("cgroup", "warning", "of 64 MiB", both(Tree.first_version, limit_v1(64))),
        # A group above that is smaller.
        ("cgroup", "warning", "of 90 MiB", both(
            write("sys/fs/cgroup/app/memory.max", "max\n"), write("sys/fs/cgroup/memory.max", f"{90 << 20}\n"),
            write("sys/fs/cgroup/memory.current", f"{89 << 20}\n"))),
        ("pressure", "warning", "12 %",
         write(f"{GROUP}/memory.pressure", "some avg10=12.5 avg60=0 avg300=0 total=0\n")),
        ("mappings", "warning", "only 1000", write("proc/sys/vm/max_map_count", "1000\n")),
        ("mappings", "problem", "of at most 3", write("proc/sys/vm/max_map_count", "3\n")),
        ("address-space", "note", "2 GiB", limit("address space", 2 << 30)),
        ("address-space", "warning", "400 MiB", limit("address space", 400 << 20)),
        ("data", "note", "2 GiB", limit("data size", 2 << 30)),
        ("data", "warning", "400 MiB", limit("data size", 400 << 20)),
        ("descriptors", "warning", "hardly a place", limit("open files", 7)),
        ("threads", "warning", "3 of at most 3", limit("processes", 3)),
        ("locked", "note", "does not go back", change(status, "VmLck:\t       0", "VmLck:\t    4000")),
        ("locked", "warning", "of at most 8 MiB", change(status, "VmLck:\t       0", "VmLck:\t    8000")),
        ("seccomp", "note", "_CGROUP=off and HAKMEM_BACKGROUND=off", change(status, "Seccomp:\t0", "Seccomp:\t2")),
        ("seccomp", "problem", "strict", change(status, "Seccomp:\t0", "Seccomp:\t1")),
        ("randomisation", "note", "is 0", write("proc/sys/kernel/randomize_va_space", "0\n")),
        ("randomisation", "note", "personality", change("proc/PROC/personality", "00000000", "00040000")),
        ("preload-file", "warning", "take it out", write("etc/ld.so.preload", "/none/x.so\n")),
        ("preload-file", "note", "all programs", write("etc/ld.so.preload", f"{copies[0]}\n")),
        ("preload-file", "warning", "jemalloc", write("etc/ld.so.preload", f"{made.allocator}\n")),
        ("preload", "problem", "takes the place", variables(LD_PRELOAD=f"{made.allocator}:{copies[0]}")),
        ("preload", "problem", "an allocator", variables(LD_PRELOAD=f"{made.odd_allocator} {copies[0]}")),
        ("preload", "note", "not used", variables(LD_PRELOAD=f"{copies[0]}:{made.allocator}")),
        ("preload", "warning", "No such file", variables(LD_PRELOAD="/none/x.so")),
        ("preload", "problem", "No such file", variables(LD_PRELOAD="/none/libhakmem.so")),
    ]


def fine_cases():
    """Words of a finding that is no bad one, and what is changed: then there is no bad one at all."""

    def write(path, text):
        return lambda tree: tree.write(path, text)

    def variables(**values):
        return lambda tree: tree.variables.update(values)

    return [
        # The swap that the group may use counts, as in hakmem; another group's limit of swap holds, too.
        ("malloc returns NULL when hakmem holds 4 GiB", variables()),
        ("malloc returns NULL when hakmem holds 1000 MiB", variables(HAKMEM_LIMIT_MB="1000")),
        ("malloc returns NULL when hakmem holds 480 MiB", write("sys/fs/cgroup/memory.swap.max", "0\n")),
        ("at which hakmem does not look", variables(HAKMEM_CGROUP="off", HAKMEM_LIMIT_MB="1000")),
        ("2 options are set", variables(HAKMEM_STATS_FILE="/tmp/x", HAKMEM_STATS_PID="77")),
        ("3.8 GiB of 3.8 GiB of swap are free", lambda tree: tree.change("proc/meminfo", "MemTotal", "\nMemTotal")),
        ("files can be opened", lambda tree: tree.change("proc/PROC/limits", "1024     ", "8        ")),
    ]


def two_copies(made):
    copies = [made.folder / "one/libhakmem.so", made.folder / "two/libhakmem.so"]
    for copy in copies:
        copy.parent.mkdir(exist_ok=True)
        copy.touch()
    return copies


def processes(made):
    """A made-up process: in order, then with one thing wrong."""

    def judged(number, change):
        root = made.folder / f"root{number}"
        tree = Tree(root, made.plain)
        if change:
            change(tree)
        tree.finish()
        return diagnosis("--root", root, PID)

    clean = judged(0, lambda tree: tree.variables.update(MALLOC_ARENA_MAX=""))  # sets nothing
    assert bad(clean) == [], bad(clean)
    first = judged("v1", Tree.first_version)
    assert bad(first) == [] and any("may hold 256 MiB" in f["what"] for f in first), first
    for number, (words, change) in enumerate(fine_cases()):
        findings = judged(f"fine{number}", change)
        assert bad(findings) == [] and any(words in f["what"] for f in findings), f"{words}: {findings}"
    seen = set()
    for number, (check, severity, words, change) in enumerate(process_cases(made), 1):
        findings = bad(judged(number, change))
        hits = [f for f in findings if (f["check"], f["severity"]) == (check, severity)]
        assert any(words in f"{f['what']}; {f['do']}" for f in hits), f"{check}, {words}: {findings}"
        others = [f for f in findings if f["check"] != check]
        assert len(others) <= 1, f"{check}, {words}: also {others}"
        seen.add(check)
    return seen


def program_cases(made):
    """Check, severity, words, the program, and what is in the environment."""
    copy = two_copies(made)
    cases = [
        ("static", "problem", "statically linked", made.static, {}),
        ("static", "problem", "statically linked", made.by_env, {"PATH": f"{made.folder}:/usr/bin"}),
        ("static", "problem", "statically linked", made.by_script, {"PATH": f"{made.folder}:/usr/bin"}),
        ("machine-code", "problem", "of 32 bits", made.narrow, {}),
        ("machine-code", "problem", "another machine", made.elsewhere, {}),
        ("machine-code", "problem", "neither a program nor a script", made.text, {}),
        ("allocators", "problem", "defines malloc itself", made.own_malloc, {}),
        ("allocators", "problem", "defines malloc itself", made.inner_malloc, {}),
        ("allocators", "note", "(jemalloc)", made.with_allocator, {}),
        ("sanitizers", "problem", "AddressSanitizer", made.sanitized, {}),
        ("copies", "warning", "2 times", made.with_hakmem, {"LD_PRELOAD": str(copy[0])}),
        ("copies", "warning", "2 times", made.plain, {"LD_PRELOAD": f"{copy[0]} {copy[1]}"}),
        ("option-pairs", "warning", "HAKMEM_DEEPBIND", made.with_hakmem, {"HAKMEM_DEEPBIND": "keep"}),
        ("preload", "warning", "No such file", made.plain, {"LD_PRELOAD": "/none/x.so"}),
    ]
    return cases + (privileged_cases(made) if can_raise(made) else [])


def can_raise(made):
    """Whether files of the folder may raise privileges, and this test can make such files."""
    return os.getuid() == 0 and not os.statvfs(made.folder).f_flag & os.ST_NOSUID


def privileged_cases(made):
    def copied(name, program=made.plain):
        return made.made(name, program.read_bytes())

    names = ("of-nobody", "of-root", "of-group", "of-both", "able")
    of_nobody, of_root, of_group, of_both, able = (copied(name) for name in names)
    own = copied("own", made.with_hakmem)
    for path in (of_nobody, own):
        os.chown(path, NOBODY, 0)
    for path in (of_group, of_both):
        os.chown(path, 0, NOBODY)
    for path, bits in ((of_nobody, 0o4755), (own, 0o4755), (of_root, 0o4755), (of_group, 0o2755), (of_both, 0o6755)):
        path.chmod(bits)
    os.setxattr(able, "security.capability", NET_RAW)
    return [
        ("privileges", "problem", "is set-uid", of_nobody, {}),
        ("privileges", "problem", "is set-gid", of_group, {}),
        ("privileges", "problem", "is set-gid", of_both, {}),
        ("privileges", "note", "is set-uid: run by others", of_root, {}),
        ("privileges", "note", "given capabilities", able, {}),
        ("privileges", "warning", "reads no HAKMEM_ variable", own, {"HAKMEM_STATS": "text"}),
    ]


def programs(made):
    """A program that is to run: in order, then with one thing wrong."""
    root = made.folder / "rootc"
    Tree(root, made.plain).finish()
    seen = {"script"}
    for program in (made.plain, made.by_plain, made.with_hakmem):
        findings = diagnosis("--root", root, "--", program, "argument")
        assert bad(findings) == [], bad(findings)
        assert any(f["check"] == "script" for f in findings) == (program == made.by_plain)
    for check, severity, words, program, env in program_cases(made):
        findings = bad(diagnosis("--root", root, "--", program, env=env))
        assert [(f["check"], f["severity"]) for f in findings] == [(check, severity)], f"{program}: {findings}"
        assert words in f"{findings[0]['what']}; {findings[0]['do']}", findings
        seen.add(check)
    # Where privileges cannot be raised, the loader preloads.
    if can_raise(made):
        tree = Tree(made.folder / "rootn", made.plain)
        tree.change("proc/PROC/status", "NoNewPrivs:\t0", "NoNewPrivs:\t1")
        tree.finish()
        findings = bad(diagnosis("--root", tree.root, "--", made.folder / "of-nobody"))
        assert [f["severity"] for f in findings] == ["note"], findings
        marks_of_no_effect(made)
    return seen


def marks_of_no_effect(made):
    """The kernel raises nothing in a mount without set-uid programs."""
    folder = made.folder / "nosuid"
    folder.mkdir()
    script = f"""mount -t tmpfs -o nosuid none {folder} && cp -p {made.folder}/of-nobody {folder}/program || exit 77
    exec {ARGUMENTS.tool} --json --all --root {made.folder}/rootc -- {folder}/program"""
    result = subprocess.run(["unshare", "-m", "sh", "-c", script], check=False, capture_output=True, timeout=200)
    if result.returncode == 0:
        found = [f["severity"] for f in json.loads(result.stdout)["findings"] if f["check"] == "privileges"]
        assert found == ["ok"], result.stdout
    else:
        assert result.returncode in (1, 77) and not result.stdout, result  # no mount here


def libraries(made):
    """What --library names; the program is of the same libc."""
    root = made.folder / "rootc"
    real = ARGUMENTS.library
    if real is None:
        return {"library", "libc"}
    spaced = made.folder / "a b" / "libhakmem.so"
    spaced.parent.mkdir()
    secret = made.folder / "libhakmem-secret.so"
    for path in (spaced, secret):
        path.write_bytes(Path(real).read_bytes())
    secret.chmod(0o600)
    for check, severity, words, library, program in (
        ("library", "problem", "No such file", "/none/libhakmem.so", made.plain),
        ("library", "problem", "is not hakmem's", made.text, made.plain),
        ("library", "problem", "is not hakmem's", made.harmless, made.plain),
        ("library", "warning", "cannot stand in LD_PRELOAD", spaced, made.plain),
        ("library", "warning", "other users", secret, made.plain),
        ("libc", "problem", "is of musl", real, made.musl),
    ):
        findings = bad(diagnosis("--root", root, "--library", library, "--", program))
        assert [(f["check"], f["severity"]) for f in findings] == [(check, severity)], f"{library}: {findings}"
        assert words in findings[0]["what"], findings
    findings = diagnosis("--root", root, "--library", real, "--", made.plain)
    assert bad(findings) == [] and {"library", "libc"} <= {f["check"] for f in findings}, findings
    return {"library", "libc"}


def real_processes(made):
    """This machine, and processes of it."""
    for words in ((), (os.getpid(),), ("--", sys.executable)):
        assert len(diagnosis(*words)) >= 8
    if ARGUMENTS.library is None:
        return set()
    renamed = Path(made.folder / "allocator.so")
    renamed.write_bytes(Path(ARGUMENTS.library).read_bytes())
    for env, is_there in (({}, False), ({"LD_PRELOAD": ARGUMENTS.library}, True), ({"LD_PRELOAD": renamed}, True)):
        command = [sys.executable, "-c", "print(flush=True); input()"]
        with subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            process.stdout.readline()
            findings = [f for f in diagnosis(process.pid) if f["check"] == "loaded"]
            assert [f["severity"] for f in findings] == ["ok" if is_there else "problem"], findings
            preloads = [f["severity"] for f in diagnosis(process.pid) if f["check"] == "preload"]
            assert preloads == (["ok"] if is_there else []), preloads
            process.communicate(b"\n", timeout=200)
    # One that ends meanwhile, whenever that is: nothing else is said of it.
    gone = re.compile(rb".*: (process \d+ has no memory of its own: it has ended.*|there is no process \d+)\n")
    numbers = random.Random(3)
    for _ in range(100):
        with subprocess.Popen(["sleep", "9"]) as process:
            asking = subprocess.Popen([ARGUMENTS.tool, str(process.pid)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            time.sleep(numbers.uniform(0, 0.006))
            process.kill()
            said = asking.communicate(timeout=200)
        assert gone.fullmatch(said[1]) or said[0], said
    # The summary of a process that may have as few files open as the doctor finds enough.
    few = "ulimit -n 8; exec /bin/true"
    env = {"LD_PRELOAD": ARGUMENTS.library, "HAKMEM_STATS": "text"}
    result = subprocess.run(["/bin/sh", "-c", few], check=True, capture_output=True, env=env, timeout=200)
    assert b"hakmem: peak RSS" in result.stderr, result
    return set()


def wrong_usage(made):
    for words, said in (
        (("--nonsense",), "unknown option '--nonsense'"),
        (("--",), "-- needs a CMD"),
        (("1", "2"), "takes one PID"),
        (("nonsense",), "is no process's number"),
        (("0",), "is no process's number"),
        (("99999999999999999999",), "is no process's number"),
        (("2147483647",), "there is no process"),
        (("--library",), "--library needs a value"),
        (("--crash", made.empty, "1"), "--crash FILE goes with no other argument"),
        (("--crash", made.empty, "--", "true"), "--crash FILE goes with no other argument"),
        (("--crash", made.empty, "--checks"), "--crash FILE goes with no other argument"),
        (("--checks", "1"), "--checks goes with no other argument"),
        (("--checks", "--json"), "--checks goes with no other argument"),
        (("--", "hakmem-nonsense"), "command not found"),
        (("--", ""), "CMD is empty"),
        (("--", made.folder), "not an executable file"),
        (("--", "/etc/passwd"), "not an executable file"),
        (("--", made.by_nobody), "interpreter, which runs"),
        (("--", made.by_lost), "its first line names nonsense, which is not there"),
        (("--", made.by_dos), "a carriage return, which counts as a part of the name"),
        (("--", made.by_dos_env), "a carriage return, which counts as a part of the name sh;"),
        (("--", made.by_bare), "sh, which runs"),
        (("--", made.by_none), "its first line names no interpreter"),
        (("--", made.empty), "is empty"),
        (("--root", made.folder, "1"), "no process can be looked at: /proc is not mounted"),
    ):
        result = tool(*words, status=(2,))
        assert result.stdout == b"" and result.stderr.count(b"\n") == 1, result
        assert said in result.stderr.decode(), f"{words}: {result.stderr}"
    return set()


def print_outs(made):
    """Text has a line for each finding of the JSON, and the worst stands first."""
    root = made.folder / "rootc"
    words = ("--root", root, "--", made.static)
    env = {"HAKMEM_X\x1b[31m": "1", "HAKMEM_KEEP_MB": "\N{SNOWMAN}\n"}
    findings = diagnosis(*words, env=env)
    lines = tool("--all", *words, env=env).stdout.decode().splitlines()
    assert len(lines) == len(findings) + 1
    assert lines[-1] == f"1 problem, 2 warnings, 0 notes, {len(findings) - 3} in order", lines[-1]
    assert [line.split()[0] for line in lines[:4]] == ["problem", "warning", "warning", "ok"]
    assert not any("\x1b" in line for line in lines)
    assert any("\N{SNOWMAN}?" in f["what"] for f in findings), findings
    assert len(tool(*words, env=env).stdout.decode().splitlines()) == 4
    return set()


def broken_files(made):
    """Programs cut off and altered at random: an answer, and no crash."""
    numbers = random.Random(5)
    content = made.with_allocator.read_bytes()
    for _ in range(BROKEN_FILES):
        altered = bytearray(content[: numbers.choice((len(content), numbers.randrange(1, len(content))))])
        for _ in range(numbers.choice((0, 1, 4, 40))):
            at = numbers.randrange(min(len(altered), numbers.choice((64, 1024, len(altered)))))
            altered[at] = numbers.choice((0, 0xFF, numbers.randrange(256)))
        if altered[:2] != b"#!":
            tool("--", made.made("broken", bytes(altered)), status=(0, 1, 2))
    shortened(made, content)
    return set()


def shortened(made, content):
    """A program that another process overwrites: it is empty as soon as the tool has closed it."""
    text = """
    #define _GNU_SOURCE
    #include <stdlib.h>
    #include <sys/stat.h>
    #include <sys/syscall.h>
    #include <unistd.h>
    int close(int fd) {
      struct stat ours, this;
      if (stat(getenv("SHORTENED"), &ours) == 0 && fstat(fd, &this) == 0 && this.st_ino == ours.st_ino)
        truncate(getenv("SHORTENED"), 0);
      return (int)syscall(SYS_close, fd);
    }
    """
    program = made.made("shortened", content)
    closes = made.compiled("closes.so", text, "-shared", "-fPIC", "-Wno-unused-result")
    tool("--", program, env={"LD_PRELOAD": closes, "SHORTENED": program}, status=(0, 1, 2))
    assert os.path.getsize(program) == 0


def crash_reports(made):
    """Frames get the names that nm gives; everything else stays, also what only looks like a frame."""
    names = subprocess.run(["nm", "-D", "--defined-only", ARGUMENTS.library or ARGUMENTS.tool], capture_output=True, text=True)
    found = [line.split() for line in names.stdout.splitlines() if line.split()[1:] == ["T", "hak_malloc"]]
    path = os.path.realpath(ARGUMENTS.library or ARGUMENTS.tool)
    if not found:
        return set()
    at = int(found[0][0], 16)
    plain = ["double free of block 0x10 of 3 bytes", "hakmem:     /nowhere+0x10", f"{path}+0x10", "hakmem:     0x7f10", ""]
    report = Path(made.made("report", "\n".join([*plain[:-1], f"hakmem:     {path}+0x{at + 2:x}", ""]).encode()))
    shown = tool("--crash", report).stdout.decode().splitlines()
    assert shown == [*plain[:-1], f"hakmem:     {path}+0x{at + 2:x}  hak_malloc+0x2"], shown
    # Of what else stands in a log, all comes out: zero bytes, a long line, the last one without an end.
    frame, named = f"hakmem:     {path}+0x{at:x}".encode(), f"hakmem:     {path}+0x{at:x}  hak_malloc+0x0".encode()
    for log in (b"a\n\0\0\0b\n", b"\n" + b"x" * (1 << 20) + b"\n", b"x" * (65 << 20) + frame + b"\n"):
        shown = tool("--crash", "-", input=log + frame).stdout
        assert shown == log + named + b"\n", (log[:20], len(shown), shown[-200:])
    # What a journal or a log server writes before each line stays, too.
    for before in (b"Dec 01 04:00:00 host server[17]: ", b"server-0 | "):
        shown = tool("--crash", "-", input=before + frame + b"\n").stdout
        assert shown == before + named + b"\n", shown
    for log in (b"", b"a line\n"):
        done = tool("--crash", "-", input=log, status=(2,))
        assert done.stdout == log and done.stderr.endswith(b"stdin: there is no report of hakmem in it\n"), done
    tool("--crash", "/nowhere", status=(2,))
    tool("--crash", "/", status=(2,))
    if ARGUMENTS.library:
        leaking_program(made)
    return set()


def leaking_program(made):
    """Its own list of leaks gets names, wherever it and the doctor run."""
    text = """#include <stdlib.h>
    static void *volatile kept;
    __attribute__((noinline)) void take_what_stays(void) { kept = malloc(1000); }
    int main(void) { take_what_stays(); }"""
    program = made.program("leaking", "-O0", text=text)
    env = {"LD_PRELOAD": ARGUMENTS.library, "HAKMEM_HEAP_PROFILE": "leaks"}
    report = subprocess.run([program], check=True, capture_output=True, env=env, cwd="/", timeout=200).stderr
    shown = tool("--crash", "-", input=report, cwd="/").stdout
    assert b"take_what_stays+0x" in shown and b"main+0x" in shown, shown


def main():
    judged = (processes, programs, libraries, real_processes, wrong_usage, print_outs, broken_files, crash_reports)
    with tempfile.TemporaryDirectory() as folder:
        made = Programs(folder, ARGUMENTS.compiler)
        seen = set(itertools.chain.from_iterable(run(case, made) for case in judged))
    checks = {line.split()[0] for line in tool("--checks").stdout.decode().splitlines()}
    assert seen == checks, f"without a case: {checks - seen}; unknown: {seen - checks}"


def run(case, made):
    seen = case(made)
    print(f"{case.__name__}: ok", flush=True)
    return seen


if __name__ == "__main__":
    main()
