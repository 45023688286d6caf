"""The CSV of a soak: what the benchmark programs write with --soak, and what others write.

    read(path)     the epochs of a file, its columns recognised by name; BadEpochs says which line is wrong and why
    create(path)   a file that must not be there yet; every line is on its way to the disk when write() returns

The first line names the columns, in any order, others among them; upper and lower case, spaces and signs do not matter:
"Throughput (ops/s)" is throughput_ops_s. Fields are separated by commas, semicolons or tabs.
"""

import csv
import datetime
import io
import itertools
import math
import os
import re
from collections.abc import Callable, Iterator

from lab.judge.soak import Epochs

# --- names: each with what its unit is worth in ours ---------------------------------------------------

TIME = {"time": 1.0, "time_s": 1.0, "seconds": 1.0, "elapsed_s": 1.0, "t": 1.0, "timestamp": 1.0, "time_ms": 1e-3,
        "timestamp_ms": 1e-3, "epoch": None}  # fmt: skip # epoch: a number, worth the length of an epoch
RATE = {"ops_per_s": 1.0, "throughput": 1.0, "throughput_ops_s": 1.0, "ops_s": 1.0, "ops_per_sec": 1.0, "kops_per_s": 1e3,
        "mops_per_s": 1e6, "mops": 1e6, "throughput_mops": 1e6, "throughput_mops_s": 1e6}  # fmt: skip
OPS = {"ops": 1.0, "epoch_ops": 1.0}  # operations of the epoch
RSS = {"rss": 1.0, "rss_kb": 1.0, "rss_kib": 1.0, "vmrss": 1.0, "vmrss_kb": 1.0, "rss_mb": 1024.0, "rss_mib": 1024.0,
       "rss_bytes": 1 / 1024, "rss_gb": 1024.0**2}  # fmt: skip
PEAK = {"rss_peak_kb": 1.0, "peak_rss_kb": 1.0, "vmhwm_kb": 1.0, "rss_peak_mb": 1024.0, "peak_rss_mb": 1024.0}
COUNTERS = {
    "faults_minor": {"epoch_faults_minor": 1.0},
    "faults_major": {"epoch_faults_major": 1.0},
    "system_calls": {"epoch_system_calls": 1.0},
    "cpu_seconds": {"epoch_cpu_seconds": 1.0},
}
SUMS_FROM = 10  # so many values that only rise are no operations of single epochs


class BadEpochs(ValueError):
    """A sentence with the file and, where one is wrong, the line."""


def create(path: str | os.PathLike) -> io.FileIO:
    """Keeps what it is given, whatever happens later. FileExistsError if there is such a file."""
    return open(path, "xb", buffering=0)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.strip().lower()).strip("_")


def _moment(text: str) -> float:
    """Seconds of a number or of an ISO 8601 date."""
    try:
        return float(text)
    except ValueError:
        return datetime.datetime.fromisoformat(text).timestamp()


