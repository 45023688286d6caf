"""The figures in documents: text between two marks is made from the stored rows by a template.

    <!-- figures: NAME WORD... -->
    made by templates/docs/NAME.md.j2
    <!-- end figures -->

In one line it works within a sentence: of mimalloc <!-- figures: ratio mixed mimalloc -->1.05<!-- end figures -->.

Figures are rounded here and nowhere else: 1.05, 2.4, 38. One that stands for no difference at its number of runs has an
≈ before it; one of too few runs for a verdict, a ? behind it.
"""

import pathlib
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence

from lab.judge import stats
from lab.judge.outcome import RATE
from lab.run import machine
from lab.run.allocators import PEERS, PROFILES, SUBJECT
from lab.run.workloads import GROUPS, ROWS
from lab.show import page, scorecard
from lab.show.figures import Figures, Loss, middle
from lab.store.rows import Row

MARK = re.compile(r"<!--\s*(?:figures:\s*(?P<head>[^>]*?)|(?P<end>end figures))\s*-->")
NOT_MEASURED = "not measured"
GROUPS_MAX = 6  # of the losses of one kind that are told one by one
MIB = 1024  # KiB
WIDTH = 120


# --- numbers as they stand in documents ----------------------------------------------------------------


def rounded(value: float) -> str:
    """Two decimals below 2, else two significant digits."""
    if value < 1.995:
        return f"{value:.2f}"
    return f"{value:.1f}" if value < 9.95 else f"{value:.0f}"


def show(found: stats.Ratio | None, missing: str = NOT_MEASURED) -> str:
    if found is None:
        return missing
    word = stats.verdict(found)
    return ("≈" if word == stats.SAME else "") + rounded(found.median) + ("?" if word == stats.TOO_FEW else "")


def span(ratios: Iterable[stats.Ratio | None]) -> str:
    """1.01 to 1.06: the smallest and the largest."""
    measured = sorted((found for found in ratios if found), key=lambda found: found.median)
    if not measured:
        return NOT_MEASURED
    ends = [show(measured[0]), show(measured[-1])]
    return " to ".join(dict.fromkeys(ends))


def row(ratios: Iterable[stats.Ratio | None], between: str = ", ") -> str:
    shown = [show(found) for found in ratios]
    return NOT_MEASURED if set(shown) <= {NOT_MEASURED} else between.join(shown)


class Source:
    """What the templates ask."""

    def __init__(self, rows: Sequence[Row]):
        self.figures = Figures(rows)
        self.figures.outcomes = {
            name: found for name, found in self.figures.standard.items() if found.subject == SUBJECT
        }
        self.works = [work for work in self.figures.works if self.figures.is_compared(work)]

    def best(self, work: str, key: str = RATE, first: str = SUBJECT) -> stats.Ratio | None:
        """Of the peer with the highest value."""
        peer = self.figures.fastest(work, key)
        return peer and self.figures.ratio(work, first, peer, key)

    def least(self, work: str, key: str | None = None, first: str = SUBJECT) -> stats.Ratio | None:
        """Of the peer with the lowest value; peak RSS if nothing else is said."""
        key = key or self.figures.peak_key(work)
        peer = self.figures.leanest(work, key)
        return peer and self.figures.ratio(work, first, peer, key)

    def of(self, work: str, second: str, key: str = RATE, first: str = SUBJECT) -> stats.Ratio | None:
        return self.figures.ratio(work, first, second, self.figures.peak_key(work) if key == "peak" else key)

    def value(self, work: str, key: str, name: str = SUBJECT) -> float | None:
        found = self.figures.outcomes.get(work)
        return middle(found.of(name), self.figures.peak_key(work) if key == "peak" else key) if found else None

    def goal(self, text: str) -> str:
        """What is reached of a goal, and its verdict."""
        for goal, values, word in self.figures.judged:
            if goal.text == text:
                return f"{rounded(stats.statistics.median(values))}, {word}" if values else NOT_MEASURED
        raise ValueError(f"there is no goal '{text}'")

    @property
    def missed(self) -> list[str]:
        """Every goal that is missed, in words."""
        return [
            f"{goal.text} {page.goal_value(stats.statistics.median(values), {'goal': goal.least, 'unit': goal.unit})} "
            f"({'at least' if goal.at_least else 'at most'} {goal.least:g})"
            for goal, values, word in self.figures.judged if word.startswith("missed")
        ]  # fmt: skip

    @property
    def goals_judged(self) -> int:
        return sum(bool(values) for _, values, _ in self.figures.judged)

    # --- where and how ---

    @property
    def sessions(self) -> list[dict]:
        """The sessions that most of the workloads are of, and what is worth telling of them."""
        found: dict[str, dict] = {}
        for work in self.works:
            last = self.figures.last[work]
            entry = found.setdefault(last.session, {"row": last, "line": machine.line(last), "works": [], "runs": 0})
            entry["works"].append(work)
            entry["runs"] = max(
                entry["runs"], max(len(series.results) for series in self.figures.outcomes[work].series)
            )
        return sorted(found.values(), key=lambda entry: -len(entry["works"]))

    @property
    def peers(self) -> list[str]:
        """The peers that were measured, with their versions as far as rows have them."""
        told = []
        for name in PEERS:
            rows = [found for work in self.works if (found := self.figures.row(work, name))]
            version = rows[-1].version if rows else ""
            if rows:
                told.append(f"{name} {version}" if "." in version else f"{name} (`{rows[-1].library}`)" if rows[-1].library
                            else name)  # fmt: skip
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
        return sum(self.figures.group(work) == group for work in self.works)

    # --- the matrix ---

    @property
    def names(self) -> list[str]:
        present = {series.name for found in self.figures.outcomes.values() for series in found.series if series.results}
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
    def profiles(self) -> dict[str, dict[str, str]]:
        """The workloads that several profiles were measured on: profile -> its series."""
        return {work: names for work in self.figures.works if (names := self.figures.profile_names(work))}

    def wins(self, name: str, key: str = RATE) -> list[str]:
        """The workloads where it alone is the best."""
        return [work for work in self.works if self.figures.top(
            work, self.names, self.figures.peak_key(work) if key == "peak" else key, lowest=key != RATE) == {name}]  # fmt: skip


