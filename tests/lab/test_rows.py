"""Stored rows: what goes in comes out, and nothing damaged passes."""

import json

import pytest

from lab.judge import outcome
from lab.store import rows

MACHINE = rows.Machine(
    cpu="c", architecture="x86_64", cpus=2, memory_kb=1024, kernel="6", libc="glibc 2.36", thp="madvise", overcommit="0"
)
CONTEXT = rows.Context(session="s1", commit="abc", flags={"bench": "-O2"}, machine=MACHINE)
FIELDS = {
    "kind": "bench",
    "work": "mixed",
    "command": ["/home/me/bin/random_mixed", "1"],
    "allocator": "hakmem",
    "library": "/home/me/lib.so",
    "run": 1,
    "n": 2,
}


def write(path, context=CONTEXT, **fields):
    with rows.Writer(path, context) as writer:
        return writer.write(
            **FIELDS
            | {"result": {"ops_per_s": 1.5, "malloc": "/home/me/lib.so", "none": None, "curve": [1, 2.5]}}
            | fields
        )


def test_round_trip(tmp_path):
    path = tmp_path / "rows.jsonl"
    first, second = write(path), write(path, run=2, settings={"HAKMEM_PROFILE": "lean"})
    assert rows.read([path]) == [first, second]
    assert rows.parse(rows.dump(first), "again") == first


def test_no_paths_of_the_machine(tmp_path):
    path = tmp_path / "rows.jsonl"
    write(path)
    assert "/home" not in path.read_text() and '"lib.so"' in path.read_text() and '"random_mixed"' in path.read_text()


@pytest.mark.parametrize("change, says", [
    (lambda row: row | {"schema": 2}, "schema 2"),
    (lambda row: {key: value for key, value in row.items() if key != "schema"}, "schema None"),
    (lambda row: row | {"run": 0}, "run: it is not greater than or equal to 1$"),
    (lambda row: row | {"surprise": 1}, "surprise"),
    (lambda row: {key: value for key, value in row.items() if key != "machine"}, "machine"),
    (lambda row: row | {"kind": "guess"}, "kind"),
    (lambda row: row | {"result": {"ops_per_s": {"a": 1}}}, "result"),
    (lambda row: [row], "not an object"),
])  # fmt: skip
def test_damage_is_said(tmp_path, change, says):
    path = tmp_path / "rows.jsonl"
    write(path)
    whole = json.loads(path.read_text())
    path.write_text(json.dumps(whole) + "\n\n" + json.dumps(change(whole)) + "\n")
    with pytest.raises(rows.BadRow, match=rf"rows.jsonl:3: .*{says}"):
        rows.read([path])


def test_truncation_is_said(tmp_path):
    path = tmp_path / "rows.jsonl"
    write(path)
    text = path.read_text()
    path.write_text(text + text[: len(text) // 2])
    with pytest.raises(rows.BadRow, match="rows.jsonl:2: not JSON"):
        rows.read([path])


def test_a_row_that_was_cut_costs_no_other(tmp_path):
    """A file whose last row is cut, by a full disk: the next row has a line of its own."""
    path = tmp_path / "rows.jsonl"
    write(path)
    path.write_bytes(path.read_bytes()[:-9])
    write(path)
    first, second = path.read_text().splitlines()
    with pytest.raises(rows.BadRow, match=r"rows.jsonl:1: not JSON"):
        rows.read([path])
    assert rows.parse(second, "").work and not first.endswith("}")


def test_not_finite_numbers_are_refused(tmp_path):
    with pytest.raises(ValueError):
        write(tmp_path / "rows.jsonl", result={"ops_per_s": float("nan")})


def test_paths_within_values_are_cut(tmp_path):
    path = tmp_path / "rows.jsonl"
    row = write(path, command=["run", "--out=/home/me/x", "a/b", "1/2"], settings={"X": "/home/me/lib.so:/home/me/y"})
    assert row.command == ["run", "--out=x", "a/b", "1/2"] and row.settings == {"X": "lib.so:y"}
    assert "/home" not in path.read_text()
    for value in ("ab+/cd//ef/", "a/b/c", "1/2", "x"):
        assert rows.without_paths(value) == value


def session(name, allocators, runs, is_tiny=False):
    context = CONTEXT.model_copy(update={"session": name})
    with rows.Writer(None, context) as writer:
        return [
            writer.write(**FIELDS | {"allocator": allocator, "run": run, "n": 11, "is_tiny": is_tiny, "result": {"ops_per_s": 1.0}})
            for run in range(1, runs + 1) for allocator in allocators
        ]  # fmt: skip


WANTED = ("hakmem", "glibc", "mimalloc")


def test_the_session_that_counts():
    """Not a tiny one; the one with most of the wanted; with enough runs; the latest."""
    whole, later = session("a", ["hakmem", "glibc", "mimalloc"], 11), session("b", ["hakmem", "glibc", "mimalloc"], 11)
    poor, stopped = (
        session("c", ["hakmem", "hakmem-lean", "glibc"], 11),
        session("d", ["hakmem", "glibc", "mimalloc"], 2),
    )
    tiny = session("e", ["hakmem", "glibc", "mimalloc"], 11, is_tiny=True)

    def counts(*sessions):
        found = outcome.sessions_that_count([row for part in sessions for row in part], lambda work: WANTED)
        return found["mixed"]

    assert counts(whole, later) == "b" and counts(later, whole) == "a"
    assert counts(whole, poor, stopped, tiny) == "a"
    assert counts(poor, tiny) == "c" and counts(tiny) == "e"
    found = outcome.from_rows(poor, "hakmem", lambda name: True, lambda work: ("glibc", "mimalloc"))["mixed"]
    assert found.missing_peers == ("mimalloc",)


def test_outcomes_take_the_latest_session_only(tmp_path):
    path = tmp_path / "rows.jsonl"
    other = CONTEXT.model_copy(update={"session": "s2"})
    write(path, result={"ops_per_s": 1.0})
    for run in (1, 2):
        write(path, other, run=run, result={"ops_per_s": 10.0 * run})
        write(path, other, run=run, allocator="glibc", result={"ops_per_s": 5.0})
        write(path, other, run=run, allocator="proto", result={"ops_per_s": 50.0})
    found = outcome.from_rows(rows.read([path]), "hakmem", lambda name: name == "glibc")
    assert list(found) == ["mixed"]
    assert found["mixed"].quotients("hakmem", "glibc") == {1: 2.0, 2: 4.0}
    assert found["mixed"].best_peer() == "glibc", "proto is no peer"
    assert found["mixed"].best_peer("no such key") is None
