"""hak profile: what is read from heap profiles, the names of functions, and runs of programs."""

import os
import re
import resource
import shutil
import signal
import subprocess
import sys

import go_pprof
import made_profile
import pytest
from made_profile import HOSTILE, content, packed

from lab.judge import stacks
from lab.run import names
from lab.store import profile as stored
from lab.store import symbols

pytest_plugins = ("made_profile",)

KIB, MIB = 1 << 10, 1 << 20
LIVE, MOST = 1000 * KIB + 3 * MIB, 1000 * KIB + 12 * MIB


def functions(named, kind):
    return {one.frame.name: (one.own.bytes, one.whole.bytes) for one in stacks.functions(named.stacks(kind))}


# --- reading ------------------------------------------------------------------------------------------


def test_known_stacks_and_names(made):
    named = names.name(stored.read(made / "real"))
    assert named.notes == [] and named.profile.program == "test-profile-made"
    for kind, parses, works in (("live", 3 * MIB, LIVE), ("allocated", 12 * MIB, MOST), ("peak", 12 * MIB, MOST)):
        found = functions(named, kind)
        assert list(found)[:2] == ["parses", "reads"]
        assert {name: found[name] for name in ("parses", "reads", "works", "main")} == {
            "parses": (parses, parses), "reads": (1000 * KIB, 1000 * KIB), "works": (0, works), "main": (0, works)}  # fmt: skip
        inner = {tuple(frame.name for frame in stack.frames[-2:]) for stack in stacks.merged(named.stacks(kind))}
        assert inner == {("works", "parses"), ("works", "reads")}


def test_known_figures(made):
    named = names.name(stored.read(made / "known"))
    found = {tuple(frame.name for frame in stack.frames): stack.weight for stack in named.stacks("allocated")}
    assert found[("0x3000", "0x2000", "0x1000")] == (3000, 2)
    assert found[("[no stack]",)] == (1 << 40, 3) and found[("[other stacks]",)] == (11, 1)
    comments = named.profile.comments
    assert comments[0] == "hakmem 1.2.3" and named.profile.period_bytes == 512 * KIB


def test_sums():
    rows = made_profile.stacks([(("a", "b"), 5), (("a", "b"), 7), (("a", "a", "c"), 1), (("b",), 0), ((), 2)])
    found = {one.frame.name: (one.own.bytes, one.whole.bytes) for one in stacks.functions(rows)}
    assert found == {"b": (12, 12), "c": (1, 1), "a": (0, 13)}, "a function that calls itself counts once"
    assert [stack.weight.bytes for stack in stacks.merged(rows)] == [12, 2, 1]
    root = stacks.tree([*rows, *made_profile.stacks([(("a", "lost"), -3)])])
    assert root.bytes == 15
    (a,) = root.by_size()
    assert a.bytes == 13 and [child.frame.name for child in a.by_size()] == ["b", "a"]


