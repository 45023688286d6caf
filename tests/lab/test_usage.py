"""Each verb of the lab answers wrong usage in one line, with status 2."""

import contextlib
import os
import signal
import subprocess
import sys

import forked
import pytest

from lab.__main__ import VERBS

WRONG = {
    **{verb: ("--nonsense",) for verb in VERBS},
    "bench": ("--runs", "0"),
    "soak": ("--minutes", "long"),
    "replay": (),
    "compare": ("--runs",),
}


@pytest.mark.parametrize("words", [(verb, *words) for verb, words in WRONG.items()] + [("profile", "top")])
def test_wrong_usage_is_one_line(words):
    done = forked.hak(*words)
    name = " ".join(("hak", *words[: 2 if words == ("profile", "top") else 1]))
    assert done.returncode == 2 and done.stdout == "", done
    assert done.stderr.startswith(f"{name.replace(' ', ': ', 1)}: "), done.stderr
    assert done.stderr.endswith(f"; see: {name} --help\n") and done.stderr.count("\n") == 1, done.stderr


def test_a_wrong_number_is_said_in_words():
    for number, told in (("x", "it is not a valid integer"), ("0", "it is not greater than or equal to 1")):
        done = forked.hak("bench", "--runs", number)
        assert done.stderr == f"hak: bench: Invalid value for '--runs': {told}; see: hak bench --help\n"


def started(tree, *words, **settings):
    environment = os.environ | {"PYTHONPATH": str(tree)}
    return subprocess.Popen([sys.executable, "-m", "lab", *words], env=environment, text=True,
                            stderr=subprocess.PIPE, **settings)  # fmt: skip


def test_a_closed_stdout_is_an_error(tree):
    with started(tree, "report", "--help", preexec_fn=lambda: os.close(1)) as done:
        assert done.communicate()[1] == "hak: stdout: Bad file descriptor\n"
    assert done.returncode == 1


def ended_by(running, number):
    """What it said. A signal that comes just before a read does not interrupt the read, so another one follows."""
    for _ in range(12):
        running.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return running.communicate(timeout=5)
    raise AssertionError(f"it does not end by {number}")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_report_that_is_ended_says_so(tree, tmp_path, number):
    os.mkfifo(tmp_path / "rows")
    words = ("report", "--rows", tmp_path / "rows")
    with started(tree, *words, stdout=subprocess.PIPE) as running, open(tmp_path / "rows", "w"):  # it reads now
        said, complaints = ended_by(running, number)
    assert (running.returncode, said, complaints) == (130, "", "hak: stopped\n")
