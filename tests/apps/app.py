"""What the tests with real programs share: a program is run on libc's malloc and on hakmem, and its results
are compared.

Each script is called with the path of libhakmem.so. It ends with 0, with 1 when something differs or fails,
or with 77 and a reason when the program is not installed.

That hakmem really served the program is read from the report it prints at exit (HAKMEM_STATS=json): a program
without one, or with hardly any memory in it, fails. `proof` below is that gate; every start shows that it
refuses a run without the library.
"""
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import cases
from cases import need, skip  # noqa: F401  for the tests

LIBRARY = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else ""
MARK = b'{"hakmem":'


class Run:
    """One finished program: code, stdout, stderr (without reports) and hakmem's reports."""

    def __init__(self, code, stdout, stderr):
        self.code, self.stdout = code, stdout
        lines = stderr.splitlines(keepends=True)
        self.reports = [json.loads(line) for line in lines if line.startswith(MARK)]
        self.stderr = b"".join(line for line in lines if not line.startswith(MARK))


def environment(on_hakmem, extra=None):
    ours = {"LD_PRELOAD": LIBRARY, "HAKMEM_STATS": "json"} if on_hakmem else {}
    return cases.environment(LC_ALL="C.UTF-8", TZ="UTC", **ours) | (extra or {})


def run(command, on_hakmem, cwd=None, extra=None, stdin=b"", only_first=False, timeout=240):
    """only_first: children of the program print no report, as some compare what children write."""
    if only_first:
        command = ["/bin/sh", "-c", 'export HAKMEM_STATS_PID=$$; exec "$@"', "sh", *command]
    done = subprocess.run(
        command, input=stdin, capture_output=True, cwd=cwd, env=environment(on_hakmem, extra), timeout=timeout, check=False
    )
    return Run(done.returncode, done.stdout, done.stderr)


def proof(result, heap_bytes_min):
    """The largest heap any process of this run had on hakmem; too small a one is a failure."""
    most = max((report["heap_peak_bytes"] for report in result.reports if report["refills"] > 0), default=0)
    if most < heap_bytes_min:
        raise AssertionError(f"hakmem served {most} bytes at most, {heap_bytes_min} expected: not the allocator?")
    return most


def check(condition, text):
    if not condition:
        raise AssertionError(text)


def same(command, heap_bytes_min, **options):
    """Runs the command on both; exit status and output must be equal. Returns the output."""
    plain = run(command, False, **options)
    ours = run(command, True, **options)
    check(plain.code == 0, f"{command[0]} fails without hakmem too: {plain.stderr[-2000:]!r}")
    check(ours.code == plain.code, f"{command[0]}: status {ours.code} on hakmem: {ours.stderr[-2000:]!r}")
    check(ours.stdout == plain.stdout, f"{command[0]}: other output on hakmem")
    check(ours.stderr == plain.stderr, f"{command[0]}: other text on stderr: {ours.stderr[-2000:]!r}")
    proof(ours, heap_bytes_min)
    return ours.stdout


def main(test):
    try:
        cases.refuses(AssertionError, proof, run(["/bin/sh", "-c", "echo"], False), 1)
        print(test())
    except (AssertionError, subprocess.TimeoutExpired) as failure:
        print(f"FAILED: {failure}")
        sys.exit(1)
