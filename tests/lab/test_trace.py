"""The reader of traces, on files made by hand (made_trace.py), damaged ones, and any."""

import subprocess
import sys

import made_trace as made
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made_trace import CALLOC, FREE, FREED, GAVE, KEPT, MALLOC, TOOK, Event

from lab.judge import allocations
from lab.store import trace


@pytest.fixture
def reading(build, tmp_path):
    """reading(bytes): the events as rows (kind, thread, object, size, delta, flags), and the Facts."""

    def read(data):
        path = tmp_path / "a.trace"
        path.write_bytes(data)
        with trace.Trace(path, trace.library_in(build)) as found:
            rows = found.events()[["kind", "thread", "object", "size", "delta", "flags"]].tolist()
            return rows, found.facts

    return read


def test_blocks_threads_and_sites(build, tmp_path):
    path = tmp_path / "a.trace"
    path.write_bytes(made.trace(
        made.module(1),
        [Event(MALLOC, 1, 1, 0x1000, 24, time_us=1000), Event(made.ALIGNED, 4, 1, 0x2000, 70000, 12, 1, 0x99, 3000)],
        [Event(CALLOC, 2, 5, 0x1FFF, 8, time_us=1500), Event(FREE, 3, 5, 0x1000, time_us=2500),
         Event(MALLOC, 5, 5, 0x9000, 1 << 20, module=0, offset=0x1234, time_us=2000)],
        time_us=1000))  # fmt: skip
    with trace.Trace(path, trace.library_in(build)) as found:
        rows = found.events()
        assert found.facts.problem == ""
        assert rows["object"].tolist() == [0, 1, 0, 2, 3]
        assert rows["thread"].tolist() == [0, 1, 1, 0, 1]
        assert rows["size"].tolist() == [24, 8, 24, 70000, 1 << 20]
        assert rows["delta"].tolist() == [24, 8, -24, 70000, 1 << 20]
        assert rows["time_us"].tolist() == [0, 500, 1500, 2000, 2000]
        assert rows["flags"].tolist() == [0, 0, allocations.REMOTE, 0, 0]
        assert rows["alignment_log2"].tolist() == [0, 0, 0, 12, 0]
        sites = found.sites()
        assert [sites[row] for row in rows["site"][3:]] == [
            trace.Site("libmade.so", "abcd", 0x99), trace.Site("", "", 0x1234)]  # fmt: skip
        assert set(rows["site"][:3]) == {allocations.NO_SITE}
        assert (found.facts.program, found.facts.pid, found.facts.raw_events) == ("made", 42, 5)
        assert [len(batch) for batch in found.batches(room=2)] == [1, 1, 1, 1, 1]  # and again from the start


def test_realloc(reading):
    rows, facts = reading(made.trace([
        Event(MALLOC, 1, 1, 0x1000, 10),
        Event(TOOK, 2, 1, 0x1000), Event(MALLOC, 3, 2, 0x1000, 5), Event(GAVE, 4, 1, 0x3000, 30),  # moved
        Event(TOOK, 5, 2, 0x3000), Event(GAVE, 6, 2, 0x3000, 20),  # in place, by another thread
        Event(TOOK, 7, 1, 0x3000), Event(KEPT, 8, 1), Event(TOOK, 9, 1, 0x3000), Event(FREED, 10, 1),
        Event(TOOK, 11, 1, 0x7000), Event(GAVE, 12, 1, 0x8000, 7),  # not known
    ]))  # fmt: skip
    assert rows == [
        (allocations.MALLOC, 0, 0, 10, 10, 0),
        (allocations.MALLOC, 1, 1, 5, 5, 0),
        (allocations.REALLOC, 0, 0, 30, 20, 0),
        (allocations.REALLOC, 1, 0, 20, -10, allocations.REMOTE),
        (allocations.FREE, 0, 0, 20, -20, allocations.REMOTE),
        (allocations.MALLOC, 0, 2, 7, 7, allocations.STRAY),
    ]
    assert facts.unknown_frees == 1


def test_what_the_recorder_missed(reading):
    rows, facts = reading(made.trace([
        Event(FREE, 1, 9, 0x5000),  # a thread without events that count has no number
        Event(MALLOC, 2, 1, 0x1000, 10), Event(MALLOC, 3, 2, 0x1000, 20), Event(FREE, 4, 1, 0x1000)]))  # fmt: skip
    assert rows == [(0, 0, 0, 10, 10, 0), (3, 1, 0, 10, -10, allocations.IMPLIED | allocations.REMOTE), (0, 1, 1, 20, 20, 0),
                    (3, 0, 1, 20, -20, allocations.REMOTE)]  # fmt: skip
    assert facts.unknown_frees == 1