class _Table:
    """The columns of a file by their plain names; a line of it that is damaged is said when it is met."""

    def __init__(self, path: str | os.PathLike):
        self.name = os.path.basename(path)
        self.notes: list[str] = []
        with open(path, "rb") as file:
            data = file.read()
        self.ends_whole = data.endswith(b"\n")
        lines = data.decode("utf-8-sig", errors="replace").splitlines()
        if not lines or not lines[0].strip():
            raise BadEpochs(f"{self.name}: its first line names no columns")
        separator = max(",;\t", key=lines[0].count)
        self.given = next(csv.reader([lines[0]], delimiter=separator))
        self.names = [_plain(name) for name in self.given]
        if all(re.fullmatch(r"\s*-?[0-9.]+(e[+-]?\d+)?\s*", name, re.IGNORECASE) for name in self.given):
            raise BadEpochs(f"{self.name}: the first line is numbers; it must name the columns")
        doubles = sorted({name for name in self.names if name and self.names.count(name) > 1})
        if doubles:
            raise BadEpochs(f"{self.name}: the column {doubles[0]} is there twice")
        self.rows = list(self._rows(lines, separator))
        if not self.rows:
            raise BadEpochs(f"{self.name}: no epochs: only the line with the names of the columns is there")

    def _rows(self, lines: list[str], separator: str) -> Iterator[tuple[int, list[str]]]:
        for number, line in enumerate(lines[1:], 2):
            if not line.strip():
                continue
            try:
                fields = next(csv.reader([line], delimiter=separator))
            except csv.Error as error:
                raise BadEpochs(f"{self.name}:{number}: {error}") from None
            if len(fields) == len(self.names):
                yield number, [field.strip() for field in fields]
            elif len(fields) < len(self.names) and number == len(lines) and not self.ends_whole:
                self.notes.append(f"line {number}, the last one, is cut off and left out")
            else:
                raise BadEpochs(f"{self.name}:{number}: {len(fields)} fields; the first line names {len(self.names)}")

    def has(self, accepted: dict) -> str | None:
        """The first of the accepted names that is a column."""
        return next((name for name in accepted if name in self.names), None)

    def column(self, name: str, unit: float, read: Callable[[str], float] = float) -> list[float]:
        at, values = self.names.index(name), []
        for number, fields in self.rows:
            try:
                value = read(fields[at]) * unit
            except ValueError:
                raise BadEpochs(f"{self.name}:{number}: {name}: '{fields[at]}' is not a number") from None
            if not math.isfinite(value) or value < 0:
                raise BadEpochs(f"{self.name}:{number}: {name}: '{fields[at]}' is no number from 0 on")
            values.append(value)
        return values

    def optional(self, accepted: dict) -> list[float] | None:
        """A column that may be empty, as a whole or in parts: then it is not there."""
        name = self.has(accepted)
        if name is None:
            return None
        empty = sum(not fields[self.names.index(name)] for _, fields in self.rows)
        if empty:
            if empty < len(self.rows):
                self.notes.append(f"{name} is empty in {empty} of {len(self.rows)} lines and left out")
            return None
        return self.column(name, accepted[name])


def _times(table: _Table, epoch_s: float) -> list[float]:
    name = table.has(TIME)
    unit = TIME[name]
    if unit is None:
        unit = epoch_s
        table.notes.append(f"the column epoch is taken as a number of epochs of {epoch_s:g} s")
    times = table.column(name, unit, _moment)
    for (number, _), before, after in zip(table.rows[1:], times, times[1:], strict=False):
        if after <= before:
            raise BadEpochs(f"{table.name}:{number}: {name}: the time does not rise")
    # A date, or a count of something before the start, says nothing of when the first epoch began.
    start = times[0] - epoch_s if times[0] > 1e8 or name == "epoch" else 0.0
    return [time - start for time in times]


def _rates(table: _Table, times: list[float], ops: list[float] | None) -> list[float] | None:
    name = table.has(RATE)
    if name:
        return table.column(name, RATE[name])
    if ops is None:
        return None
    if len(ops) >= SUMS_FROM and all(a < b for a, b in itertools.pairwise(ops)):
        raise BadEpochs(f"{table.name}: the column {table.has(OPS)} rises in every line: a running sum? It must be the "
                        "operations of each epoch, or ops_per_s")  # fmt: skip
    lengths = [after - before for before, after in zip([0.0, *times], times, strict=False)]
    table.notes.append(f"the column {table.has(OPS)} is taken as operations of each epoch")
    return [count / length if length > 0 else 0.0 for count, length in zip(ops, lengths, strict=True)]


def read(path: str | os.PathLike, epoch_s: float = 1.0) -> Epochs:
    """BadEpochs, or OSError. epoch_s: the length of an epoch where the file does not tell."""
    table = _Table(path)
    if table.has(TIME) is None or not (table.has(RATE) or table.has(OPS) or table.has(RSS)):
        lacks = "time" if table.has(TIME) is None else "throughput or RSS"
        raise BadEpochs(f"{table.name}: no column of {lacks}; found: {', '.join(table.given)}; known: see docs/soak.md")
    times = _times(table, epoch_s)
    ops = table.optional(OPS)
    rss = table.has(RSS)
    rates = _rates(table, times, ops)
    if rss == "rss":
        table.notes.append("the column rss is taken as KiB, as ps prints it")
    counters = {kind: column for kind, accepted in COUNTERS.items() if (column := table.optional(accepted))}
    return Epochs(
        time_s=times,
        ops_per_s=rates,
        rss_kb=table.column(rss, RSS[rss]) if rss else None,
        rss_peak_kb=table.optional(PEAK),
        ops=ops,
        counters=counters,
        notes=tuple(table.notes),
    )
