"""USDT probes: docs/probes.md, the sources and the library agree; the fast path has none; bpftrace sees them.

    probes.py ROOT LIBRARY EVENTS COMPILE_COMMANDS            the sources, the page and readelf
    probes.py ROOT LIBRARY EVENTS COMPILE_COMMANDS bpftrace   bpftrace, where it may attach

Each run first shows that the judges refuse what is wrong.
"""

import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import cases

ROOT, LIBRARY, EVENTS, COMMANDS = (Path(argument) for argument in sys.argv[1:5])
ROW = re.compile(r"^\| `(\w+)` \| ([^|]+) \|", re.MULTILINE)
PROBE = re.compile(r"HAK_PROBE\((\w+),((?:[^()]|\([^()]*\))+)\)")
NOTE = re.compile(r"Provider: hakmem\n\s*Name: (\w+)\n\s*Location: 0x([0-9a-f]+),.*\n\s*Arguments: (.*)")
FAST = ("malloc", "free", "calloc", "cfree", "hak_malloc", "hak_free")
FAST_ALIASES = ("__libc_malloc", "__libc_free", "__libc_cfree", "__libc_calloc")  # objdump names a function once
FAST_SOURCES = ("src/api/malloc.c", "src/api/override_libc.c")
LARGE_BYTES, ROUNDS = 1234567, 8


def run(*command, **options):
    return subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True, **options).stdout


def arguments_of_documents(text):
    return {name: len(arguments.split(",")) for name, arguments in ROW.findall(text)}


def paths_of_sources(root):
    return sorted([*root.glob("src/*/*.c"), *root.glob("observe/*/*.c")])


def arguments_of_sources(root):
    """The number of arguments of each probe; brackets inside an argument may hold commas."""
    found = {}
    for path in paths_of_sources(root):
        for name, arguments in PROBE.findall(path.read_text()):
            assert name not in found, f"probe {name} stands twice"
            found[name] = len(re.sub(r"\([^()]*\)", "", arguments).split(","))
    return found


def arguments_of_library(notes):
    return {name: len(arguments.split()) for name, _, arguments in NOTE.findall(notes)}


def judge(documents, sources, library):
    """What does not agree, in words."""
    for name in sorted(documents.keys() | sources.keys() | library.keys()):
        counts = [table.get(name) for table in (documents, sources, library)]
        if len(set(counts)) > 1:
            yield f"{name}: arguments in docs/probes.md, in the sources, in the library: {counts}"


def tables_agree(_):
    text, notes = (ROOT / "docs/probes.md").read_text(), run("readelf", "-n", LIBRARY)
    sources = arguments_of_sources(ROOT)
    assert len(sources) >= 11, sources
    found = list(judge(arguments_of_documents(text), sources, arguments_of_library(notes)))
    assert not found, "\n".join(found)
    # The judge refuses a row less, an argument more, a probe that the library lacks.
    for wrong_text, wrong_notes in (
        (text.replace("| `flush` |", "| flush |"), notes),
        (text.replace("| `purge` | address,", "| `purge` | address, way,"), notes),
        (text, notes.replace("Name: refill", "Name: refilled")),
        (text, re.sub(r"(Name: large_alloc\n.*\n\s*Arguments: \S+) .*", r"\1", notes)),
    ):
        assert (wrong_text, wrong_notes) != (text, notes), "the control changes nothing"
        assert list(judge(arguments_of_documents(wrong_text), sources, arguments_of_library(wrong_notes)))


def functions_of(library):
    """Name, beginning and end of each function."""
    for line in run("nm", "-S", "--defined-only", library).splitlines():
        words = line.split()
        if len(words) == 4 and words[2] in "tTwW":
            yield words[3], int(words[0], 16), int(words[0], 16) + int(words[1], 16)


def probes_inside(places, functions, names):
    return [name for name, begin, end in functions if name in names and any(begin <= place < end for place in places)]


def no_probe_in_the_fast_path(_):
    places = [int(place, 16) for _, place, _ in NOTE.findall(run("readelf", "-n", LIBRARY))]
    functions = list(functions_of(LIBRARY))
    assert {"malloc", "free"} <= {name for name, _, _ in functions}
    assert probes_inside(places, functions, FAST) == []
    all_names = {name for name, _, _ in functions}
    assert probes_inside(places, functions, all_names), "no function is found that has one"


def compiled(source, text, probes, folder):
    """The object of a source with that text, by the compiler and the flags of the build."""
    entry = next(e for e in json.loads(COMMANDS.read_text()) if e["file"].endswith(source))
    words = [w for w in entry["command"].split() if not w.startswith("-DHAK_PROBES")]
    made, out = folder / Path(source).name, folder / "made.o"
    made.write_text(text)
    for flag, value in (("-o", out), ("-c", made)):
        words[words.index(flag) + 1] = str(value)
    words = [
        w for i, w in enumerate(words) if not w.startswith("-M") and (i == 0 or words[i - 1] not in ("-MT", "-MF"))
    ]
    run(*words, *probes, "-I", (ROOT / source).parent, cwd=entry["directory"])
    return out


