"""Stored rows that no machine measured: what tests of the scorecard and of the documents are made from."""

import datetime
import json
import math
import random

import forked

from lab.run.workloads import ROWS
from lab.store import rows as stored

NAMES = ("hakmem", "glibc", "mimalloc", "jemalloc", "tcmalloc")
# Of the rate, and of the peak RSS, of each by group; others are 1.
RATE = {"glibc": 0.8, "mimalloc": 0.95, "jemalloc": 0.85, "tcmalloc": 0.94}
PEAK = {"glibc": 0.78, "mimalloc": 1.6, "jemalloc": 1.3, "tcmalloc": 1.9}
HOSTILE = ('<script>alert("x")</script>', "a\"b'c&d|e`f$g$", "long-" + "x" * 300, "</svg><img src=x onerror=alert(1)>")
START = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
MACHINE = {"cpu": "Made Up 9000", "architecture": "x86_64", "cpus": 2, "memory_kb": 8388608, "kernel": "6.1.0",
           "libc": "glibc 2.36", "thp": "madvise", "overcommit": "0"}  # fmt: skip


def row(work, allocator, run, n=11, **changes):
    """A whole row; result=... adds to its result."""
    known = ROWS.get(work)
    command = known.command.replace("SEED", "1") if known else "random_mixed 100 10 1"
    library = None if allocator == "glibc" else f"lib{allocator.split('-')[0]}.so"
    result = {
        "name": command.split()[0], "malloc": library or "libc.so.6", "operations": 20000000, "seconds": 0.2,
        "cpu_seconds": 0.19, "ops_per_s": 1e8, "rss_kb": 2000, "rss_peak_kb": 2200, "tables_kb": 8,
        "faults_minor": 180, "faults_major": 0, "hash": "00ff00ff00ff00ff", "system_calls": 60,
    }  # fmt: skip
    made = {
        "session": "feedfacefeed", "commit": "0123456789abcdef0123456789abcdef01234567",
        "flags": {"bench": "cc -O2", "library": "cc -O2 -fPIC"}, "machine": MACHINE, "schema": 1, "kind": "bench",
        "time": (START + datetime.timedelta(seconds=run)).isoformat(), "work": work, "command": command.split(),
        "seed": 1, "allocator": allocator, "library": library, "version": "1.0", "settings": {}, "run": run, "n": n,
        "cpu_pinned": 1, "clock": "wall", "load": 0.1, "result": result,
    }  # fmt: skip
    result |= changes.pop("result", {})
    return made | changes


def series(work, allocator, rate=1e8, peak=2200, n=11, noise=0.01, seed=0, extra=None, **changes):
    """n rows around these medians; the rounds share noise, as turns do."""
    own = random.Random(f"{work}/{allocator}/{seed}")
    found = []
    for run in range(1, n + 1):
        shared = random.Random(f"{work}/{run}").gauss(0, 3 * noise)
        result = {
            "ops_per_s": rate * math.exp(shared + own.gauss(0, noise)),
            "rss_peak_kb": round(peak * math.exp(own.gauss(0, 0.003))),
        }
        if work == "startup":
            result["child_rss_peak_kb"], result["child_ms"] = result["rss_peak_kb"], 1 + own.random() / 10
        found.append(row(work, allocator, run, n, **(changes | {"result": result | (extra or {})})))
    return found


def whole(runs=11):
    """Every workload of the table on every allocator, as `hak bench all` leaves it; hakmem loses some."""
    found = []
    for place, (work, known) in enumerate(ROWS.items()):
        base, kb = 10 ** (8.3 - 4 * (place % 7) / 7), 1500 * 3 ** (place % 6)
        n = min(runs, known.runs_max or runs)
        extra = {key: 10.0 + place for key in known.shows}
        for name in NAMES:
            if name in known.without or known.group == "latency":
                continue  # latency_rows() makes those
            share = RATE.get(name, 1) ** (1 + place % 5)
            if work in ("large_mix", "threads") and name == "tcmalloc":
                share = 1.3
            if work.startswith("fixed") and name == "mimalloc":
                share = 1.0
            found += series(work, name, base * share, kb * PEAK.get(name, 1), n, extra=extra)
        for variant in known.variants:
            settings = dict(variant.environment)
            command = variant.command.replace("SEED", "1").split()
            found += series(work, variant.name, base * 1.2, kb, n, extra=extra | {"calls_per_100m": 2.5},
                            command=command, settings=settings, library="libhakmem.so" if variant.subject else None)  # fmt: skip
    for work in ("mixed", "shift", "large_mix"):
        for profile, rate, peak in (("speed", 1.1, 1.4), ("lean", 0.6, 0.8)):
            found += series(work, f"hakmem-{profile}", rate * 1e8, 2000 * peak, runs,
                            settings={"HAKMEM_PROFILE": profile})  # fmt: skip
    return found


def save(path, rows):
    path.write_text("".join(json.dumps(made) + "\n" for made in rows), encoding="utf-8")
    return path


def report(tree, *words):
    return forked.hak("report", *words, cwd=tree)


def parsed(made):
    return [stored.parse(json.dumps(row), "made") for row in made]


# --- other kinds of rows ------------------------------------------------------------------------------

LATENCY_SAMPLES = 20000


def latency_rows(work="latency", allocators=("hakmem", "glibc", "mimalloc")):
    """Two runs of each, in histograms as bench/latency.c makes them: 1 to 100 ns, evenly, at a tick a nanosecond."""
    from hdrh.histogram import HdrHistogram

    from lab.judge import latency

    found = []
    for place, name in enumerate(allocators):
        for run in (1, 2):
            result = {"latency_source": "rdtscp", "latency_ticks_per_ns": 1.0, "timer_step_ns": 1.0}
            for part in latency.PARTS:
                histogram = HdrHistogram(1, 1 << 40, 3)
                for value in range(1, 101):
                    histogram.record_value(value + 10 * place * (name != "glibc"), LATENCY_SAMPLES // 100)
                result[f"latency_{part}"] = histogram.encode().decode()
                result[f"latency_{part}_max"] = histogram.max_value
            found.append(row(work, name, run, 2, result=result))
    return found


def soak_rows(work="shift", allocators=("hakmem", "glibc")):
    """Two minutes in epochs of a second; hakmem's memory grows."""
    from lab.judge import soak

    found = []
    for name in allocators:
        random_of = random.Random(name)
        rss = [50000 + (30 * second if name == "hakmem" else 0) + random_of.gauss(0, 50) for second in range(1, 121)]
        epochs = soak.Epochs(
            time_s=[float(second) for second in range(1, 121)], ops_per_s=[random_of.gauss(1e7, 1e5) for _ in rss],
            rss_kb=rss, rss_peak_kb=rss)  # fmt: skip
        made = row(work, name, 1, 1, kind="soak")
        made["result"] = soak.figures(soak.analyze(epochs))
        made["result"]["curve_s"], made["result"]["curve_rss_kb"] = map(list, soak.curve(epochs))
        found.append(made)
    return found
