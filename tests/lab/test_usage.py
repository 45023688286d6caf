"""Each verb of the lab answers wrong usage in one line, with status 2."""

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
