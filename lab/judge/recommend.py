"""Which allocator to use, in one sentence, from the figures of `hak compare`. Pure: numbers in, words out.

The rule stands in docs/compare.md. In short: an allocator is recommended if it is better than the reference in one of
time, CPU time and peak RSS and worse in none; of several, the one with the least time times memory. Nobody is favoured.
"""

import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from lab.judge import stats

FAMILY_ERROR = 0.05  # of all verdicts that one sentence is made of
SMALLEST_KB = 1024  # of peak RSS: a smaller difference does not count
Values = Mapping[int, float]  # round -> value
Measured = Mapping[str, Mapping[str, Values]]  # allocator -> figure -> values


@dataclass(frozen=True)
class Figure:
    key: str
    title: str
    words: stats.Words  # of a ratio over 1 and under 1
    smallest: float = 0  # difference of the medians below which a verdict does not count


TIME = Figure("seconds", "wall time", stats.TIME)
CPU = Figure("cpu_seconds", "CPU time", stats.Words("more", "less"))
MEMORY = Figure("rss_peak_kb", "peak RSS", stats.SIZE, SMALLEST_KB)
JUDGED = (TIME, CPU, MEMORY)


@dataclass(frozen=True)
class Finding:
    """One allocator against another in one figure. counts: -1 better, 1 worse, 0 neither."""

    figure: Figure
    ratio: stats.Ratio | None
    verdict: str
    counts: int

    @property
    def spread(self) -> str:
        if self.ratio is None:
            return "-"
        low, high = (self.ratio.low, self.ratio.high) if self.verdict != stats.TOO_FEW else (
            self.ratio.minimum, self.ratio.maximum)  # fmt: skip
        return f"{low:.2f}-{high:.2f}"


@dataclass(frozen=True)
class Recommendation:
    sentence: str
    name: str | None  # None: there is no recommendation; the reference's: stay


def level(allocators: int) -> float:
    """Of each interval against the reference, so that all of them hold together with 1 - FAMILY_ERROR: so many
    allocators, each in all of JUDGED. What is computed from these intervals alone holds with them."""
    return 1 - FAMILY_ERROR / (len(JUDGED) * max(allocators, 1))


def compare(first: Mapping[str, Values], second: Mapping[str, Values], figure: Figure, level: float) -> Finding:
    """first against second, by the rounds that both have."""
    ours, theirs = first.get(figure.key, {}), second.get(figure.key, {})
    ratio = stats.ratio(ours, theirs, level)
    verdict = stats.verdict(ratio, figure.words)
    counts = {figure.words.over: 1, figure.words.under: -1}.get(verdict, 0)
    if counts and abs(statistics.median(ours.values()) - statistics.median(theirs.values())) < figure.smallest:
        counts = 0
    return Finding(figure, ratio, verdict, counts)


@dataclass(frozen=True)
class _Candidate:
    name: str
    findings: tuple[Finding, ...]  # against the reference, in the order of JUDGED

    def of(self, figure: Figure) -> Finding:
        return self.findings[JUDGED.index(figure)]

    @property
    def speed(self) -> Finding:
        """Wall time; CPU time where that makes the only difference."""
        wall, cpu = self.of(TIME), self.of(CPU)
        return cpu if cpu.counts and not wall.counts else wall

    @property
    def gains(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.counts < 0]

    @property
    def losses(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.counts > 0]

    @property
    def score(self) -> float:
        """Time times memory, against the reference; what does not count is 1."""
        speed, memory = self.speed, self.of(MEMORY)
        return (speed.ratio.median if speed.counts else 1) * (memory.ratio.median if memory.counts else 1)


def _evidence(findings: Iterable[Finding], reference: str) -> str:
    said = []
    for finding in findings:
        title, ratio = finding.figure.title, f"{finding.ratio.median:.2f} x {reference}'s ({finding.spread})"
        if finding.counts:
            said.append(f"{title} {ratio}")
        elif finding.verdict == stats.SAME:
            said.append(f"no difference in {title}, {ratio}")
        else:
            said.append(f"{title} {ratio}, less than {finding.figure.smallest / 1024:g} MiB apart")
    return ", ".join(said)


