"""What the stored rows say of each workload: ratios, verdicts, losses. The scorecard and the documents read this."""

import functools
from collections.abc import Iterable
from dataclasses import dataclass

from lab.judge import outcome, stats
from lab.judge.outcome import RATE, Outcome, Series
from lab.run import goals
from lab.run.allocators import OURS, PEERS, PROFILES, SUBJECT, Allocator
from lab.run.workloads import ROWS
from lab.show.tables import middle, peak_key
from lab.store.rows import Row

# Groups whose memory says nothing of an allocator beside its peers: most of it are histograms, the rows of the profiles
# and options have no peer but glibc, that of heaps has none, and those of huge pages are other rows under another setting
# of the machine.
SIZE_NOT_COMPARED = ("latency", "profiles", "inside", "heaps", "options", "thp")
# What is read of a result; it must be numbers.
READ = {
    RATE, "rss_peak_kb", "child_rss_peak_kb", "rss_kb", "peak_over_live", "rss_over_live", "faults_minor", "system_calls",
    "operations", "cpu_seconds", "calls_own", "calls_per_100m", "child_ms", *(key for row in ROWS.values() for key in row.shows),
}  # fmt: skip
VARIANTS = {variant.name for row in ROWS.values() for variant in row.variants}


def is_peer(name: str) -> bool:
    return name not in VARIANTS and Allocator(name, None).is_peer


def wanted_peers(work: str) -> tuple[str, ...]:
    """Those that a workload of the table is to be measured on."""
    return tuple(name for name in PEERS if name not in ROWS[work].without) if work in ROWS else ()


def profile_names(found: Outcome) -> dict[str, str]:
    """profile -> the series that shows it: hakmem-lean, or the variant lean of the row `profiles`."""
    names = {}
    for profile in PROFILES:
        default = [SUBJECT] if profile == "balanced" else []
        for name in (f"{SUBJECT}-{profile}", profile, *default):
            if found.of(name) is not None and found.of(name).results:
                names[profile] = name
                break
    return names if len(names) > 1 else {}


def is_number(value) -> bool:
    return isinstance(value, int | float)


@dataclass(frozen=True)
class Loss:
    """The subject is slower than the fastest peer of a workload, or larger than the leanest."""

    work: str
    group: str
    peer: str
    ratio: stats.Ratio
    verdict: str
    key: str
    difference: float  # of the medians

    @property
    def badness(self) -> float:
        """Over 1: how many times slower or larger."""
        return 1 / self.ratio.median if self.key == RATE else self.ratio.median


@dataclass(frozen=True)
class Disagreement:
    """Sessions that measured the same, and say different things of the subject beside a peer."""

    work: str
    key: str  # "rate" or "peak"
    peer: str
    said: tuple[tuple[Row, stats.Ratio, str], ...]  # a row of each session, earliest first; the ratio; its verdict


