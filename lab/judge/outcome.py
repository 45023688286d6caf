"""One workload after its runs, from programs that just ran or from stored rows. Pure."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from statistics import median

from lab.judge import stats

RATE = "ops_per_s"


@dataclass
class Series:
    """The runs of one allocator, or of one variant of the program."""

    name: str
    command: str
    is_peer: bool  # one of those the subject is measured against
    problem: str = ""
    absent: bool = False  # the problem is that something is not installed
    results: dict[int, dict] = field(default_factory=dict)  # run number -> result

    def values(self, key: str) -> dict[int, float]:
        return {run: float(result[key]) for run, result in self.results.items() if result.get(key) is not None}


@dataclass
class Outcome:
    """`subject` names the series that is compared with the others."""

    work: str
    subject: str
    series: list[Series]

    def of(self, name: str) -> Series | None:
        return next((series for series in self.series if series.name == name), None)

    def pairs(self, first: str, second: str, key: str, combine: Callable) -> dict[int, float]:
        """combine(first's value, second's value) of each run that both finished."""
        a, b = self.of(first), self.of(second)
        x, y = a.values(key) if a else {}, b.values(key) if b else {}
        return {run: combine(x[run], y[run]) for run in sorted(x.keys() & y.keys())}

    def quotients(self, first: str, second: str, key: str = RATE) -> dict[int, float]:
        found = self.pairs(first, second, key, lambda x, y: x / y if y else None)
        return {run: value for run, value in found.items() if value is not None}

    def ratio(self, first: str, second: str, key: str = RATE) -> stats.Ratio | None:
        return stats.of_ratios(value for value in self.quotients(first, second, key).values() if value > 0)

    def best_peer(self, key: str = RATE) -> str | None:
        """The name of the measured peer with the highest median."""
        own = self.of(self.subject)
        peers = [series for series in self.series if series.is_peer and series.values(key)
                 and series.name != self.subject and (own is None or series.command == own.command)]  # fmt: skip
        return max(peers, key=lambda series: median(series.values(key).values())).name if peers else None


def from_rows(rows: Iterable, subject: str, is_peer: Callable[[str], bool]) -> dict[str, Outcome]:
    """Outcomes by workload. Only runs of one session are pairs: a workload's latest session is taken."""
    rows = list(rows)
    latest = {row.work: row.session for row in rows}
    outcomes: dict[str, Outcome] = {}
    for row in rows:
        if row.session != latest[row.work]:
            continue
        outcome = outcomes.setdefault(row.work, Outcome(row.work, subject, []))
        series = outcome.of(row.allocator)
        if series is None:
            series = Series(row.allocator, " ".join(row.command), is_peer(row.allocator))
            outcome.series.append(series)
        series.results[row.run] = row.result
    return outcomes
