"""Latencies: the buckets of bench/latency are HdrHistogram's, percentiles are those of the raw values, too few samples
are refused, and the epoch proxy is computed in the right order."""

import json
import math
import re
import subprocess

import numpy
import pytest
from hdrh.histogram import HdrHistogram
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lab.judge import latency
from lab.judge.outcome import Outcome, Series
from lab.show import latency as show
from lab.show import tables
from lab.store import rows

HIGHEST = 2**40 - 1
LAYOUT = {"source": "rdtscp", "ticks_per_ns": 2.0, "significant_figures": 3, "lowest": 1, "highest": HIGHEST}

# The header of the C side, asked for the slots of numbers and for a histogram of them.
PROBE = r"""
#include "hdr.h"
#include <stdio.h>
static struct hdr one, two;
int main(void) {
  unsigned long long value;
  while (scanf("%llu", &value) == 1) {
    hdr_record(value % 2 ? &one : &two, value);
    printf("%llu\n", (unsigned long long)hdr_slot(value));
  }
  hdr_add(&one, &two);
  fprintf(stderr, "%llu %llu %llu", (unsigned long long)one.count, (unsigned long long)one.min, (unsigned long long)one.max);
  return 0;
}
"""


@pytest.fixture(scope="module")
def probe(tree, tmp_path_factory):
    folder = tmp_path_factory.mktemp("probe")
    (folder / "probe.c").write_text(PROBE)
    subprocess.run(["cc", "-std=gnu17", "-I", tree / "bench", "-o", folder / "probe", folder / "probe.c"], check=True)

    def ask(values):
        text = "\n".join(map(str, values))
        done = subprocess.run([folder / "probe"], input=text, capture_output=True, text=True, check=True)
        return list(map(int, done.stdout.split())), list(map(int, done.stderr.split()))

    return ask


def test_slots_are_those_of_hdrhistogram(probe):
    values = [*range(5000), *(2**bits + near for bits in range(11, 40) for near in (-1, 0, 1)), HIGHEST]
    values += [int(value) for value in numpy.random.default_rng(3).integers(0, HIGHEST, 2000)]
    histogram = HdrHistogram(1, HIGHEST, 3)
    slots, (count, low, high) = probe(values)
    assert slots == [histogram.get_counts_array_index(value) for value in values]
    assert (count, low, high) == (len(values), 0, HIGHEST)
    assert probe([HIGHEST + 5, 2**63])[0] == [histogram.counts_len - 1] * 2, "larger ones go to the last slot"
    for value, slot in zip(values, slots, strict=True):
        start = histogram.get_value_from_index(slot)
        assert start <= value <= start + value / 1000, "a slot is at most a thousandth of its values wide"


def raw(values, n_timer=100):
    """What bench/latency would print for these ticks of malloc."""

    def part(ticks):
        histogram = HdrHistogram(1, HIGHEST, 3)
        slots, counts = numpy.unique([histogram.get_counts_array_index(tick) for tick in ticks], return_counts=True)
        return {"count": len(ticks), "min": min(ticks), "max": max(ticks),
                "counts": [[int(slot), int(count)] for slot, count in zip(slots, counts, strict=True)]}  # fmt: skip

    values = [int(value) for value in values]
    return {"latency": LAYOUT | {"malloc": part(values), "free": part(values), "timer": part([20] * n_timer)}}


def test_percentiles_are_those_of_the_raw_values():
    values = numpy.random.default_rng(1).lognormal(6, 2, 200_001).astype(int) + 1
    found = latency.load(raw(values)).percentiles_ns("malloc")
    ordered = numpy.sort(values)
    for percent in (50, 90, 99, 99.9, 99.99):
        rank = len(ordered) * percent / 100
        low, high = ordered[int(rank) - 2], ordered[min(int(rank) + 1, len(ordered) - 1)]
        assert low / 2 <= found[percent] <= high * 1.001 / 2, percent
        exact = numpy.percentile(values, percent, method="inverted_cdf") / 2
        assert found[percent] == pytest.approx(exact, rel=2e-3)
        wrong = numpy.percentile(values, 100 - percent, method="inverted_cdf") / 2
        assert percent == 50 or found[percent] != pytest.approx(wrong, rel=2e-3), "the other tail is noticed"