def test_an_exec_ends_the_heap(reading):
    first = made.start() + made.events([Event(MALLOC, 1, 1, 0x1000, 10)]) + made.end(1, reason=2)
    rows, facts = reading(first + made.trace([Event(MALLOC, 1, 3, 0x1000, 11), Event(MALLOC, 2, 1, 0x2000, 12)]))
    assert rows == [
        (0, 0, 0, 10, 10, 0),
        (3, 0, 0, 10, -10, allocations.IMPLIED),
        (0, 1, 1, 11, 11, 0),
        (0, 0, 2, 12, 12, 0),
    ]
    assert (facts.images, facts.problem) == (2, "")
    assert "ends at an exec" in reading(first)[1].problem


def test_how_it_ended(reading):
    one = [Event(MALLOC, 1, 1, 0x1000, 10)]
    whole = made.start() + made.events(one)
    assert reading(whole + made.end(1))[1].problem == ""
    assert reading(whole + made.end(1, 3, 15))[1].problem == ""  # a signal: all was written
    assert "limit of 5 MB" in reading(whole + made.end(1, 4, 5 << 20))[1].problem
    assert "No space left" in reading(whole + made.end(1, 5, 28))[1].problem
    assert "has no end mark at byte" in reading(whole)[1].problem
    assert "lacks 3 calls" in reading(whole + made.end(1, lost=3))[1].problem
    assert "counts 2 events, and 1 are there" in reading(whole + made.end(2))[1].problem


def test_what_is_no_trace(build, tmp_path):
    path = tmp_path / "a.trace"
    good = made.trace([Event(MALLOC, 1, 1, 0x1000, 10)])
    later = made.chunk(made.START, bytes(112), version=2)
    for data, words in ((b"", "is empty"), (b"x" * 500, "is no trace"), (b"hak", "is no trace"), (good[4:], "is no trace"),
                        (later, "format 2, of another hakmem"), (good[:100], "is damaged at byte 0"),
                        (made.end(0), "does not begin so"), (made.start(b"x" * 88), "that is none")):  # fmt: skip
        path.write_bytes(data)
        with pytest.raises(trace.BadTrace) as refused:
            trace.Trace(path, trace.library_in(build))
        assert words in str(refused.value) and str(path) in str(refused.value)
    for odd in (tmp_path, tmp_path / "absent", "/dev/zero"):
        with pytest.raises(trace.BadTrace):
            trace.Trace(odd, trace.library_in(build))


def test_hostile_events_with_right_checksums(reading):
    huge = made.varint(2**64 - 1)
    begin = bytes([made.THREAD, 1])
    for payload in (b"", bytes([made.MALLOC | made.NEXT, 2, 3]), begin, begin + bytes([10]), begin + bytes([0x50, 2, 3]),
                    begin + bytes([0x10]) + huge + b"\1", begin + bytes([0x10, 2]) + huge, begin + bytes([0x10, 0, 1]),
                    begin + b"\x10\2\1\1", begin + bytes([0x00, 0, 2, 1]), begin + bytes([0x00]) + huge + b"\2\1",
                    begin + b"\x10" + b"\x80" * 11, begin + bytes([made.TIME]) + huge + b"\x10\2\1",
                    bytes([made.THREAD]) + huge + b"\x10\2\1", begin + bytes([0x12, 2, 1, 60]),
                    begin + b"\x10\2" + made.varint(1 << 20) + b"\1\5"):  # fmt: skip
        facts = reading(made.start() + made.chunk(made.EVENTS, payload, items=1, order=1))[1]
        assert "is damaged at byte" in facts.damage, payload
    fine = made.chunk(made.EVENTS, begin + bytes([0x10, 2, 3]), items=1, order=1)
    assert not reading(made.start() + fine + made.end(1))[1].problem  # the control
    for wrong in (made.chunk(made.EVENTS, begin + bytes([0x10, 2, 3]), lane=64, items=1, order=1), fine + fine,
                  made.chunk(9, b""), made.module(2), made.chunk(made.MODULE, b"x", items=1), made.end(0, reason=9),
                  made.end(0) + fine):  # fmt: skip
        assert "is damaged at byte" in reading(made.start() + wrong)[1].damage


# Prints one line for each variant of a trace that is not called wrong, or that loses what stands before the damage.
DAMAGE = """
import pathlib, sys
sys.path[:0] = sys.argv[4:6]
import made_trace
from lab.store import trace
library, path, variants = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[3]
data = path.read_bytes()
parts = made_trace.chunks(data)
def broken(at):
    for bits in (0x01, 0x80, 0xff):
        yield data[:at] + bytes([data[at] ^ bits]) + data[at + 1:]
count = 0
for at in range(len(data)):
    for changed in broken(at) if variants == "flips" else [data[:at]] if variants == "lengths" else [data]:
        count += 1
        path.write_bytes(changed)
        before = [(start, items) for start, _, items in parts if start <= at]
        want = sum(items for start, items in before) - (before[-1][1] if variants == "flips" else 0)
        if variants == "lengths":
            want = sum(items for (_, _, items), (following, _, _) in zip(parts, parts[1:]) if following <= at)
        try:
            with trace.Trace(path, library) as found:
                read, facts = len(found.events()), found.facts
            if not facts.problem or facts.raw_events != want or (read == 0) != (want == 0):
                print(at, facts.raw_events, want, facts.problem)
        except trace.BadTrace as refused:
            if at > parts[1][0] or not str(refused):
                print(at, refused)
print("checked", count)
"""


