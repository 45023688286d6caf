"""The rows: what is run, with which arguments, and whether it may be pinned to one CPU."""

from dataclasses import dataclass, replace

from lab.run import apps, huge_pages
from lab.run.allocators import INSTALLABLE, PROFILES

SIZES_SMALL = (16, 32, 64, 128, 256, 512)
SIZES_LARGE = (1024, 2048, 4096, 8192)
LARSON = tuple((threads, chunks) for threads in (1, 2, 8) for chunks in (256, 1024))
BATCHES = (("1k", 1000, 4000), ("10k", 10000, 400), ("100k", 100000, 40))  # name, blocks, rounds
PAIRS = ((1, 1), (2, 2), (4, 4))
DRAWS = tuple((1, draw) for draw in range(8)) + tuple((4, draw) for draw in range(8, 12))  # threads, shape
# What looks inside a program, by the variables that switch it on: what that costs.
LOOKED_INTO = {
    "off": (),
    "live": (("HAKMEM_LIVE", "1"),),
    "counted": (("HAKMEM_COUNT", "1"),),
    "profile-2048": (("HAKMEM_HEAP_PROFILE", "on"), ("HAKMEM_HEAP_PROFILE_KB", "2048")),
    "profile-512": (("HAKMEM_HEAP_PROFILE", "on"),),
}
# Options beside each other, by the variables that set them (docs/tuning.md), on these works.
OPTIONS = {
    "default": (),
    "purge_delay_ms=0": (("HAKMEM_PURGE_DELAY_MS", "0"),),
    "keep_mb=1024": (("HAKMEM_KEEP_MB", "1024"),),
    "target_mb=10": (("HAKMEM_TARGET_MB", "10"),),
    "heap_kb_max=256": (("HAKMEM_HEAP_KB_MAX", "256"),),
    "huge=off": (("HAKMEM_HUGE", "off"),),
    "huge=all": (("HAKMEM_HUGE", "all"),),
}
OPTION_WORKS = ("batch-100k", "shift", "shift-window", "large_mix", "vm")
# What is measured under each of the system's settings of transparent huge pages: name, row.
UNDER_HUGE_PAGES = (("nothing", "startup"), ("mixed", "mixed"), ("larson", "larson-8-1024"), ("sqlite", "app-sqlite"))
GROWTHS = (("x2", "100 16384 2"), ("x1.5", "50 16384 2"), ("step", "0 16384 2"))  # name, percent, step KiB, rounds


@dataclass(frozen=True)
class Variant:
    """Something else that is measured in the turns of a row: another program, or the subject set up otherwise."""

    name: str
    command: str
    tiny: str
    subject: bool = False  # on the library of the subject, if that is hakmem; else nothing is preloaded
    environment: tuple = ()  # (name, value) pairs


@dataclass(frozen=True)
class Row:
    name: str
    group: str
    command: str  # program and arguments; SEED stands for the seed
    tiny: str  # the same within milliseconds, for tests
    threads: bool = False  # several threads: not pinned
    children: bool = False  # the work is done by child processes: its CPU time is theirs
    variants: tuple = ()
    without: tuple = ()  # allocators that are left out
    runs_max: int = 0  # for runs that take long and say the same each time; 0: as many as asked for
    shows: tuple = ()  # further fields of the results, a column each
    is_app: bool = False  # a real program of apps.py
    huge_pages: str = ""  # the system's setting of transparent huge pages, which is switched; "": as it is
    is_rate_compared: bool = True  # its rate says something of an allocator beside its peers (bench/README.md)


