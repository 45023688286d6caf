"""What hakmem writes for people ends no program by a signal, waits for nobody for ever, and goes into no data file.

    reports.py LIBRARY REPORTER

The judge is shown to fail: a program that writes without hakmem's care is ended by the same signals.
"""
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import cases

LIBRARY, REPORTER = sys.argv[1:3]


def environment(**options):
    return {"PATH": os.environ["PATH"], "LD_PRELOAD": LIBRARY, **options}


def no_files():
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def run(*words, **more):
    try:
        return subprocess.run(words, timeout=200, stdout=subprocess.DEVNULL, **more)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(words, "it hangs", stderr="")


REPORTS = [
    {"HAKMEM_STATS": "text"},
    {"HAKMEM_STATS": "json"},
    {"HAKMEM_STATS_FILE": "stats"},
    {"HAKMEM_HEAP_PROFILE_FILE": "profile"},
    {"HAKMEM_HEAP_PROFILE": "leaks"},
    {"HAKMEM_POLICY": "evolving", "HAKMEM_POLICY_FILE": "policy"},
    {"HAKMEM_LIVE": "1"},
    {"HAKMEM_NONSENSE": "1"},
]


def look_at_limits(folder):
    """RLIMIT_FSIZE=0, and stderr a file: SIGXFSZ."""
    for options in REPORTS:
        with open(folder / "errors", "wb") as errors:
            ended = run(REPORTER, "exit", env=environment(**options), stderr=errors, preexec_fn=no_files, cwd=folder)
        assert ended.returncode == 0, f"{options} under RLIMIT_FSIZE=0: {ended.returncode}"
    with open(folder / "errors", "wb") as errors:
        ended = run("sh", "-c", "trap - XFSZ; exec dd if=/dev/zero bs=1 count=1 >&2", stderr=errors, preexec_fn=no_files)
    assert ended.returncode != 0, "the control wrote beyond RLIMIT_FSIZE=0"


def look_at_long_names(folder):
    """A path that gets too long by its process ids is told."""
    for pattern, is_told in (("%p" * 1500, True), ("profile.%p", False)):
        options = {"HAKMEM_HEAP_PROFILE": "on", "HAKMEM_HEAP_PROFILE_FILE": pattern}
        ended = run(REPORTER, "exit", env=environment(**options), stderr=subprocess.PIPE, cwd=folder)
        told = b"no heap profile at" in ended.stderr and b"the name is too long" in ended.stderr
        assert ended.returncode == 0 and told == is_told, f"a path of {len(pattern)} bytes: {ended.stderr[-100:]}"


def look_at_closed_pipes(folder):
    for options in REPORTS:
        reader, writer = os.pipe()
        os.close(reader)
        ended = run(REPORTER, "exit", env=environment(**options), stderr=writer, cwd=folder)
        os.close(writer)
        assert ended.returncode == 0, f"{options} into a closed pipe: {ended.returncode}"
    reader, writer = os.pipe()
    os.close(reader)
    ended = run("dd", "if=/dev/zero", "of=/proc/self/fd/2", "count=1", stderr=writer, restore_signals=True)
    os.close(writer)
    assert ended.returncode == -signal.SIGPIPE, f"the control lived on: {ended.returncode}"


def look_at_full_pipes(_):
    ended = run(REPORTER, "full", env=environment(), stderr=subprocess.DEVNULL)
    assert ended.returncode == 0, f"malloc_stats into a full pipe, and a fork: {ended.returncode}"


def look_at_data(folder):
    """The sentence before an abort lands in no file that the program opened, and in the log that it was given."""
    for mode in ("data", "closed-on-exec"):
        path = folder / mode
        ended = run(REPORTER, mode, path, env=environment(), stderr=subprocess.DEVNULL)
        assert ended.returncode == -signal.SIGABRT, f"{mode}: {ended.returncode}"
        assert path.read_bytes() == b"a row\n", f"{mode}: the file holds {path.read_bytes()}"
    for name, flags in (("log", os.O_WRONLY), ("log that grows", os.O_WRONLY | os.O_APPEND)):
        log = os.open(folder / name, flags | os.O_CREAT, 0o600)
        run(REPORTER, "log", env=environment(), stderr=log)
        os.close(log)
        assert b"double free" in (folder / name).read_bytes(), f"{name}: nothing was said"
    for stream in (subprocess.PIPE, tempfile.TemporaryFile()):
        ended = run(REPORTER, "log", env=environment(), stderr=stream)
        said = ended.stderr if stream == subprocess.PIPE else (stream.seek(0), stream.read())[1]
        assert b"double free" in said, f"into {stream}: {said}"


def option_names():
    page = (Path(__file__).parents[2] / "docs/options.md").read_text()
    return sorted(set(re.findall(r"\bHAKMEM_[A-Z_]+", page)))


def look_at_values(_):
    """A bad value is answered in one line: the variable, the value, what is allowed."""
    names = option_names()
    assert len(names) > 20, f"only {len(names)} options were found"
    for name in names:
        value = "\x1b[2Jbad" if not name.endswith("_FILE") else "x" * 5000
        ended = run(REPORTER, "exit", env=environment(**{name: value}), stderr=subprocess.PIPE, text=True)
        shown = "?[2Jbad" if not name.endswith("_FILE") else "x" * 90
        lines = ended.stderr.splitlines()
        assert len(lines) == 1, f"{name}: {lines}"
        assert ended.stderr.startswith(f"hakmem: {name}={shown}"), f"{name}: {ended.stderr}"
        assert ": bad value, allowed is " in ended.stderr and "\x1b" not in ended.stderr, f"{name}: {ended.stderr}"
        allowed = ended.stderr.split("allowed is ")[-1].split(";")[0]
        assert len(allowed) > 3, f"{name}: nothing is allowed"


cases.run(look_at_limits, look_at_long_names, look_at_closed_pipes, look_at_full_pipes, look_at_data, look_at_values)
