"""The rows: what is run, with which arguments, and whether it may be pinned to one CPU."""

from dataclasses import dataclass

SIZES_SMALL = (16, 32, 64, 128, 256, 512)
SIZES_LARGE = (1024, 2048, 4096, 8192)
LARSON = tuple((threads, chunks) for threads in (1, 2, 8) for chunks in (256, 1024))
BATCHES = (("1k", 1000, 4000), ("10k", 10000, 400), ("100k", 100000, 40))  # name, blocks, rounds
PAIRS = ((1, 1), (2, 2), (4, 4))


@dataclass(frozen=True)
class Row:
    name: str
    group: str
    command: str  # program and arguments; SEED stands for the seed
    tiny: str  # the same within milliseconds, for tests
    threads: bool = False  # several threads: not pinned
    children: bool = False  # the work is done by child processes: its CPU time is theirs
    variants: tuple = ()  # programs that need no preload, measured in the same turns: (name, command, tiny)


def _rows():
    mixed, mixed_tiny = "20000000 400 SEED", "20000 100 SEED"
    yield Row("mixed", "mixed", f"random_mixed {mixed}", f"random_mixed {mixed_tiny}", variants=(
        ("fast", f"random_mixed_fast {mixed}", f"random_mixed_fast {mixed_tiny}"),
        ("ideal", f"random_mixed {mixed} --ideal", f"random_mixed {mixed_tiny} --ideal")))
    for size in SIZES_SMALL + SIZES_LARGE:
        yield Row(f"fixed-{size}", "fixed", f"random_mixed 10000000 400 SEED {size} {size}",
                  f"random_mixed 20000 100 SEED {size} {size}")
    for millions in (2, 4):
        yield Row(f"churn-{millions}m", "churn", f"churn {millions}000000 40 103 4000000 SEED",
                  "churn 2000 40 103 4000 SEED")
    for name, count, rounds in BATCHES:
        yield Row(f"batch-{name}", "batch", f"batch {count} {rounds} SEED", "batch 500 3 SEED")
    for threads, chunks in LARSON:
        lives = 400000 // (threads * chunks)
        yield Row(f"larson-{threads}-{chunks}", "larson", f"larson {threads} {chunks} {lives} SEED",
                  f"larson {threads} 10 3 SEED", threads=True)
    for producers, consumers in PAIRS:
        yield Row(f"handoff-{producers}-{consumers}", "handoff", f"handoff {producers} {consumers} 30000 SEED",
                  f"handoff {producers} {consumers} 40 SEED", threads=True)
    yield Row("freeonly", "freeonly", "freeonly 16 370 3000000 SEED", "freeonly 16 1 20000 SEED", threads=True)
    yield Row("threads", "threads", "threads 10000 4 200 SEED", "threads 40 4 200 SEED", threads=True)
    yield Row("shift", "shift", "shift 100 6000000 SEED", "shift 1 20000 SEED")
    yield Row("shift-window", "shift", "shift 100 6000000 SEED 512 8192 --window",
              "shift 1 20000 SEED 512 8192 --window")
    yield Row("startup", "startup", "startup 300", "startup 3", children=True)


ROWS = {row.name: row for row in _rows()}
GROUPS = tuple(dict.fromkeys(row.group for row in ROWS.values()))
PROGRAMS = tuple(dict.fromkeys(row.command.split()[0] for row in ROWS.values()))


def chosen(words, with_goals):
    """The rows that the words name: rows, groups, "all", "goals" (the rows named in with_goals), or a program
    with its arguments as one word. No word: the first row of each group. ValueError on an unknown word."""
    rows = {}
    for word in words or GROUPS:
        if word == "all":
            found = list(ROWS.values())
        elif word == "goals":
            found = [ROWS[name] for name in with_goals]
        elif word in GROUPS:
            found = [row for row in ROWS.values() if row.group == word][: None if words else 1]
        elif word in ROWS:
            found = [ROWS[word]]
        elif word.split()[:1] and word.split()[0] in PROGRAMS:
            found = [Row(word, "own", word, word, threads=word.split()[0] in
                         {row.command.split()[0] for row in ROWS.values() if row.threads})]
        else:
            raise ValueError(f"unknown workload '{word}'; known: all, goals, {', '.join(GROUPS)}, "
                             f"{', '.join(name for name in ROWS if name not in GROUPS)}")
        rows.update((row.name, row) for row in found)
    return list(rows.values())