def _rows():
    mixed, mixed_tiny = "20000000 400 SEED", "20000 100 SEED"
    yield Row(
        "mixed",
        "mixed",
        f"random_mixed {mixed}",
        f"random_mixed {mixed_tiny}",
        variants=(
            Variant("fast", f"random_mixed_fast {mixed}", f"random_mixed_fast {mixed_tiny}"),
            Variant("ideal", f"random_mixed {mixed} --ideal", f"random_mixed {mixed_tiny} --ideal"),
        ),
    )
    for size in SIZES_SMALL + SIZES_LARGE:
        yield Row(f"fixed-{size}", "sizes", f"random_mixed 10000000 400 SEED {size} {size}",
                  f"random_mixed 20000 100 SEED {size} {size}")  # fmt: skip
    for millions in (2, 4):
        yield Row(
            f"churn-{millions}m", "churn", f"churn {millions}000000 40 103 4000000 SEED", "churn 2000 40 103 4000 SEED"
        )
    for name, count, rounds in BATCHES:
        yield Row(f"batch-{name}", "batch", f"batch {count} {rounds} SEED", "batch 500 3 SEED")
    for threads, chunks in LARSON:
        lives = 400000 // (threads * chunks)
        yield Row(f"larson-{threads}-{chunks}", "larson", f"larson {threads} {chunks} {lives} SEED",
                  f"larson {threads} 10 3 SEED", threads=True)  # fmt: skip
    for producers, consumers in PAIRS:
        yield Row(f"handoff-{producers}-{consumers}", "handoff", f"handoff {producers} {consumers} 30000 SEED",
                  f"handoff {producers} {consumers} 40 SEED", threads=True)  # fmt: skip
    yield Row("freeonly", "freeonly", "freeonly 16 370 3000000 SEED", "freeonly 16 1 20000 SEED", threads=True)
    yield Row("threads", "threads", "threads 10000 4 200 SEED", "threads 40 4 200 SEED", threads=True)
    yield Row("shift", "shift", "shift 100 6000000 SEED", "shift 1 20000 SEED")
    yield Row(
        "shift-window", "shift", "shift 100 6000000 SEED 512 8192 --window", "shift 1 20000 SEED 512 8192 --window"
    )
    for threads, draw in DRAWS:
        yield Row(f"drawn-{draw}", "drawn", f"drawn {draw} SEED {threads}", f"drawn {draw} SEED {threads} 2",
                  threads=threads > 1)  # fmt: skip
    yield Row("startup", "startup", "startup 300", "startup 3", children=True)
    yield from _latency_rows()
    yield from _memory_rows()
    for name, app in apps.APPS.items():
        command = tiny = f"measure {name} SEED" if app.is_phases else f"measure {name}"
        if app.amounts:
            command, tiny = (f"measure {name} {amount}" for amount in app.amounts)
        yield Row(f"app-{name}", "phases" if app.is_phases else "apps", command, tiny, threads=True, children=True,
                  runs_max=7, is_app=True, is_rate_compared=False)  # fmt: skip


def _latency_rows():
    """OPS, WS, SEED, MIN, MAX, THREADS, LARGE_PPM, LARGE_KIB, WORK. A p99.999 needs a million samples."""
    for name, rest, threads in (
        ("latency", "16 1024 1", False),
        ("latency-threads", "16 1024 2", True),
        ("latency-large", "16 1024 1 1000 4096", False),
        ("latency-64k", "16 65536 1 0 64 1", False),
        ("latency-64k-4", "16 65536 4 0 64 1", True),
        ("latency-phases", "16 65536 1 0 64 2", False),
        ("latency-phases-4", "16 65536 4 0 64 2", True),
    ):
        yield Row(
            name, "latency", f"latency 6000000 400 SEED {rest}", f"latency 20000 100 SEED {rest}",
            threads=threads, runs_max=7, is_rate_compared=False)  # fmt: skip


def _memory_rows():
    yield Row("vm", "vm", "vm 2097152 100 40 SEED", "vm 2097152 4 3 SEED",
              shows=("faults_after_first", "first_round_ms", "later_ops_per_s"))  # fmt: skip
    yield Row("cold_churn", "cold_churn", "cold_churn 256 100 64 4096 40000 SEED", "cold_churn 256 8 64 256 100 SEED")
    yield Row("large_mix", "large_mix", "large_mix 100 64 16384 3000 SEED", "large_mix 8 64 512 50 SEED")
    for name, rule in GROWTHS:
        yield Row(f"realloc-{name}", "realloc", f"realloc_grow 1024 {rule}", f"realloc_grow 16 {rule}",
                  shows=("moves", "grow_ms"))  # fmt: skip
    yield Row("idle", "idle_return", "idle_return 150000 100000 50000 20 SEED",
              "idle_return 1500 1000 500 20 SEED 1000", runs_max=3,
              shows=("releasable_kb", "rss_before_kb", "rss_1s_kb", "rss_10s_kb", "returned_share_10s"))  # fmt: skip
    yield Row("prefork", "prefork", "prefork 100 16 1024 32 2000 200 SEED", "prefork 1 16 1024 3 50 10 SEED",
              children=True, shows=("child_rss_kb", "child_pss_kb", "extra_pss_kb"))  # fmt: skip
    # mimalloc asks for huge pages: of 20 GB virtual, 20 GB would be resident.
    yield Row("vmas", "vmas", "vmas 20480 500000 SEED", "vmas 64 2000 SEED", runs_max=7,
              without=("mimalloc", "mimalloc2"), shows=("vmas_end", "vmas_most"), is_rate_compared=False)  # fmt: skip
    mixed, mixed_tiny = "random_mixed 200000000 400 SEED", "random_mixed 20000 100 SEED"
    profiles = {name: (("HAKMEM_PROFILE", name), ("HAKMEM_STATS", "json")) for name in PROFILES}
    yield _set_up(Row("profiles", "profiles", mixed, mixed_tiny, shows=("calls_per_100m",)), profiles)
    yield _heaps_row()
    yield _set_up(Row("inside", "inside", "random_mixed 100000000 400 SEED", mixed_tiny), LOOKED_INTO)