def code_of(source, text, probes, folder):
    """The instructions of the fast functions of a source, with what they refer to."""
    out = compiled(source, text, probes, folder)
    parts = re.split(r"^[0-9a-f]+ <(.+)>:\n", run("objdump", "-dr", "--no-show-raw-insn", out), flags=re.MULTILINE)
    return {name: body for name, body in zip(parts[1::2], parts[2::2]) if name in FAST + FAST_ALIASES}


def the_fast_path_is_the_same_code(folder):
    seen = set()
    for source in FAST_SOURCES:
        text = (ROOT / source).read_text()
        with_probes, without = (code_of(source, text, probes, folder) for probes in (["-DHAK_PROBES=1"], []))
        assert with_probes == without, f"{source}: the fast path differs"
        seen |= with_probes.keys()
    assert {"hak_malloc", "hak_free"} <= seen and len(seen) >= 4, seen
    # A probe in the fast path is seen.
    text, head = (ROOT / FAST_SOURCES[0]).read_text(), "void hak_free(void *block) {"
    wrong = '#include "base/probe.h"\n' + text.replace(head, f"{head} HAK_PROBE(free, block);")
    assert wrong.count("HAK_PROBE(free") == 1
    control = code_of(FAST_SOURCES[0], wrong, ["-DHAK_PROBES=1"], folder)
    assert control["hak_free"] != code_of(FAST_SOURCES[0], wrong, [], folder)["hak_free"]


def sources_build_without_probes(folder):
    """A system without sys/sdt.h builds every source that has a probe: nothing is left over that only a probe uses."""
    built = {entry["file"] for entry in json.loads(COMMANDS.read_text())}
    texts = {path: path.read_text() for path in paths_of_sources(ROOT) if str(path) in built}
    texts = {path: text for path, text in texts.items() if PROBE.search(text)}
    assert len(texts) >= 8, texts.keys()
    for path, text in texts.items():
        compiled(path.relative_to(ROOT).as_posix(), text, [], folder)
    left_over = text + "\nstatic inline void left_over(int unused) {}\n"
    try:
        compiled(path.relative_to(ROOT).as_posix(), left_over, [], folder)
    except subprocess.CalledProcessError as refused:
        assert "unused" in refused.stderr, refused.stderr
    else:
        raise AssertionError("a parameter that is left over is not refused")


def script_of(names):
    lines = [f'usdt:{LIBRARY}:hakmem:{name} {{ @["{name}"] = count(); }}' for name in names]
    lines.append(f"usdt:{LIBRARY}:hakmem:large_alloc /arg1 == {LARGE_BYTES}/ {{ @exact = count(); }}")
    lines.append(f"usdt:{LIBRARY}:hakmem:large_alloc /arg1 == {LARGE_BYTES + 1}/ {{ @none = count(); }}")
    lines.append('interval:ms:200 { printf("tick\\n"); }')
    return "\n".join(lines)


def events_run(preload):
    env = cases.environment(HAKMEM_LIMIT_MB="64", HAKMEM_PURGE_DELAY_MS="100")
    env |= {"LD_PRELOAD": str(LIBRARY)} if preload else {}
    said = run(EVENTS, env=env, timeout=200)
    assert said == ("refused\n" if preload else "not refused\n"), said


def traced(names, preload):
    """What bpftrace counts while the program runs; a sentence where it may not attach."""
    with tempfile.TemporaryFile("w+") as error:
        tracer = subprocess.Popen(["bpftrace", "-e", script_of(names)], stdout=subprocess.PIPE, stderr=error, text=True)
        try:
            lines = iter(tracer.stdout.readline, "")
            if not any(line == "tick\n" for line in lines):
                error.seek(0)
                return None, " ".join(error.read().split())[-200:]
            time.sleep(0.5)  # the order in which it attaches is its own
            events_run(preload)
            tracer.send_signal(2)
            out, _ = tracer.communicate(timeout=200)
            return out, ""
        finally:
            tracer.kill()
            tracer.wait()


def counts_of(out):
    counts = {name: int(count) for name, count in re.findall(r"^@\[(\w+)\]: (\d+)$", out, re.MULTILINE)}
    counts |= {name: int(count) for name, count in re.findall(r"^@(exact|none): (\d+)$", out, re.MULTILINE)}
    return {name: count for name, count in counts.items() if count > 0}


def bpftrace_sees_them(_):
    cases.need("bpftrace")
    names = sorted(arguments_of_sources(ROOT).keys() - {"sample"})
    out, why = traced(names, preload=True)
    if out is None:
        cases.skip(f"bpftrace may not attach: {why}")
    counts = counts_of(out)
    assert set(names) <= counts.keys(), f"never seen: {sorted(set(names) - counts.keys())}"
    assert counts["exact"] == ROUNDS and "none" not in counts, counts
    # The same program on libc's malloc has no event.
    out, _ = traced(["refill"], preload=False)
    assert counts_of(out) == {}, out
    print(f"bpftrace saw {counts}")


if "stapsdt" not in run("readelf", "-n", LIBRARY):
    cases.skip("built without sys/sdt.h")
if sys.argv[5:] == ["bpftrace"]:
    cases.run(bpftrace_sees_them)
else:
    cases.run(tables_agree, no_probe_in_the_fast_path, the_fast_path_is_the_same_code, sources_build_without_probes)