def small_trace():
    first = [Event(MALLOC, order, 1, 0x1000 * order, 100 + order) for order in range(1, 40, 2)]
    second = [Event(FREE, order, 2, 0x1000 * (order - 1)) for order in range(2, 40, 2)]
    large = [Event(MALLOC, 41 + i, 1, 0x100000 * (1 + i), 70000 + i, module=1, offset=100 + i) for i in range(10)]
    return made.start() + made.module(1) + made.events(first) + made.events(second, 1) + made.events(large) + made.end(
        len(first) + len(second) + len(large))  # fmt: skip


@pytest.mark.parametrize("variants", ["flips", "lengths"])
def test_every_damage_is_told_and_what_stands_before_is_kept(build, tree, tmp_path, variants):
    path = tmp_path / "a.trace"

    def check(kind):
        path.write_bytes(small_trace())
        done = subprocess.run([sys.executable, "-c", DAMAGE, str(trace.library_in(build)), str(path), kind,
                               str(tree), str(tree / "tests" / "lab")], capture_output=True, text=True, check=False)  # fmt: skip
        assert done.returncode == 0, done.stderr  # no crash
        return done.stdout.splitlines()

    *faults, checked = check(variants)
    assert not faults, faults[:5]
    assert checked == f"checked {len(small_trace()) * (3 if variants == 'flips' else 1)}"
    # The control: an undamaged trace is not called damaged, and each is a line.
    assert len(check("none")) == len(small_trace()) + 1


# --- any program: threads that make, resize and free at random, as a recorder would see them --------------------


@st.composite
def histories(draw):
    """(events of the recorder by lane, what must come out)."""
    live, lanes, rows, objects, order, numbers = {}, {}, [], 0, 0, {}
    addresses = draw(st.lists(st.integers(1, 2**44), min_size=30, max_size=30, unique=True))

    def put(kind, thread, **fields):
        nonlocal order
        order += draw(st.integers(1, 300))
        lanes.setdefault(thread % 3, []).append(Event(kind, order, thread, **fields))

    def number(thread):
        return numbers.setdefault(thread, len(numbers))

    for _ in range(draw(st.integers(1, 60))):
        thread, free = draw(st.integers(1, 6)), [address for address in addresses if address not in live]
        action = draw(st.sampled_from(["make", "free", "resize"] if live else ["make"]))
        if action == "make" and free:
            address, size = draw(st.sampled_from(free)), draw(st.integers(0, 200_000))
            put(MALLOC, thread, address=address, size=size, offset=5)
            live[address] = objects, size, thread
            rows.append((allocations.MALLOC, number(thread), objects, size, size, 0))
            objects += 1
        elif live:
            address = draw(st.sampled_from(sorted(live)))
            found, size, maker = live.pop(address)
            flags = allocations.REMOTE if maker != thread else 0
            if action == "free":
                put(FREE, thread, address=address)
                rows.append((allocations.FREE, number(thread), found, size, -size, flags))
            else:
                put(TOOK, thread, address=address)
                address = draw(st.sampled_from([*free, address]))
                grown = draw(st.integers(1, 200_000))
                put(GAVE, thread, address=address, size=grown, offset=6)
                live[address] = found, grown, thread
                rows.append((allocations.REALLOC, number(thread), found, grown, grown - size, flags))
    return [lanes[lane] for lane in sorted(lanes)], rows


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(history=histories())
def test_any_history_comes_back(reading, history):
    lanes, rows = history
    found, facts = reading(made.trace(*lanes))
    assert found == rows and not facts.problem


def test_tally(build, tmp_path):
    path = tmp_path / "a.trace"
    path.write_bytes(made.trace(
        made.module(1),
        [Event(MALLOC, 1, 1, 0x1000, 100), Event(MALLOC, 2, 1, 0x2000, 70_000, module=1, offset=1),
         Event(MALLOC, 3, 1, 0x9000000, 80_000, module=1, offset=1), Event(FREE, 4, 2, 0x2000), Event(FREE, 5, 1, 0x1000),
         Event(MALLOC, 6, 1, 0x1000, 1)]))  # fmt: skip
    with trace.Trace(path, trace.library_in(build)) as found:
        for room in (2, 4096):
            sums = allocations.tally(found.batches(room))
            assert (sums.events, sums.objects, sums.threads) == (6, 4, 2)
            assert (sums.live_peak, sums.live_peak_event, sums.live) == (150_100, 2, 80_001)
            assert (sums.frees, sums.remote_share, sums.asked) == (2, 0.5, 150_101)
            assert (sums.sizes[0], sums.sizes[6], sums.sizes[16]) == (1, 1, 2)
            assert sums.top_sites(5) == [(0, allocations.LargeSite(2, 150_000))]