def _set_up(row, ways):
    """hakmem set up in several ways beside each other, in the turns of this row: name, variables."""
    variants = tuple(Variant(name, row.command, row.tiny, subject=True, environment=environment)
                     for name, environment in ways.items())  # fmt: skip
    return replace(row, without=INSTALLABLE, is_rate_compared=False, variants=variants)


def _heaps_row():
    """malloc and free beside a hak_heap's: OPS, SLOTS, WAY, DESTROYED. The program is linked with hakmem."""
    ways = {"heap": 1, "heap-free": 2, "heap-default": 3}
    commands = [(f"heaps 60000000 400 {way} 1000000", f"heaps 20000 100 {way} 1000") for way in (0, *ways.values())]
    return Row("heaps", "heaps", *commands[0], without=("glibc", *INSTALLABLE), is_rate_compared=False,
               shows=("destroy_ms",),
               variants=tuple(Variant(name, *commands[way], subject=True) for name, way in ways.items()))  # fmt: skip


def _more_rows(rows):
    """The same works set up otherwise."""
    for name in OPTION_WORKS:
        yield _set_up(replace(rows[name], name=f"options-{name}", group="options"), OPTIONS)
    for word in huge_pages.WORDS:
        for name, of in UNDER_HUGE_PAGES:
            yield replace(rows[of], name=f"thp-{word}-{name}", group="thp", huge_pages=word, is_rate_compared=False,
                          runs_max=7, variants=())  # fmt: skip


ROWS = {row.name: row for row in _rows()}
ROWS |= {row.name: row for row in _more_rows(ROWS)}
GROUPS = tuple(dict.fromkeys(row.group for row in ROWS.values()))
REAL = ("apps", "phases")  # real programs
ASKED_FOR = (
    "inside",
    "heaps",
    "options",
    "thp",
)  # groups that run only where they are named; thp switches the machine's setting
# Names for several groups.
SETS = {
    "all": tuple(group for group in GROUPS if group not in (*REAL, "options", "thp")),
    "memory": ("vm", "cold_churn", "large_mix", "realloc", "idle_return", "prefork", "vmas", "profiles"),
}
PROGRAMS = tuple(dict.fromkeys(row.command.split()[0] for row in ROWS.values() if not row.is_app))


def chosen(words, with_goals):
    """The rows that the words name: rows, groups, sets, "goals" (the rows named in with_goals), or a program with its
    arguments as one word. No word: the first row of each group but the slow ones. ValueError on an unknown word."""
    rows = {}
    for word in words or (group for group in GROUPS if group not in SETS["memory"] + REAL + ASKED_FOR):
        if word == "goals":
            found = [ROWS[name] for name in with_goals]
        elif word in SETS:
            found = [row for row in ROWS.values() if row.group in SETS[word]]
        elif word in GROUPS:
            found = [row for row in ROWS.values() if row.group == word][: None if words else 1]
        elif word in ROWS:
            found = [ROWS[word]]
        elif word.split()[:1] and word.split()[0] in PROGRAMS:
            like = next(row for row in ROWS.values() if row.command.split()[0] == word.split()[0])
            found = [Row(word, "own", word, word, threads=like.threads, children=like.children)]
        else:
            raise ValueError(f"unknown workload '{word}'; known: goals, {', '.join(SETS)}, {', '.join(GROUPS)}, "
                             f"{', '.join(name for name in ROWS if name not in GROUPS)}")  # fmt: skip
        rows.update((row.name, row) for row in found)
    return list(rows.values())
