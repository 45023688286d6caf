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
    wanted: tuple[str, ...] = ()  # the peers that "the best" is to be one of

    @property
    def missing_peers(self) -> tuple[str, ...]:
        """Those that were not measured: without them, nobody knows which is the best."""
        return tuple(name for name in self.wanted if not ((found := self.of(name)) and found.values(RATE)))

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
        """None without a pair, and of one to itself."""
        values = self.quotients(first, second, key).values() if first != second else ()
        return stats.of_ratios(value for value in values if value > 0)

    def peers(self, key: str = RATE) -> list[Series]:
        """Those that ran the subject's command, and say this of it."""
        own = self.of(self.subject)
        return [series for series in self.series if series.is_peer and series.name != self.subject
                and series.values(key) and (own is None or series.command == own.command)]  # fmt: skip

    def best_peer(self, key: str = RATE) -> str | None:
        """The name of the measured peer with the highest median."""
        medians = {series.name: median(series.values(key).values()) for series in self.peers(key)}
        return max(medians, key=medians.get, default=None)

    def least_peer(self, key: str, without: Iterable = ()) -> str | None:
        """The name of the measured peer with the lowest median; some may be left out."""
        medians = {series.name: median(series.values(key).values()) for series in self.peers(key)}
        return min((name for name in medians if name not in without), key=medians.get, default=None)


def sessions_that_count(rows: Iterable, wanted: Callable[[str], Iterable[str]]) -> dict[str, str]:
    """Only runs of one session are pairs. Of each workload one session counts: the latest of those that are not tiny,
    have most of the wanted allocators, and enough runs for an interval, in this order."""
    found: dict[str, dict[str, dict]] = {}
    for place, row in enumerate(rows):
        session = found.setdefault(row.work, {}).setdefault(row.session, {"names": set(), "runs": 0})
        session["names"].add(row.allocator)
        session |= {"runs": max(session["runs"], row.run), "place": place, "tiny": row.is_tiny}
    chosen = {}
    for work, sessions in found.items():
        enough = min(stats.runs_needed(), max(session["runs"] for session in sessions.values()))
        names = set(wanted(work))

        def rank(item, names=names, enough=enough):
            session = item[1]
            return not session["tiny"], len(session["names"] & names), session["runs"] >= enough, session["place"]

        chosen[work] = max(sessions.items(), key=rank)[0]
    return chosen


def from_rows(rows: Iterable, subject: str, is_peer: Callable[[str], bool],
              wanted: Callable[[str], Iterable[str]] = lambda _: ()) -> dict[str, Outcome]:  # fmt: skip
    """Outcomes by workload, each of the session that counts; wanted: the peers a workload should have."""
    rows = list(rows)
    chosen = sessions_that_count(rows, lambda work: (subject, *wanted(work)))
    outcomes: dict[str, Outcome] = {}
    for row in rows:
        if row.session != chosen[row.work]:
            continue
        outcome = outcomes.setdefault(row.work, Outcome(row.work, subject, [], tuple(wanted(row.work))))
        series = outcome.of(row.allocator)
        if series is None:
            series = Series(row.allocator, " ".join(row.command), is_peer(row.allocator))
            outcome.series.append(series)
        series.results[row.run] = row.result
    return outcomes