class Figures:
    """Of each workload the session that counts, as an Outcome; rows of other kinds beside them."""

    def __init__(self, rows: Iterable[Row]):
        rows = sorted(rows, key=lambda row: row.time)
        bench = [row for row in rows if row.kind == "bench"]
        for row in bench:
            wrong = [
                key for key in READ & row.result.keys() if not (is_number(row.result[key]) or row.result[key] is None)
            ]
            if wrong:
                raise ValueError(f"{row.work}, {row.allocator}, run {row.run}, session {row.session}: "
                                 f"{min(wrong)} is no number")  # fmt: skip
        self.bench = bench
        self._of_result = {id(row.result): row for row in bench}
        self.outcomes: dict[str, Outcome] = self._outcomes(bench)
        # For what the rows of the session that counts have in common.
        self.last = {work: self.row_of(found.series[0]) for work, found in self.outcomes.items()}
        self._ratios: dict[tuple, stats.Ratio | None] = {}
        self.others = [row for row in rows if row.kind != "bench"]

    def _outcomes(self, rows: Iterable[Row]) -> dict[str, Outcome]:
        outcomes = outcome.from_rows(rows, SUBJECT, is_peer, wanted_peers)
        for found in outcomes.values():
            if found.of(SUBJECT) is None:
                names = [series.name for series in found.series]
                found.subject = next((name for name in OURS if name in names), names[0])
        return outcomes

    def row_of(self, series: Series) -> Row:
        return self._of_result[id(next(iter(series.results.values())))]

    # --- workloads ---

    @property
    def works(self) -> list[str]:
        """In the order of the table of workloads; others after them."""
        order = {name: place for place, name in enumerate(ROWS)}
        return sorted(self.outcomes, key=lambda name: order.get(name, len(order)))

    def group(self, work: str) -> str:
        return ROWS[work].group if work in ROWS else "own"

    def is_compared(self, work: str, key: str = RATE) -> bool:
        """Whether its rate, or its memory, says something of an allocator beside its peers."""
        if key == RATE:
            return work not in ROWS or ROWS[work].is_rate_compared
        return self.group(work) not in SIZE_NOT_COMPARED

    def row(self, work: str, name: str) -> Row | None:
        """A row of this allocator, in the session that counts."""
        found = self.outcomes[work].of(name)
        return self.row_of(found) if found else None

    def loads(self, series: Series) -> list[float]:
        """The machine's load average when its runs began."""
        return [self._of_result[id(result)].load for result in series.results.values()]

    def peers_missing(self, work: str) -> list[str]:
        """The peers without a rate here, so that the best peer is the best of the others only."""
        measured = {series.name for series in self.peers(work)}
        return [name for name in PEERS if name not in measured]

    def is_standard(self, work: str) -> bool:
        """Whether it ran with the arguments of the table of workloads: not tiny ones, and not another hakmem's."""
        if work not in ROWS or work not in self.outcomes:
            return False
        found = self.outcomes[work].of(self.outcomes[work].subject)
        seed = self.last[work].seed
        return not self.last[work].is_tiny and found.command == ROWS[work].command.replace(
            "SEED", "" if seed is None else str(seed)
        )

    @functools.cached_property
    def standard(self) -> dict[str, Outcome]:
        return {name: self.outcomes[name] for name in self.works if self.is_standard(name)}

    @functools.cached_property
    def judged(self) -> list[tuple]:
        """(goal, values, verdict) of every goal."""
        ours = {name: found for name, found in self.standard.items() if found.subject == SUBJECT}
        return [(goal, *goals.judge(goal, ours)) for goal in goals.GOALS]

    # --- ratios ---

    def ratio(self, work: str, first: str, second: str, key: str = RATE) -> stats.Ratio | None:
        asked = (work, first, second, key)
        if asked not in self._ratios:
            found = self.outcomes.get(work)
            self._ratios[asked] = found.ratio(first, second, key) if found else None
        return self._ratios[asked]

    def peers(self, work: str, key: str = RATE) -> list[Series]:
        return self.outcomes[work].peers(key) if work in self.outcomes else []

    def fastest(self, work: str, key: str = RATE) -> str | None:
        return self.outcomes[work].best_peer(key) if work in self.outcomes else None

    def leanest(self, work: str, key: str | None = None) -> str | None:
        return self.outcomes[work].least_peer(key or self.peak_key(work)) if work in self.outcomes else None

    def peak_key(self, work: str) -> str:
        found = self.outcomes.get(work)
        own = found and found.of(found.subject)
        return peak_key(own) if own else "rss_peak_kb"

    def top(self, work: str, names: Iterable[str], key: str = RATE, lowest: bool = False) -> set[str]:
        """Of these the best, and those it is not shown to be better than; nobody with too few runs."""
        found = self.outcomes[work]
        medians = {name: middle(found.of(name), key) for name in names}
        medians = {name: value for name, value in medians.items() if value is not None}
        if not medians:
            return set()
        best = (min if lowest else max)(medians, key=medians.get)
        words, better = (stats.SIZE, stats.SIZE.under) if lowest else (stats.SPEED, stats.SPEED.over)
        said = {name: stats.verdict(self.ratio(work, best, name, key), words) for name in medians if name != best}
        if stats.TOO_FEW in said.values():
            return set()
        return {best} | {name for name, word in said.items() if word != better}

    # --- losses ---

    def losses(self, key: str) -> list[Loss]:
        """Of the rate ("ops_per_s"), or of memory ("peak"): worst first. Verdicts TOO_FEW are in it if the median is
        beyond what is a difference."""
        losses = []
        for work, found in self.standard.items():
            if not self.is_compared(work, key):
                continue
            own_key = RATE if key == RATE else self.peak_key(work)
            peer = self.fastest(work) if key == RATE else self.leanest(work)
            own = found.of(found.subject)
            ratio = self.ratio(work, found.subject, peer, own_key) if peer and found.subject == SUBJECT else None
            if ratio is None:
                continue
            words, worse = (stats.SPEED, stats.SPEED.under) if key == RATE else (stats.SIZE, stats.SIZE.over)
            loss = Loss(work, self.group(work), peer, ratio, stats.verdict(ratio, words), own_key,
                        middle(own, own_key) - middle(found.of(peer), own_key))  # fmt: skip
            if loss.verdict == worse or loss.verdict == stats.TOO_FEW and loss.badness > 1 + stats.SMALLEST:
                losses.append(loss)
        return sorted(losses, key=lambda loss: -loss.badness)

    # --- profiles ---

    @functools.cached_property
    def profiled(self) -> dict[str, Outcome]:
        """The workloads that several profiles were measured on, each in the session that has most of them: it need not
        be the one that counts elsewhere."""
        names = {SUBJECT, *PROFILES, *(f"{SUBJECT}-{profile}" for profile in PROFILES)}
        seen: dict[tuple, set] = {}
        for row in self.bench:
            seen.setdefault((row.work, row.session), set()).add(row.allocator)
        rows = [row for row in self.bench if len(seen[row.work, row.session] & names) > 1]
        found = outcome.from_rows(rows, SUBJECT, is_peer, lambda _: (*names, "glibc"))
        return {work: found[work] for work in self.works if work in found and profile_names(found[work])}

    # --- sessions that disagree ---

    @functools.cached_property
    def disagreements(self) -> list[Disagreement]:
        """Among the sessions that ran the same commands on all peers of the one that counts, with runs enough."""
        rows: dict[str, dict[str, list[Row]]] = {}
        for row in self.bench:
            rows.setdefault(row.work, {}).setdefault(row.session, []).append(row)
        found = []
        for work in self.standard:
            if len(rows[work]) > 1:
                sessions = [self._outcomes(some)[work] for some in rows[work].values()]
                found += self._disagreements(work, [session for session in sessions if self._is_alike(session)])
        return found

    def _is_alike(self, session: Outcome) -> bool:
        own = self.outcomes[session.work]
        names = [own.subject, *(series.name for series in self.peers(session.work))]
        return all((series := session.of(name)) and series.command == own.of(name).command
                   and len(series.values(RATE)) >= stats.runs_needed() for name in names)  # fmt: skip

    def _disagreements(self, work: str, sessions: list[Outcome]) -> Iterable[Disagreement]:
        for key, own_key, words in (("rate", RATE, stats.SPEED), ("peak", self.peak_key(work), stats.SIZE)):
            if not self.is_compared(work, own_key):
                continue
            for peer in self.peers(work, own_key):
                said = []
                for session in sessions:
                    if found := session.ratio(session.subject, peer.name, own_key):
                        said.append((self.row_of(session.of(peer.name)), found, stats.verdict(found, words)))
                if len({verdict for *_, verdict in said} - {stats.TOO_FEW}) > 1:
                    yield Disagreement(work, key, peer.name, tuple(said))