@settings(deadline=None)
@given(st.lists(st.integers(1, HIGHEST), min_size=20, max_size=60))
@example([5] * 20)
def test_no_percentile_is_over_the_largest_value(values):
    run = latency.load(raw(values))
    assert run.max_ns("malloc") == max(values) / 2
    assert run.percentiles_ns("malloc")[50] <= max(values) / 2


@pytest.mark.parametrize(
    "percent, n", [(50, 20), (90, 100), (99, 1000), (99.9, 10_000), (99.999, 1_000_000), (1, 1000)]
)
def test_a_percentile_needs_ten_samples_beyond_it(percent, n):
    assert latency.enough(n, percent) and not latency.enough(n - 1, percent)


def test_too_few_is_said(capsys):
    run = raw(range(1, 1001))
    found = latency.figures(run)
    assert found["malloc_p99_ns"] == 990 / 2 and found["malloc_p99_9_ns"] is None
    assert found["timer_p50_ns"] == 10 and found["malloc_samples"] == 1000
    lines = shown(capsys, {"a": [found], "b": [found] * 10, "c": [], "d": [{}]})
    first, merged = (next(line for line in lines if line.strip().startswith(name)) for name in ("a ", "b "))
    assert first.count("too few") == 3, first
    assert merged.count("too few") - merged.count("too few runs") == 2, "ten runs together are enough for p99.9"
    assert any("steps of" in line for line in lines) and not any(
        line.strip().startswith(("c ", "d ")) for line in lines
    )


def shown(capsys, results):
    series = [Series(name, "latency", name != "a", results=dict(enumerate(runs, 1))) for name, runs in results.items()]
    tables.console().print(show.table(Outcome("latency", "a", series)))
    return capsys.readouterr().out.splitlines()


def test_tails_are_compared_by_pairs(capsys):
    """The machine gets slower from run to run, by much more than the allocators differ."""
    stored = latency.figures(raw(range(1, 1001)))

    def results(factor, runs):
        return [stored | {"malloc_p99_ns": factor * 100.0 * run, "malloc_p99_9_ns": 500.0 * run,
                          "free_p99_ns": 100.0 / factor * run, "free_p99_9_ns": None} for run in runs]  # fmt: skip

    def verdicts(peer, runs=range(1, 12)):
        lines = shown(capsys, {"a": results(1.2, runs), "b": peer})
        at = next(i for i, line in enumerate(lines) if line.strip().startswith("b "))
        return [line.split(str(1000 * len(runs)))[-1] for line in lines[at : at + 3]]

    malloc, free, timer = verdicts(results(1.0, range(1, 12)))
    assert malloc.split()[:3] == ["1.20", "(1.20-1.20)", "slower"] and malloc.strip().endswith("no difference")
    assert free.split() == ["0.83", "(0.83-0.83)", "faster"], "of p99.9 there are too few samples: no word"
    assert timer.strip().endswith("1100"), "nothing follows the number of samples"
    assert verdicts(results(1.0, range(1, 7)), range(1, 7))[0].count("too few runs") == 2
    # Control: what is paired with another run's shows nothing.
    assert verdicts(results(1.0, range(11, 0, -1)))[0].count("no difference") == 2


def test_a_stored_row_keeps_the_histograms(tmp_path):
    """Their text has every sign that base64 has, which are also those of paths."""
    for seed in range(1000):
        values = numpy.random.default_rng(seed).lognormal(6, 2, 300).astype(int) + 1
        found = latency.figures(raw(values))
        if re.search(r"[+/]/\w", found["latency_malloc"]):
            break
    machine = rows.Machine(cpu="a", architecture="b", cpus=1, memory_kb=1, kernel="c", libc="d", thp="", overcommit="0")
    context = rows.Context(session="s", commit="c", flags={}, machine=machine)
    with rows.Writer(tmp_path / "rows.jsonl", context) as writer:
        writer.write(kind="bench", work="latency", command=["latency"], allocator="a", library=None, run=1, n=1,
                     result=found)  # fmt: skip
    (row,) = rows.read([tmp_path / "rows.jsonl"])
    assert "/" in found["latency_malloc"] and row.result == found
    assert latency.load(row.result).n("malloc") == 300


