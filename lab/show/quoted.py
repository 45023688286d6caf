"""What documents quote of the stored rows: the templates of templates/docs ask a Source.

Figures are rounded here and nowhere else: 1.05, 2.4, 38. One that stands for no difference at its number of runs has an
≈ before it; one of too few runs for a verdict, a ? behind it; one to the best of some of the peers only, a *.
"""

import functools
import statistics
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from lab.judge import policy, stats
from lab.judge.outcome import RATE, Outcome
from lab.run import huge_pages, machine
from lab.run.allocators import PEERS, PROFILES, SUBJECT
from lab.run.workloads import GROUPS, LOOKED_INTO, OPTIONS, ROWS, UNDER_HUGE_PAGES
from lab.show import page, scorecard
from lab.show.figures import Figures, Loss, profile_names
from lab.show.tables import middle
from lab.store.rows import Row

NOT_MEASURED = "not measured"
GROUPS_MAX = 6  # of the losses of one kind that are told one by one
MIB = 1024  # KiB
# What `idle` says of the time after the frees: kind, field.
IDLE = (("before", "rss_before_kb"), ("after_1s", "rss_1s_kb"), ("after_10s", "rss_10s_kb"))
WIDTH = 120


def rounded(value: float) -> str:
    """Two decimals below 2, else two significant digits."""
    if value < 1.995:
        return f"{value:.2f}"
    return f"{value:.1f}" if value < 9.95 else f"{value:.0f}"


def show(found: stats.Ratio | None, missing: str = NOT_MEASURED) -> str:
    if found is None:
        return missing
    word = stats.verdict(found)
    marks = ("?" if word == stats.TOO_FEW else "") + ("\\*" if getattr(found, "missing", ()) else "")
    return ("≈" if word == stats.SAME else "") + rounded(found.median) + marks


def span(ratios: Iterable[stats.Ratio | None]) -> str:
    """1.01 to 1.06: the smallest and the largest; how many were measured, if not all."""
    ratios = list(ratios)
    measured = sorted((found for found in ratios if found), key=lambda found: found.median)
    if not measured:
        return NOT_MEASURED
    ends = " to ".join(dict.fromkeys([show(measured[0]), show(measured[-1])]))
    return ends if len(measured) == len(ratios) else f"{ends} ({len(measured)} of {len(ratios)} measured)"


@dataclass(frozen=True)
class OfBest(stats.Ratio):
    """To the best of the peers that were measured."""

    missing: tuple[str, ...] = ()  # the others


def row(ratios: Iterable[stats.Ratio | None], between: str = ", ") -> str:
    shown = [show(found) for found in ratios]
    return NOT_MEASURED if set(shown) <= {NOT_MEASURED} else between.join(shown)