def damages(data, message):
    """(bytes, what is said of them)"""
    yield b"", "is empty"
    for cut in (3, 11, len(data) // 2, len(data) - 1):
        yield data[:cut], "is cut off"
    yield data[:20] + bytes([data[20] ^ 255]) + data[21:], "is damaged"
    yield data + b"more", "is damaged"
    yield b"text, and no profile\n", "is not a profile"
    raw = message.SerializeToString()
    yield raw[: len(raw) // 2], "is not a profile"
    for change in ("value", "location", "mapping", "function", "string", "negative", "first", "types"):
        other = type(message).FromString(raw)
        if change == "value":
            other.sample[0].value.append(1)
        elif change == "location":
            other.sample[0].location_id.append(10**6)
        elif change == "mapping":
            other.location[0].mapping_id = 7
        elif change == "function":
            other.location[0].line[0].function_id = 10**6
        elif change == "string":
            other.function[0].name = 10**6
        elif change == "negative":
            other.sample_type[0].type = -1
        elif change == "first":
            other.string_table[0] = "x"
        else:
            del other.sample_type[:]
        yield packed(other), "is not a profile" if change in ("first", "types") else "it names what is not in it"


def test_damaged(tmp_path, verb):
    message = content([(("main", "f"), 10)])
    path = tmp_path / "a.pb.gz"
    path.write_bytes(packed(message))
    assert stored.read(path).kinds == list(made_profile.FIGURES)  # the control: undamaged, it is read
    for data, told in damages(packed(message), message):
        path.write_bytes(data)
        with pytest.raises(stored.BadProfile, match=told) as found:
            stored.read(path)
        assert str(found.value).startswith(str(path)) and "\n" not in str(found.value)
    for word in ("top", "flame"):
        done = verb(word, path, status=2)
        assert done.stdout == "" and done.stderr.count("\n") == 1 and str(path) in done.stderr
    assert sorted(found.name for found in tmp_path.iterdir()) == ["a.pb.gz"]


def test_each_beginning_and_each_byte(made, tmp_path):
    """Nothing but BadProfile comes of what is damaged anywhere."""
    raw = stored._unpacked(made / "real")
    survived = 0
    for at in range(0, len(raw), 3):
        for data in (raw[:at], raw[:at] + bytes([raw[at] ^ 1 << at % 8]) + raw[at + 1 :]):
            try:
                found = stored.parse(data)
            except stored.BadProfile:
                continue
            survived += 1
            assert all(len(values) == len(found.kinds) for _, values in found.samples)
    assert survived, "a changed figure is no damage"


def test_limit(made, monkeypatch):
    monkeypatch.setattr(stored, "LIMIT_BYTES", 100)
    with pytest.raises(stored.BadProfile, match="holds more than"):
        stored.read(made / "real")


def test_other_writers(tmp_path, verb):
    path = tmp_path / "go.pb.gz"
    figures = {name: made_profile.FIGURES[name] for name in ("alloc_objects", "alloc_space")}
    path.write_bytes(packed(content([(("main",), [3, 4096])], figures)))
    assert "4,096" in verb("top", path, "--kind", "allocated").stdout
    told = verb("top", path, status=2).stderr
    assert "does not say what is live" in told and "alloc_space" in told and told.count("\n") == 1
    path.write_bytes(content([(("main",), 8)]).SerializeToString())  # not packed
    assert "main" in verb("top", path).stdout


# --- names --------------------------------------------------------------------------------------------


@pytest.fixture
def copy(build, tmp_path):
    """A copy of the program that makes profiles, and a profile of it."""
    program = tmp_path / "program"
    shutil.copy(build / "bin" / "tests" / "test-profile-made", program)
    subprocess.run([program, "real", tmp_path / "real"], check=True, timeout=50)
    return program


def tool(*words):
    subprocess.run(list(map(str, words)), check=True, timeout=50)


def test_another_build(copy, tmp_path, verb):
    profile = stored.read(tmp_path / "real")
    assert "parses" in functions(names.name(profile), "live")
    shutil.copy("/bin/true", copy)
    named = names.name(profile)
    found = functions(named, "live")
    assert "parses" not in found and any(name.startswith("0x") for name in found) and len(named.notes) == 1
    assert named.notes[0].startswith(str(copy)) and "another build-id" in named.notes[0]
    done = verb("top", "real")
    assert "another build-id" in done.stderr and "0x" in done.stdout
    for data in (b"", b"\x7fELF", b"text", (b"\x7fELF\x02\x01\x01" + bytes(9) + b"\xff" * 100)):
        copy.unlink()
        copy.write_bytes(data)
        assert "no ELF file, or a damaged one" in names.name(profile).notes[0]
    copy.unlink()
    os.mkfifo(copy)
    assert "is not there" in names.name(profile).notes[0]


def test_debug_files(copy, tmp_path):
    """Functions that are not exported, of a stripped program; then of a program that is gone."""
    profile = stored.read(tmp_path / "real")
    ident = profile.locations[1].mapping.build_id
    target = tmp_path / "debug" / ident[:2] / f"{ident[2:]}.debug"
    target.parent.mkdir(parents=True)
    whole = copy.read_bytes()
    tool("strip", copy)
    assert "parses" not in functions(names.name(profile, tmp_path / "debug"), "live")
    copy.write_bytes(whole)
    tool("objcopy", "--only-keep-debug", copy, target)
    tool("strip", copy)
    for _ in range(2):
        named = names.name(profile, tmp_path / "debug")
        found = functions(named, "live")
        assert found["parses"] == (3 * MIB, 3 * MIB) and found["reads"][0] == 1000 * KIB and named.notes == []
        copy.unlink(missing_ok=True)
    tool("objcopy", "--only-keep-debug", "/bin/true", target)  # not of this build-id
    assert "parses" not in functions(names.name(profile, tmp_path / "debug"), "live")


def test_demangled(monkeypatch):
    found = names.demangled(["_ZN3foo3barEi", "main", "_Z3bad\n_Z1fv", "_Znwm", *HOSTILE])
    assert found == {"_ZN3foo3barEi": "foo::bar", "_Znwm": "operator new"}
    monkeypatch.setenv("PATH", "/nonexistent")
    assert names.demangled(["_Znwm"]) == {}


def test_symbols(made):
    """Only inside a function is its name."""
    mapping = stored.read(made / "real").locations[1].mapping
    table = symbols.Symbols.of(mapping)
    said = subprocess.run(["nm", "-S", mapping.file], capture_output=True, text=True, check=True).stdout
    start, length = re.search(r"^(\w+) (\w+) t works$", said, re.MULTILINE).groups()
    first, end = int(start, 16), int(start, 16) + int(length, 16)
    assert [table.name(at) for at in (first, end - 1)] == ["works"] * 2
    assert "works" not in (table.name(first - 1), table.name(end)) and table.name(0) == table.name(1 << 63) == ""


# --- against pprof ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pprof(build):
    cache = build / "go-cache"
    try:
        words = go_pprof.find(cache)
    except go_pprof.NoGo as error:
        pytest.skip(str(error))

    def top(path, kind):
        """[(function, own bytes, bytes with callees)]"""
        done = subprocess.run([*words, "-top", f"-sample_index={names.KINDS[kind][0]}", "-unit=B", "-nodecount=50",
                               "-nodefraction=0", path], capture_output=True, text=True, timeout=150, check=False,
                              env=go_pprof.environment(cache))  # fmt: skip
        assert done.returncode == 0, done.stderr
        rows = re.findall(r"^ *(\d+)B? +\S+% +\S+% +(\d+)B? +\S+% +(.*)$", done.stdout, re.MULTILINE)
        return [(name.removesuffix(" (inline)"), int(own), int(whole)) for own, whole, name in rows]

    return top


def judge_first(ours, theirs):
    """The functions that allocate, and their figures."""
    assert [one for one in ours if one[1]] == [one for one in theirs if one[1]]
    assert len(ours) > 1


@pytest.mark.parametrize("kind", list(names.KINDS))
def test_pprof_agrees(made, pprof, kind):
    named = names.name(stored.read(made / "real"))
    ours = [(one.frame.name, one.own.bytes, one.whole.bytes) for one in stacks.functions(named.stacks(kind))]
    theirs = pprof(made / "real", kind)
    judge_first(ours, theirs)
    assert next(one for one in ours if one[0] == "works") in theirs
    with pytest.raises(AssertionError):
        judge_first([(ours[0][0], ours[0][1] + 1, ours[0][2]), *ours[1:]], theirs)


# --- the verb -----------------------------------------------------------------------------------------


def test_top(made, verb, hostile):
    done = verb("top", made / "real")
    rows = [line.split() for line in done.stdout.splitlines() if "%" in line and "function" not in line]
    assert rows[0][:2] == ["parses", f"{3 * MIB:,}"] and rows[1][0] == "reads" and done.stderr == ""
    assert "13.0 MiB allocated (1,012 objects)" in done.stdout
    by_stack = verb("top", made / "real", "--stacks", "--kind", "peak", "--count", "1").stdout
    assert "12.0 MiB" in by_stack and "parses" in by_stack and "reads" not in by_stack
    for options in ((), ("--stacks",)):
        shown = verb("top", hostile, *options).stdout
        assert shown.replace("\n", "").isprintable() and "{{ 7 * 7 }}" in shown
        assert max(map(len, shown.splitlines())) < 300
    for words, told in ((["top", "none"], "No such file"), (["top", "."], "is not a file"),
                        (["flame", made / "real", "--out", "x.png"], ".html or .svg")):  # fmt: skip
        done = verb(*words, status=2)
        assert told in done.stderr and done.stderr.count("\n") == 1 and done.stdout == ""


# Stands for hakmem: writes the profile that is given, where the library would.
WRITES = """
import os, shutil, sys
def write(source):
    shutil.copy(source, os.environ["HAKMEM_HEAP_PROFILE_FILE"].replace("%p", str(os.getpid())))
assert os.environ["HAKMEM_HEAP_PROFILE"] == "on" and os.environ["HAKMEM_HEAP_PROFILE_KB"] == sys.argv[2]
assert "PYTHONPATH" not in os.environ and "libhakmem" in os.environ["LD_PRELOAD"]
if len(sys.argv) > 3 and os.fork() == 0:
    write(sys.argv[3])
    os._exit(0)
if len(sys.argv) > 3:
    os.wait()
print(sys.stdin.read(), "said", flush=True)
write(sys.argv[1])
os._exit(5)  # the library itself writes nothing
"""


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(WRITES)
    return (sys.executable, path)


def test_run(made, verb, tmp_path, program):
    done = verb("--kb", "7", "--flame", "f.svg", "--", *program, made / "real", 7, status=5)
    assert done.stdout == " said\n"
    name = f"{os.path.basename(sys.executable)}.pb.gz"
    assert (tmp_path / name).read_bytes() == (made / "real").read_bytes() and (tmp_path / "f.svg").exists()
    assert f"hak: {name}: test-profile-made, 13.0 MiB live at the peak" in done.stderr and "parses" in done.stderr
    more = f"hak profile top --kind peak {name}, hak profile flame --kind peak {name}, go tool pprof -http=: {name}"
    assert more in done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {name, "f.svg", "program.py"}
    verb("--kb", "7", "--kind", "live", "--", *program, made / "real", 7, status=5)
    assert (tmp_path / name.replace(".pb", "-2.pb")).exists()


SOURCE = """
#include <stdlib.h>
char *kept[4000];
__attribute__((noinline)) char *takes(size_t bytes) { char *made = malloc(bytes); *made = 1; return made + 0 * *(volatile char *)made; }
__attribute__((noinline)) int keeps(void) { for (int i = 0; i < 4000; i++) kept[i] = takes(1024); return kept[0][0]; }
__attribute__((noinline)) int drops(void) { for (int i = 0; i < 2000; i++) free(takes(8192)); return kept[1][0]; }
int main(void) { return keeps() + drops() - 2; }
"""


@pytest.mark.parametrize("options", [(), ("-fomit-frame-pointer",)])
def test_a_real_program(verb, tmp_path, pprof, options):
    """Every allocation: exact. What libc allocates is in it, too."""
    (tmp_path / "p.c").write_text(SOURCE)
    tool("cc", "-g", "-gdwarf-4", "-O1", "-w", *options, "-o", tmp_path / "p", tmp_path / "p.c")
    said = verb("--kb", "0", "--", "./p").stderr
    assert "keeps  [p]" in said and "takes  [p]" in said
    named = names.name(stored.read(tmp_path / "p.pb.gz"))
    assert named.notes == []
    for kind, takes, dropped in (("live", 4000 * KIB, 0), ("allocated", 4000 * KIB + 2000 * 8 * KIB, 2000 * 8 * KIB)):
        found = functions(named, kind)
        assert found["takes"] == (takes, takes) and found["keeps"] == (0, 4000 * KIB)
        assert found.get("drops", (0, 0)) == (0, dropped) and found["main"] == (0, takes)
        theirs = {name: (own, whole) for name, own, whole in pprof(tmp_path / "p.pb.gz", kind)}
        assert {name: theirs.get(name, (0, 0)) for name in ("takes", "keeps", "drops")} == {
            name: found.get(name, (0, 0)) for name in ("takes", "keeps", "drops")}  # fmt: skip


def test_a_sampled_program(verb, tmp_path):
    """A sample each 64 KiB of 20 MB: within five standard deviations. Without the profiler there is no file."""
    (tmp_path / "p.c").write_text(SOURCE)
    tool("cc", "-O1", "-w", "-o", tmp_path / "p", tmp_path / "p.c")
    verb("--kb", "64", "--flame", "p.html", "--", "./p")
    found = functions(names.name(stored.read(tmp_path / "p.pb.gz")), "allocated")
    assert found["drops"][1] == pytest.approx(16e6, rel=0.32) and found["keeps"][1] == pytest.approx(4e6, rel=0.64)
    assert "keeps" in (tmp_path / "p.html").read_text()


def test_a_folder_is_no_pattern(verb, tmp_path):
    folder = tmp_path / "100%p%%"
    folder.mkdir()
    done = verb("--out", folder / "heap%%", "--", "true")
    assert "hak: no allocation was sampled at an interval of 512.0 KiB: --kb 0 samples every one" in done.stderr
    assert [path.name for path in folder.iterdir()] == ["heap%%"]


def test_run_with_children(made, verb, tmp_path, program):
    """What is told is of the process with the most."""
    done = verb("--out", "a b", "--", *program, made / "real", 512, made / "known", status=5)
    (child,) = [path for path in tmp_path.iterdir() if path.name.startswith("a b.")]
    assert child.read_bytes() == (made / "known").read_bytes() and re.fullmatch(r"a b\.\d+", child.name)
    assert f"hak: {child.name}: " in done.stderr and "[no stack]" in done.stderr and "parses" not in done.stderr
    done = verb("--out", "a b", "--", *program, made / "real", 512, status=2)
    assert "a b is there and is not overwritten; --force does that" in done.stderr and child.exists()
    verb("--out", "a b", "--force", "--", *program, made / "real", 512, status=5)
    assert not child.exists()


def test_run_refusals(made, verb, tmp_path, program):
    (tmp_path / "text").write_text("kept")
    (tmp_path / "folder.svg").mkdir()
    for words, status, told in (
        (["--flame", "none/x.svg", "--", "true"], 2, "none is no folder"),
        (["--flame", "folder.svg", "--", "true"], 2, "folder.svg is not a file"),
        (["--out", "text", "--force", "--", "true"], 2, "is no profile; it is not overwritten"),
        (["--out", "none/x", "--", "true"], 2, "no folder"), (["--out", "x%p", "--", "true"], 2, "%p"),
        (["--out", ".", "--", "true"], 2, "not a file"), (["--flame", "x.png", "--", "true"], 2, ".html or .svg"),
        (["--", ""], 2, "CMD is empty"), (["--", "nonsense-command"], 127, "not found"), (["--", "/etc/passwd"], 126, "executable"),
        (["--kind", "none", "--", "true"], 2, "none"), (["--kb", "-1", "--", "true"], 2, "--kb"), ([], 2, "CMD"),
    ):  # fmt: skip
        done = verb(*words, status=status)
        assert told in done.stderr and done.stdout == "", done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"text", "folder.svg", "program.py"}
    assert (tmp_path / "text").read_text() == "kept"


def test_output_that_cannot_be_written(made, tree, build, library, tmp_path):
    """A full disk is one sentence; where stdout is closed, CMD runs and ends as it would."""
    command = [sys.executable, "-m", "lab", "profile"]
    settings = {"cwd": tmp_path, "stderr": subprocess.PIPE, "text": True,
                "env": os.environ | {"PYTHONPATH": str(tree), "HAK_BUILD": str(build), "HAK_LIB": str(library)}}  # fmt: skip
    with open("/dev/full", "w") as full:
        done = subprocess.run([*command, "top", made / "real"], stdout=full, check=False, **settings)
    assert (done.returncode, done.stderr) == (1, "hak: stdout: No space left on device\n")
    words, few = ("flame", made / "real", "--out", "f.svg"), (100, 100)
    done = subprocess.run([*command, *words], check=False, **settings,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, few))  # fmt: skip
    assert (done.returncode, done.stderr) == (2, "hak: f.svg: File too large\n") and list(tmp_path.iterdir()) == []
    words = ("--", "sh", "-c", "echo x; exit 5")
    done = subprocess.run([*command, *words], preexec_fn=lambda: os.close(1), check=False, **settings)
    assert done.returncode == 5 and "hak: sh.pb.gz: " in done.stderr and "Traceback" not in done.stderr


def test_run_without_a_profile(verb, tmp_path):
    """A program that is killed: it ends so for the caller, too."""
    done = verb("--", "sh", "-c", "kill -9 $$", status=-signal.SIGKILL)
    assert "sh.pb.gz: no profile was written" in done.stderr and list(tmp_path.iterdir()) == []