def test_round_trip_through_a_stored_row():
    values = numpy.random.default_rng(2).integers(1, 10**9, 3000)
    first = latency.load(raw(values))
    row = json.loads(json.dumps(latency.figures(raw(values))))
    again = latency.load(row)
    for part in latency.PARTS:
        assert again.percentiles_ns(part) == first.percentiles_ns(part)
        assert again.max_ns(part) == first.max_ns(part) and again.n(part) == first.n(part)
    both = latency.merge([first, again])
    assert both.n("malloc") == 6000 and both.max_ns("malloc") == first.max_ns("malloc")
    assert both.percentiles_ns("malloc")[50] == first.percentiles_ns("malloc")[50]
    assert all(value is None or isinstance(value, int | float | str) for value in row.values())


def test_damage_is_said():
    good = raw([1, 2, 3])
    for change, says in (
        ({"count": 4}, "3 of 4"),
        ({"counts": [[10**6, 3]]}, "slot 1000000"),
        ({"counts": [[1, -3]]}, "-3 in slot"),
    ):
        bad = {"latency": good["latency"] | {"malloc": good["latency"]["malloc"] | change}}
        with pytest.raises(ValueError, match=says):
            latency.load(bad)
    with pytest.raises(ValueError, match="'free' is missing"):
        latency.load({"latency": {key: value for key, value in good["latency"].items() if key != "free"}})
    other = {"latency": good["latency"] | {"ticks_per_ns": 3.0}}
    with pytest.raises(ValueError, match="different clocks"):
        latency.merge([latency.load(good), latency.load(other)])


def test_the_proxy_takes_percentiles_of_1_over_x():
    rates = [1e9 / ns for ns in range(1, 1001)]  # latencies of 1 to 1000 ns
    found = latency.epoch_percentiles(rates, (50, 99))
    assert found == {50: pytest.approx(500), 99: pytest.approx(990)}
    # The reports' mistake: 1 / (the p99 of the throughput) is the fast tail.
    assert 1e9 / numpy.percentile(rates, 99, method="inverted_cdf") == pytest.approx(11, abs=1)
    assert found[99] == pytest.approx(1e9 / numpy.percentile(rates, 1, method="inverted_cdf"), rel=2e-3)
    assert latency.epoch_percentiles(rates[:300], (99,)) == {99: None}, "of 300 epochs, 3 lie beyond the p99"
    assert latency.of_epochs([0.0]) == [math.inf]


def measure(build, *arguments, preload=None):
    environment = {"LD_PRELOAD": str(preload)} if preload else {}
    done = subprocess.run([build / "bin" / "latency", *map(str, arguments), "--json"], env=environment,
                          capture_output=True, text=True, timeout=60, check=True)  # fmt: skip
    return json.loads(done.stdout)


def test_the_program(build, library):
    for preload in (None, library):
        result = measure(build, 200_000, 400, 3, 16, 1024, 2, 500, 256, preload=preload)
        run = latency.load(result)
        assert run.n("malloc") + run.n("free") == 200_000 and run.n("timer") == 25_000
        middle = run.percentiles_ns("malloc")[50]
        assert 0 < run.percentiles_ns("timer")[50] <= middle < 5000
        assert not [key for key in result if key.endswith("_ns")], (
            "percentiles are the lab's: it refuses what is too few"
        )
    assert measure(build, 200_000, 400, 3, 16, 1024, 2, 500, 256)["hash"] == result["hash"]


def test_a_slow_allocator_is_seen(build):
    """A mapping a block: every malloc is a system call, every free another."""
    plain, mapped = (latency.load(measure(build, 8000, 100, preload=preload))
                     for preload in (None, build / "bin" / "tests" / "plugins" / "test-mapping-preload.so"))  # fmt: skip
    for part in ("malloc", "free"):
        assert mapped.percentiles_ns(part)[50] > 3 * plain.percentiles_ns(part)[50]


@pytest.mark.parametrize(
    "words", [["0"], ["10", "4", "1", "20", "10"], ["1", "1", "1", "1", "1", "0"], ["--soak", "1"]]
)
def test_wrong_arguments(build, words):
    done = subprocess.run([build / "bin" / "latency", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stderr.splitlines()[-1].startswith("latency: ")