class Source:
    """What the templates ask."""

    def __init__(self, rows: Sequence[Row]):
        self.figures = Figures(rows)
        self.outcomes = {name: found for name, found in self.figures.standard.items() if found.subject == SUBJECT}
        self.rated = [work for work in self.outcomes if self.figures.is_compared(work)]
        self.sized = [work for work in self.outcomes if self.figures.is_compared(work, "peak")]
        self.works = [work for work in self.outcomes if work in {*self.rated, *self.sized}]

    def _of_best(self, work: str, first: str, peer: str | None, key: str) -> OfBest | None:
        found = self.figures.ratio(work, first, peer, key) if peer and work in self.outcomes else None
        return found and OfBest(**vars(found), missing=tuple(self.figures.peers_missing(work)))

    def best(self, work: str, key: str = RATE, first: str = SUBJECT) -> OfBest | None:
        """Of the peer with the highest value."""
        return self._of_best(work, first, self.figures.fastest(work, key), key)

    def least(self, work: str, key: str | None = None, first: str = SUBJECT) -> OfBest | None:
        """Of the peer with the lowest value; peak RSS if nothing else is said."""
        key = key or self.figures.peak_key(work)
        return self._of_best(work, first, self.figures.leanest(work, key), key)

    def of(self, work: str, second: str, key: str = RATE, first: str = SUBJECT) -> stats.Ratio | None:
        key = self.figures.peak_key(work) if key == "peak" else key
        return self.figures.ratio(work, first, second, key) if work in self.outcomes else None

    def value(self, work: str, key: str, name: str = SUBJECT) -> float | None:
        found = self.outcomes.get(work)
        return middle(found.of(name), self.figures.peak_key(work) if key == "peak" else key) if found else None

    def goal(self, text: str) -> str:
        """What is reached of a goal, and its verdict."""
        for goal, values, word in self.figures.judged:
            if goal.text == text:
                asked = f"goal: at {'least' if goal.at_least else 'most'} {goal.least:g}, {word}"
                return f"{rounded(statistics.median(values))} ({asked})" if values else NOT_MEASURED
        raise ValueError(f"there is no goal '{text}'")

    @property
    def missed(self) -> list[str]:
        """Every goal that is missed, in words."""
        return [
            f"{goal.text} {page.goal_value(statistics.median(values), {'goal': goal.least, 'unit': goal.unit})} "
            f"({'at least' if goal.at_least else 'at most'} {goal.least:g})"
            for goal, values, word in self.figures.judged if word.startswith("missed")
        ]  # fmt: skip

    @property
    def goals_judged(self) -> int:
        return sum(bool(values) for _, values, _ in self.figures.judged)

    # --- the policy engine ---

    @functools.cached_property
    def policy_rows(self) -> list[Row]:
        return [row for row in self.figures.others if row.kind == "policy" and not row.is_tiny]

    @functools.cached_property
    def policy(self) -> policy.Found:
        return policy.from_rows(self.policy_rows)

    @property
    def policy_line(self) -> str:
        return self._measured([row for row in self.policy_rows if row.allocator in policy.MODES])

    def policy_ratio(self, outcome: Outcome, mode: str, key: str) -> str:
        """Of off's: the median, and the smallest to the largest."""
        found = sorted(outcome.quotients(mode, policy.OFF, key).values())
        return f"{statistics.median(found):.2f} ({found[0]:.2f}-{found[-1]:.2f})" if found else NOT_MEASURED

    # --- misuse of the heap ---

    @functools.cached_property
    def security_rows(self) -> list[Row]:
        """Of the last session."""
        rows = [row for row in self.figures.others if row.kind == "security" and not row.is_tiny]
        return [row for row in rows if row.session == rows[-1].session]

    @property
    def security_line(self) -> str:
        return self._measured(self.security_rows[-1:])

    @property
    def security(self) -> list[dict]:
        """Of each allocator what it did not notice, and its rate, of hakmem's; the fewest first."""
        rates: dict[str, dict[int, float]] = {}
        for row in self.security_rows:
            if RATE in row.result:
                rates.setdefault(row.allocator, {})[row.run] = row.result[RATE]
        told = []
        for row in self.security_rows:
            if "not_caught" not in row.result:
                continue
            ours, own = rates.get(SUBJECT, {}), rates.get(row.allocator, {})
            quotients = [own[run] / ours[run] for run in own if run in ours]
            told.append(row.result | {"name": row.allocator, "version": row.version,
                                      "rate": rounded(statistics.median(quotients)) if quotients else "-"})  # fmt: skip
        return sorted(told, key=lambda entry: entry["not_caught"])

    # --- where and how ---

    @property
    def sessions(self) -> list[dict]:
        """Where and when, one entry a machine: its line, the workloads, the runs of each, the commits."""
        found: dict[str, dict] = {}
        for work in self.works:
            last = self.figures.last[work]
            where = machine.line(last).rpartition(", commit ")[0]
            entry = found.setdefault(where, {"line": where, "works": [], "runs": [], "dates": [], "commits": []})
            entry["works"].append(work)
            entry["runs"].append(max(len(series.results) for series in self.outcomes[work].series))
            entry["dates"].append(last.time.date().isoformat())
            if last.commit not in entry["commits"]:
                entry["commits"].append(last.commit)
        return sorted(found.values(), key=lambda entry: -len(entry["works"]))

    @property
    def absent(self) -> list[str]:
        """The peers that no workload was measured on."""
        return [name for name in PEERS if all(name in self.figures.peers_missing(work) for work in self.works)]

    @property
    def partial(self) -> dict[str, list[str]]:
        """The peers that only some workloads were measured on -> the others."""
        found: dict[str, list[str]] = {}
        absent = self.absent
        for work in self.works:
            if names := [name for name in self.figures.peers_missing(work) if name not in absent]:
                found.setdefault(", ".join(names), []).append(work)
        return found

    @property
    def peers(self) -> list[str]:
        """The peers that were measured, with their versions; what stands behind .so in a file's name is none."""
        told = []
        for name in PEERS:
            rows = [found for work in self.works if (found := self.figures.row(work, name))]
            if not rows:
                continue
            library, version = rows[-1].library or "", rows[-1].version
            is_version = "." in version and not (".so." in library and library.split(".so.")[1][:1] == version[:1])
            told.append(f"{name} {version}" if is_version else f"{name} (`{library}`)" if library else name)
        return told

    # --- losses ---

    def rate_losses(self, known: bool = True) -> list[Loss]:
        """Worst first. known: with a verdict; else those with too few runs for one."""
        return [loss for loss in self.figures.losses(RATE) if (loss.verdict != stats.TOO_FEW) == known]

    def memory_losses(self, known: bool = True) -> list[list[Loss]]:
        """By group of workloads, the group with the worst first, in each the worst first."""
        groups: dict[str, list[Loss]] = {}
        for loss in self.figures.losses("peak"):
            if (loss.verdict != stats.TOO_FEW) == known:
                groups.setdefault(loss.group, []).append(loss)
        return list(groups.values())

    def group_size(self, group: str) -> int:
        return sum(self.figures.group(work) == group for work in self.sized)

    # --- the matrix ---

    @property
    def names(self) -> list[str]:
        present = {series.name for found in self.outcomes.values() for series in found.series if series.results}
        return [name for name in (SUBJECT, *PEERS) if name in present]

    def cells(self, work: str, key: str = RATE) -> dict[str, str]:
        """Each allocator of glibc's, or where that is missing of hakmem's; bold: the best and who is not shown to be
        worse than it."""
        found, key = self.figures.outcomes[work], self.figures.peak_key(work) if key == "peak" else key
        base = "glibc" if self.value(work, key, "glibc") else SUBJECT
        top = self.figures.top(work, self.names, key, lowest=key != RATE)
        told = {}
        for name in self.names:
            series = found.of(name)
            if series is None or not series.values(key):
                told[name] = "-"
                continue
            shown = "1" if name == base else show(self.figures.ratio(work, name, base, key))
            told[name] = f"**{shown}**" if name in top else shown
        return told

    @property
    def inside(self) -> dict | None:
        """What looking inside costs: of each way the rate of off's, and the peak."""
        found = self.figures.outcomes.get("inside")
        if found is None or found.of("off") is None:
            return None
        names = [name for name in LOOKED_INTO if found.of(name) and found.of(name).results]
        rows = [{"name": name, "rate": "1" if name == "off" else show(found.ratio(name, "off")),
                 "peak": middle(found.of(name), "rss_peak_kb")} for name in names]  # fmt: skip
        return {"command": found.of("off").command, "rows": rows}

    @property
    def profiled(self) -> dict[str, Outcome]:
        """Without those that are shown by themselves."""
        return {work: found for work, found in self.figures.profiled.items()
                if self.figures.group(work) not in ("options", "thp")}  # fmt: skip

    @property
    def profiles(self) -> list[dict]:
        """The workloads that several profiles were measured on: of each the rates of glibc's, those of real programs by
        CPU time, and what is resident at the peak and afterwards."""
        told = []
        for work, found in self.profiled.items():
            names, key = profile_names(found), self.figures.peak_key(work)
            is_app = work in ROWS and ROWS[work].is_app
            told.append({
                "command": work if is_app else found.of(next(iter(names.values()))).command, "work": work,
                "rates": {profile: show(found.ratio("glibc", name, "cpu_seconds") if is_app else found.ratio(name, "glibc"))
                          for profile, name in names.items()},
                **{kind: {profile: middle(found.of(name), field) for profile, name in (("glibc", "glibc"), *names.items())}
                   for kind, field in (("peaks", key), ("afterwards", "rss_kb"), *IDLE)},
            })  # fmt: skip
        return told

    @property
    def profiles_line(self) -> str:
        return self._measured([self.figures.row_of(found.series[0]) for found in self.profiled.values()])

    @staticmethod
    def _measured(rows: Sequence[Row]) -> str:
        """How often, when, where and on which commit."""
        told = sorted({f"{row.n} runs in turns, {row.time.date().isoformat()}: {machine.line(row)}" for row in rows})
        return "; ".join(told)

    @property
    def options(self) -> dict | None:
        """Options beside each other: of each work the rates and the peaks, of the default's."""
        outcomes = self.figures.outcomes
        works = [work for work in outcomes if self.figures.group(work) == "options" and outcomes[work].of("default")]
        if not works:
            return None
        names = [name for name in OPTIONS if name != "default"]
        return {
            "works": [work.removeprefix("options-") for work in works],
            "rows": [{"name": name, "cells": [{"rate": show(outcomes[work].ratio(name, "default")),
                                               "peak": show(outcomes[work].ratio(name, "default", "rss_peak_kb"))}
                                              for work in works]} for name in names],
            "line": self._measured([self.figures.last[work] for work in works]),
        }  # fmt: skip

    @property
    def heaps(self) -> dict | None:
        """malloc and free beside a hak_heap's."""
        found = self.figures.outcomes.get("heaps")
        if found is None or found.of(SUBJECT) is None:
            return None
        return {
            "rates": {name: show(found.ratio(name, SUBJECT)) for name in ("heap", "heap-free", "heap-default")},
            "destroy_ms": middle(found.of("heap"), "destroy_ms") if found.of("heap") else None,
            "line": self._measured([self.figures.last["heaps"]]),
        }

    @property
    def huge_pages(self) -> dict | None:
        """Peaks under each of the system's settings: of the subject, of glibc, and of the leanest peer."""
        rows = []
        for word in huge_pages.WORDS:
            for name, _ in UNDER_HUGE_PAGES:
                work = f"thp-{word}-{name}"
                if work in self.outcomes:
                    least = self.figures.leanest(work)
                    rows.append({"setting": word, "name": name, "own": self.value(work, "peak"),
                                 "glibc": self.value(work, "peak", "glibc"), "leanest": least,
                                 "least": self.value(work, "peak", least) if least else None})  # fmt: skip
        last = [self.figures.last[work] for work in self.outcomes if self.figures.group(work) == "thp"]
        return {"rows": rows, "line": self._measured(last)} if rows else None

    def wins(self, name: str, key: str = RATE) -> list[str]:
        """The workloads that all peers were measured on, where it alone is the best."""
        return [work for work in (self.rated if key == RATE else self.sized)
                if not self.figures.peers_missing(work) and self.figures.top(
                    work, self.names, self.figures.peak_key(work) if key == "peak" else key, lowest=key != RATE) == {name}]  # fmt: skip


