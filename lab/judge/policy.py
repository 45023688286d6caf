"""What learning is worth: modelled costs of strategies by workload, recovery after a turn, and the goals. Pure."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from lab.judge import stats
from lab.judge.outcome import Outcome
from lab.judge.outcome import from_rows as outcomes_of

OFF, NOTHING, FILE = MODES = ("off", "evolving", "from file")
MODELLED = "modelled"
WITHIN = 1.10  # a window's cost is back when it is this much of the best fixed strategy's
WINDOW = 48  # events

MEAN_NOTHING, MEAN_FILE, AGAINST_ONE = 1.10, 1.03, 0.90
WALL, AREA = "seconds", "rss_ms_kb"
WALL_MOST, AREA_MOST = 1.03, 1.05
RECOVERY_EVENTS = 50
LARGE_MOST = 1.01
LARGE_ROW, SMALL_ROW = "large_mix", "mixed"


# In a stored row: before a strategy's name; before what is about streams as long as the measured runs.
FIXED, SHORT = "fixed_", "short_"


@dataclass(frozen=True)
class Costs:
    """Of one workload, in nanoseconds of modelled cost."""

    work: str
    fixed: Mapping[str, float]  # by strategy: had it alone decided
    nothing: float  # evolving, without a file
    file: float | None  # the same, with what the first run has learned
    best_of_arm: float  # had the best fixed one of each site and size range decided there
    events: int = 0
    arms: int = 0
    matches: int = 0
    switches: int = 0
    is_counted: bool = True  # in means and goals

    @classmethod
    def of_result(cls, work: str, result: Mapping) -> "Costs":
        """Of what `result` gave."""
        plain = {key: value for key, value in result.items() if key in cls.__dataclass_fields__}
        fixed = {key.removeprefix(FIXED): value for key, value in result.items() if key.startswith(FIXED)}
        return cls(work, fixed, **plain)

    @property
    def result(self) -> dict:
        """For a stored row."""
        names = ("nothing", "file", "best_of_arm", "events", "arms", "matches", "switches", "is_counted")
        return {FIXED + name: cost for name, cost in self.fixed.items()} | {name: getattr(self, name) for name in names}

    @property
    def best(self) -> str:
        return min(self.fixed, key=lambda name: self.fixed[name])

    def relative(self, cost: float | None) -> float | None:
        """To the best fixed strategy; None where that costs nothing, as where nothing large is freed."""
        least = self.fixed[self.best]
        return None if cost is None or least <= 0 else cost / least

    @property
    def is_compared(self) -> bool:
        """Does every strategy cost something here, so that geometric means can hold it?"""
        return min(*self.fixed.values(), self.nothing, math.inf if self.file is None else self.file) > 0


@dataclass(frozen=True)
class Means:
    """Geometric means over the workloads, relative to the best fixed strategy of each."""

    works: int
    fixed: Mapping[str, float]
    nothing: float
    file: float | None

    @property
    def one(self) -> str:
        """The best single fixed strategy for all workloads."""
        return min(self.fixed, key=lambda name: self.fixed[name])

    @property
    def nothing_against_one(self) -> float:
        return self.nothing / self.fixed[self.one]

    @property
    def file_against_one(self) -> float | None:
        return None if self.file is None else self.file / self.fixed[self.one]


def means(costs: Sequence[Costs]) -> Means | None:
    counted = [each for each in costs if each.is_compared and each.is_counted]
    if not counted:
        return None

    def mean(values):
        found = [each.relative(value) for each, value in zip(counted, values, strict=True)]
        return None if None in found else stats.geometric_mean(found)

    names = [name for name in counted[0].fixed if all(name in each.fixed for each in counted)]
    return Means(
        works=len(counted),
        fixed={name: mean([each.fixed[name] for each in counted]) for name in names},
        nothing=mean([each.nothing for each in counted]),
        file=mean([each.file for each in counted]),
    )


@dataclass(frozen=True)
class Step:
    """Costs so far, after `event` events."""

    event: int
    evolving: float
    fixed: Mapping[str, float]


def recovery(steps: Sequence[Step], turns: Sequence[int], window: int = WINDOW) -> list[int | None]:
    """After each turn: the events until the cost of a window, and of all that follows up to the next turn, is at most
    WITHIN times that of the strategy that is the best there; None: that does not come, or there is no whole window.
    steps: one an event."""
    by_event = {step.event: step for step in steps}

    def is_back(start: int, end: int) -> bool:
        before, after = by_event[start], by_event[end]
        best = min(after.fixed[name] - before.fixed[name] for name in after.fixed)
        return after.evolving - before.evolving <= WITHIN * best

    ends = [*turns[1:], max(by_event, default=0)]
    return [
        next((start - turn for start in range(turn, end - window + 1)
              if is_back(start, start + window) and is_back(start, end)), None)
        for turn, end in zip(turns, ends, strict=True)
    ]  # fmt: skip


@dataclass
class Found:
    """What is known, of a run that goes on or of stored rows."""

    costs: list[Costs] = field(default_factory=list)
    short: list[Costs] = field(default_factory=list)  # of streams as long as what is measured
    recovered: list[int | None] | None = None
    measured: list[Outcome] = field(default_factory=list)
    overheads: dict[str, Outcome] = field(default_factory=dict)

    def measured_of(self, work: str) -> Outcome | None:
        return next((found for found in self.measured if found.work == work), None)

    @property
    def goals(self) -> "list[Goal]":
        return goals(self.costs, self.recovered, self.measured, self.overheads)


NEVER = -1  # in a stored row: there was no recovery


def stored(events: Sequence[int | None]) -> list[int]:
    return [NEVER if count is None else count for count in events]


def from_rows(rows: Iterable) -> Found:
    """Of rows of kind "policy": what was modelled and what was measured may be of different sessions."""
    rows, found = list(rows), Found()
    modelled = outcomes_of([row for row in rows if row.allocator == MODELLED], MODELLED, lambda _: False)
    for work, each in modelled.items():
        result = each.of(MODELLED).results[1]
        found.costs.append(Costs.of_result(work, result))
        short = {key.removeprefix(SHORT): value for key, value in result.items() if key.startswith(SHORT)}
        if short:
            found.short.append(Costs.of_result(work, short))
        if "recovered" in result:
            found.recovered = [None if count == NEVER else count for count in result["recovered"]]
    timed = outcomes_of([row for row in rows if row.allocator in MODES], NOTHING, lambda _: False, lambda _: MODES)
    found.overheads = {name: timed[name] for name in (LARGE_ROW, SMALL_ROW) if name in timed}
    found.measured = [each for name, each in timed.items() if name not in found.overheads]
    return found


@dataclass(frozen=True)
class Goal:
    text: str
    reached: str
    wanted: str
    word: str  # met, missed, "not measured", or one of the first two and a doubt

    @property
    def is_met(self) -> bool:
        return self.word.startswith("met")

    @property
    def is_missed(self) -> bool:
        return self.word.startswith("missed")


NOT_MEASURED = "not measured"


def _at_most(text: str, value: float | None, most: float) -> Goal:
    wanted = f"<= {most:.2f}"
    if value is None:
        return Goal(text, "", wanted, NOT_MEASURED)
    return Goal(text, f"{value:.3f}", wanted, "met" if value <= most else "missed")


def _worst(text: str, outcomes: Sequence[Outcome], key: str, most: float) -> Goal:
    """On no workload, evolving with a file or without, more than `most` times what it is with the engine off."""
    wanted, found = f"<= {most:.2f}", []
    for outcome in outcomes:
        for mode in (NOTHING, FILE):
            if ratios := outcome.quotients(mode, OFF, key):
                values = list(ratios.values())
                found.append((median(values), outcome.work, mode, stats.against_goal(values, most, at_least=False)))
    if not found:
        return Goal(text, "", wanted, NOT_MEASURED)
    worst, work, mode, word = max(found)
    missed = [other for *_, other in found if other.startswith("missed")]
    if missed:
        word = next((other for other in missed if other == "missed"), missed[0])
    count = f"; {len(missed)} of {len(found)} over" if missed else ""
    return Goal(text, f"{worst:.3f} ({work}, {mode}{count})", wanted, word)


def _recovered(found: Sequence[int | None] | None) -> Goal:
    text = f"after a turn, a window of {WINDOW} events within {WITHIN:.2f} x the best fixed"
    wanted = f"<= {RECOVERY_EVENTS} events"
    if not found:
        return Goal(text, "", wanted, NOT_MEASURED)
    words = ", ".join("not" if events is None else str(events) for events in found)
    is_met = all(events is not None and events <= RECOVERY_EVENTS for events in found)
    return Goal(text, f"after {words}", wanted, "met" if is_met else "missed")


def _overhead(outcome: Outcome | None, text: str, most: float | None) -> Goal:
    """most: of the time of the same work without the engine; None: a difference must not be seen at all."""
    wanted = "no difference" if most is None else f"<= {most:.2f}"
    times = [1 / rate for rate in outcome.quotients(NOTHING, OFF).values()] if outcome else []
    if not times:
        return Goal(text, "", wanted, NOT_MEASURED)
    found = stats.of_ratios(times)
    reached = f"{found.median:.3f} ({found.low:.3f}-{found.high:.3f})" if math.isfinite(found.high) else (
        f"{found.median:.3f} (?)")  # fmt: skip
    if most is not None:
        return Goal(text, reached, wanted, stats.against_goal(times, most, at_least=False))
    word = stats.verdict(found, stats.TIME)
    if word == stats.TOO_FEW:
        return Goal(text, reached, wanted, f"{'met' if found.median <= 1 + stats.SMALLEST else 'missed'}, {word}")
    return Goal(text, reached, wanted, "missed" if word == stats.TIME.over else "met")


def goals(costs: Sequence[Costs], recovered: Sequence[int | None] | None, measured: Sequence[Outcome],
          overheads: Mapping[str, Outcome]) -> list[Goal]:  # fmt: skip
    mean = means(costs)
    return [
        _at_most("cost, from nothing / best fixed of each workload", mean and mean.nothing, MEAN_NOTHING),
        _at_most("cost, from a file / best fixed of each workload", mean and mean.file, MEAN_FILE),
        _at_most("cost, from nothing / best single fixed", mean and mean.nothing_against_one, AGAINST_ONE),
        _at_most("cost, from a file / best single fixed", mean and mean.file_against_one, AGAINST_ONE),
        _worst("wall time / off, worst workload", measured, WALL, WALL_MOST),
        _worst("RSS x time / off, worst workload", measured, AREA, AREA_MOST),
        _recovered(recovered),
        _overhead(overheads.get(LARGE_ROW), f"time of {LARGE_ROW} / off", LARGE_MOST),
        _overhead(overheads.get(SMALL_ROW), "time of random_mixed / off", None),
        Goal("memory of the engine at 100,000 sites", "", "<= 1 MiB", "tests/unit shows it"),
    ]


def verdict(found: Sequence[Goal]) -> str:
    """Which goals are met, in one sentence."""
    judged = [goal for goal in found if goal.is_met or goal.is_missed]
    missed = [goal.text for goal in judged if goal.is_missed]
    if not judged:
        return "no goal was measured"
    said = f"goals met: {len(judged) - len(missed)} of {len(judged)}"
    return f"{said}; missed: {'; '.join(missed)}" if missed else said