def _price(candidate: _Candidate, of: Figure, reference: str) -> str:
    """What a gain of the candidate costs."""
    if candidate.losses:
        return f"but {_evidence(candidate.losses, reference)}"
    if of is MEMORY:
        return "and faster" if candidate.speed.counts else "and not slower"
    return "and smaller" if candidate.of(MEMORY).counts else "and not larger"


def _least(candidates: Iterable[_Candidate], figure: Figure) -> _Candidate | None:
    """The one with the least of a figure, among those that gain in it."""
    gaining = [candidate for candidate in candidates if candidate.of(figure).counts < 0]
    return min(gaining, key=lambda candidate: candidate.of(figure).ratio.median, default=None)


def _others(candidates: list[_Candidate], reference: str, beats: Callable[[_Candidate, Figure], bool]) -> list[str]:
    """The fastest (least CPU time, if all take the same time) and the smallest, where `beats` says they go further."""
    speed = TIME if _least(candidates, TIME) else CPU
    said = []
    for figure, word in ((speed, "fastest" if speed is TIME else "cheapest"), (MEMORY, "smallest")):
        found = _least(candidates, figure)
        if found and beats(found, figure):
            evidence = _evidence([found.of(figure)], reference)
            said.append(f"{found.name} is {word}, {evidence}, {_price(found, figure, reference)}")
    return said


def recommend(measured: Measured, reference: str, compared: int | None = None) -> Recommendation:
    """One sentence about the allocators of `measured`, whose names are all those that ran without a fault. compared:
    how many a verdict is printed of; more, if one of them failed."""
    names = [name for name in measured if name != reference]
    if reference not in measured:
        return Recommendation(f"no recommendation: {reference} was not measured", None)
    if not names:
        return Recommendation(f"stay with {reference}: no other allocator ran the program", reference)
    compared = max(compared or 0, len(names))
    at = level(compared)
    candidates = [_Candidate(name, tuple(compare(measured[name], measured[reference], figure, at) for figure in JUDGED))
                  for name in names]  # fmt: skip
    n = min((finding.ratio.n if finding.ratio else 0) for candidate in candidates for finding in candidate.findings)
    if n < stats.runs_needed(at):
        return Recommendation(
            f"no recommendation: n = {n} is too few for {len(JUDGED)} figures of {compared} allocator{'s' * (compared > 1)}; "
            f"{stats.runs_needed(at)} rounds at least, more if some runs are odd",
            None,
        )
    basis = f"n = {n}, intervals at {at:.1%} each"
    clean = [candidate for candidate in candidates if candidate.gains and not candidate.losses]
    if not clean:
        trades = _others(candidates, reference, lambda *_: True)
        if trades:
            return Recommendation(f"stay with {reference} unless one figure is all that counts: {'; '.join(trades)}; "
                                  f"{basis}", reference)  # fmt: skip
        return Recommendation(
            f"stay with {reference}: no allocator is faster or smaller at this n ({basis})", reference
        )

    pick = min(clean, key=lambda candidate: candidate.score)
    parts = [f"use {pick.name}: {_evidence(sorted(pick.findings, key=lambda found: found.counts), reference)}"]

    def is_less(first: _Candidate, second: _Candidate, figure: Figure) -> bool:
        # By their intervals against the reference: one of the two to each other would be a verdict more.
        medians = [statistics.median(measured[of.name][figure.key].values()) for of in (first, second)]
        return (first.of(figure).ratio.high * (1 + stats.SMALLEST) < second.of(figure).ratio.low
                and medians[1] - medians[0] >= figure.smallest)  # fmt: skip

    equal = [other.name for other in clean
             if other != pick and not any(is_less(*pair, figure) for figure in JUDGED
                                          for pair in ((other, pick), (pick, other)))]  # fmt: skip
    if equal:
        parts.append(f"{', '.join(equal)} cannot be told apart from it")
    parts += _others(candidates, reference, lambda candidate, figure: is_less(candidate, pick, figure))
    return Recommendation("; ".join([*parts, basis]), pick.name)