def _environment(source: Source):
    made = page.environment(autoescape=False)
    made.globals.update(
        data=source, best=source.best, least=source.least, of=source.of, value=source.value, goal=source.goal, show=show,
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


# --- documents ------------------------------------------------------------------------------------------


def blocks(text: str, where: str) -> list[tuple[int, int, list[str]]]:
    """(begin, end, words) of the text within each pair of marks. ValueError with where:line if they do not pair."""
    found, opened = [], None
    for mark in MARK.finditer(text):
        place = f"{where}:{text.count(chr(10), 0, mark.start()) + 1}"
        if mark["end"]:
            if opened is None:
                raise ValueError(f"{place}: an end of figures without a beginning")
            found.append((opened[0], mark.start(), opened[1]))
            opened = None
        elif opened is not None:
            raise ValueError(f"{place}: figures within figures")
        elif not re.fullmatch(r"[a-z][a-z0-9-]*( \S+)*", mark["head"]):
            raise ValueError(f"{place}: '{mark['head']}' is no name of figures")
        else:
            opened = mark.end(), mark["head"].split(), place
    if opened is not None:
        raise ValueError(f"{opened[2]}: figures without an end")
    return found


def filled(text: str, render: Callable[[Sequence[str]], str], where: str) -> tuple[str, list[str]]:
    """The text with its figures made anew, and where:line of each block that differs."""
    parts, stale, last = [], [], 0
    for begin, end, words in blocks(text, where):
        line = text.count("\n", 0, begin) + 1
        try:
            made = render(words)
        except ValueError as error:
            raise ValueError(f"{where}:{line}: {error}") from None
        body = text[begin:end]
        made = f"\n{made}\n" if "\n" in body else " ".join(made.split())
        if made != body:
            stale.append(f"{where}:{line}: block '{' '.join(words)}'")
        parts += [text[last:begin], made]
        last = end
    return "".join([*parts, text[last:]]), stale


def paths(tree: pathlib.Path) -> list[pathlib.Path]:
    return [path for path in (tree / "README.md", *sorted((tree / "docs").glob("*.md"))) if path.is_file()]


def fill(tree: pathlib.Path, rows: Sequence[Row], is_check: bool = False) -> list[str]:
    """Makes the figures of all documents of the tree anew; all or none. Says which blocks were stale. is_check: changes
    nothing."""
    texts: Mapping[pathlib.Path, str] = {path: path.read_text(encoding="utf-8") for path in paths(tree)}
    if not any(MARK.search(text) for text in texts.values()):
        return []
    render, stale, changed = renderer(rows), [], {}
    for path, text in texts.items():
        made, found = filled(text, render, str(path.relative_to(tree)))
        stale += found
        if found:
            changed[path] = made
    for path, text in changed.items() if not is_check else ():
        path.write_text(text, encoding="utf-8")
    return stale