def _environment(source: Source):
    made = page.environment(autoescape=False)
    made.globals.update(
        data=source, policy=policy, best=source.best, least=source.least, of=source.of, value=source.value, goal=source.goal, show=show,
        span=span, row=row, rounded=rounded, rows_table=ROWS, GROUPS=GROUPS, PROFILES=PROFILES, peers=PEERS,
        command=scorecard.COMMAND, too_few=stats.TOO_FEW, groups_max=GROUPS_MAX, level=stats.LEVEL,
        missing=NOT_MEASURED, runs_needed=stats.runs_needed(),
    )  # fmt: skip
    made.filters.update(
        mib=lambda kb: NOT_MEASURED if kb is None else f"{kb / MIB:,.1f}", best_of=source.best, least_of=source.least,
        mimalloc_of=lambda work: source.of(work, "mimalloc"))  # fmt: skip
    return made


def wrapped(text: str) -> str:
    """Paragraphs and points in lines of the usual length; tables and headings as they are."""

    def lines():
        paragraph: list[str] = []
        for line in [*text.splitlines(), ""]:
            if paragraph and (not line.strip() or line.startswith(("|", "#", "- "))):
                yield from textwrap.wrap(" ".join(paragraph), WIDTH, break_long_words=False, break_on_hyphens=False,
                                         subsequent_indent="  " if paragraph[0].startswith("- ") else "")  # fmt: skip
                paragraph = []
            if line.strip() and not line.startswith(("|", "#")):
                paragraph.append(line.strip())
            else:
                yield line.rstrip()

    return "\n".join(lines()).strip()


def renderer(rows: Sequence[Row]) -> Callable[[Sequence[str]], str]:
    """words of a mark -> its text. ValueError if there is no such template or it cannot do with these words."""
    import jinja2

    source = Source(rows)
    made = _environment(source)

    def render(words: Sequence[str]) -> str:
        try:
            template = made.get_template(f"docs/{words[0]}.md.j2")
        except jinja2.TemplateNotFound:
            raise ValueError(f"there are no figures '{words[0]}'") from None
        try:
            return wrapped(template.render(words=list(words[1:])).strip())
        except jinja2.UndefinedError as error:
            raise ValueError(f"figures '{' '.join(words)}': {error}") from None

    return render
