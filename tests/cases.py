"""What the tests in Python share: cases, waiting, programs that say when they are ready, tools of one sentence.

A test finds this module by sys.path.insert(0, str(Path(__file__).resolve().parents[1])).
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

PATIENCE_S = 200  # for what hangs, on a machine that does much else

signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background a shell ignores it, for children, too


def arguments(*names, **options):
    """The command line's, by name; an option has what argparse is to know of it."""
    parser = argparse.ArgumentParser()
    for name in names:
        parser.add_argument(name)
    for name, known in options.items():
        parser.add_argument(f"--{name}", **known)
    return parser.parse_args()


def run(*cases):
    """Each case, with a folder of its own."""
    for case in cases:
        begun = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            case(Path(folder))
        print(f"{case.__name__}: ok, {time.monotonic() - begun:.1f} s", flush=True)


def skip(why):
    """Ends the test; the summary shows this one line."""
    print("skipped:", " ".join(why.split()))
    sys.exit(77)


def need(*programs):
    for program in programs:
        if shutil.which(program) is None:
            skip(f"{program} is not installed")


def refuses(kinds, judge, *arguments):
    """A control: the judge raises one of these kinds, or the test ends."""
    try:
        judge(*arguments)
    except kinds:
        return
    sys.exit(f"{judge.__name__} took {arguments} for right")


def until(holds, *refusals):
    """What it gives, as soon as that holds and it raises none of these; raises if that is never."""
    give_up = time.monotonic() + PATIENCE_S
    while True:
        try:
            if found := holds():
                return found
            assert time.monotonic() < give_up, "it never holds"
        except refusals:
            if time.monotonic() > give_up:
                raise
        time.sleep(0.02)


def environment(**more):
    """Ours without what chooses an allocator or an option of it."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("HAKMEM_", "LD_PRELOAD"))}
    return own | more


@contextmanager
def running(*words, env, killed=False, **options):
    """A program that has said that it is ready; what else it said is in `.said`."""
    command = [str(word) for word in words]
    with subprocess.Popen(
        command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **options
    ) as process:
        try:
            process.said = process.stdout.readline().split()
            assert process.said[:1] == ["ready"], f"{command} did not begin"
            yield process
            if not killed:
                process.stdin.close()
                assert process.wait(PATIENCE_S) == 0, f"{command}: status {process.returncode}"
        finally:
            process.kill()


def tool(*words, status=0, said="", **options):
    """Runs a tool, which says one sentence on stderr if it ends with another status than 0, and none else. Gives its stdout."""
    result = subprocess.run(
        [str(word) for word in words], check=False, capture_output=True, text=True, timeout=PATIENCE_S, **options
    )
    assert result.returncode == status, f"{words}: status {result.returncode}: {result.stderr}"
    if status == 0:
        assert result.stderr == "", result.stderr
    else:
        assert result.stderr.count("\n") == 1 and said in result.stderr, f"{words}: '{result.stderr}', not '{said}'"
    return result.stdout
