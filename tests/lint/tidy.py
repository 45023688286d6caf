"""clang-tidy over the sources that are named on stdin, one a line.

    tidy.py CLANG_TIDY BUILD [--long]

The analyzer follows paths through a function until it has made NODES_MAX states, new basic blocks first. Its own bound,
which --long leaves it, is 225,000: with that, bins.c alone takes 29 s instead of 2.

What clang-tidy says of a source follows from the source, the headers that it includes, its compile command, .clang-tidy and
the tool. A source without findings is noted by the hash of all these in BUILD/tidy-clean, and is not looked at again until
one of them changes. Which headers it includes is what the compiler told ninja when it built the source last; a source that
was changed since is looked at.
"""
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
NOTES_MAX = 5000
TOGETHER = 8  # sources for one process, as its start takes as long as a small source
# clang does not know all of gcc's flags that stand in the compile commands.
ARGUMENTS = ["--quiet", "--extra-arg=-Wno-unknown-warning-option", "--extra-arg=-Wno-ignored-optimization-argument"]
NODES_MAX = 10000
SHORTER = ["-Xclang", "-analyzer-config", "-Xclang", f"max-nodes={NODES_MAX}"]
FAULTY = "int first(void) {\n  int *none = 0;\n  return *none;\n}\n"
NOISE = re.compile(r"\d+ warnings? .*generated\.$|Suppressed |Use -header-filter|.*Processing file ")


def program(tool):
    """The program itself: PyPI's clang-tidy is a Python script that starts it, which takes nine times as long."""
    return next(pathlib.Path(tool).parents[1].glob("lib/python3*/site-packages/clang_tidy/data/bin/clang-tidy"), tool)


def includes(build):
    """The files that each object was made of, as ninja knows them."""
    told = subprocess.run(["ninja", "-C", build, "-t", "deps"], capture_output=True, text=True, check=True).stdout
    made_of, target = {}, None
    for line in told.splitlines():
        if line.startswith("    ") and target:
            made_of[target].append(os.path.normpath(os.path.join(build, line.strip())))
        elif line.endswith("(VALID)"):
            target = line.split(":")[0]
            made_of[target] = []
        elif line:
            target = None
    return made_of


def hashes_of(sources, tool, build):
    """The hash of everything that a source's findings follow from; no entry: it is not known."""
    made_of, contents = includes(build), {}

    def content(path):
        if path not in contents:
            contents[path] = hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()
        return contents[path]

    version = subprocess.run([tool, "--version"], capture_output=True, text=True, check=True).stdout
    common = [version, content(ROOT / ".clang-tidy"), *ARGUMENTS]
    parts = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        found = made_of.get(entry.get("output") or re.search(r" -o (\S+)", entry["command"])[1])
        source = os.path.relpath(entry["file"], ROOT)
        if source in sources:
            known = found and all(os.path.exists(path) for path in found)
            parts.setdefault(source, []).append([entry["command"], *map(content, sorted(found))] if known else None)
    return {
        source: hashlib.sha256(json.dumps([common, sorted(made)]).encode()).hexdigest()
        for source, made in parts.items()
        if all(made)
    }


def findings(tool, build, sources):
    """Of each of the sources. What is found in several at a time is told of each by itself."""
    done = subprocess.run([tool, "-p", build, *ARGUMENTS, *sources], cwd=ROOT, capture_output=True, text=True)
    said = "\n".join(line for line in (done.stdout + done.stderr).splitlines() if not NOISE.match(line))
    if (said or done.returncode) and len(sources) > 1:
        return [found for source in sources for found in findings(tool, build, [source])]
    return [(source, done.returncode, said) for source in sources]


def control(tool):
    """A plain mistake is found, or nothing that is said here counts."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "faulty.c"
        path.write_text(FAULTY)
        done = subprocess.run([tool, f"--config-file={ROOT}/.clang-tidy", *ARGUMENTS, path, "--"], capture_output=True)
        if done.returncode == 0:
            sys.exit("clang-tidy found nothing in a function that reads through a null pointer")


def main():
    tool, build = program(sys.argv[1]), pathlib.Path(sys.argv[2]).resolve()
    sources = set(sys.stdin.read().split())
    if sys.argv[3:] != ["--long"]:
        ARGUMENTS.extend(f"--extra-arg={word}" for word in SHORTER)
    os.nice(2)  # tests that run beside it come first
    control(tool)
    notes = build / "tidy-clean"
    clean = notes.read_text().split() if notes.exists() else []
    hashes = hashes_of(sources, tool, build)
    known = set(clean)
    wanted = sorted(source for source in sources if hashes.get(source) not in known)
    bad = 0
    groups = [wanted[first :: -(-len(wanted) // TOGETHER)] for first in range(-(-len(wanted) // TOGETHER))]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for found in pool.map(lambda group: findings(tool, build, group), groups):
            for source, status, said in found:
                bad += status != 0
                if said:
                    print(said)
                elif status == 0 and source in hashes:
                    clean.append(hashes[source])
    notes.write_text("\n".join(clean[-NOTES_MAX:]) + "\n")
    print(f"{len(wanted)} of {len(sources)} sources were looked at, {bad} have findings")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
