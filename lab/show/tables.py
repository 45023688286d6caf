"""Tables for people, made with rich. What is computed is in lab/judge."""

import contextlib
import shutil
import sys
from statistics import median

from rich import box
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from lab.judge import stats
from lab.judge.outcome import RATE, Outcome, Series
from lab.run import goals
from lab.run.workloads import ROWS

WIDTH = 200  # at least: a table is rather wrapped by the terminal than cut


def console(to_stderr: bool = False) -> Console:
    stream = sys.stderr if to_stderr else sys.stdout
    return Console(file=stream, highlight=False, width=max(WIDTH, shutil.get_terminal_size().columns))


def table(*columns: str, title: str | None = None) -> Table:
    """A table whose first column is text and whose others are numbers."""
    made = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold", pad_edge=False)
    for i, column in enumerate(columns):
        made.add_column(column, justify="right" if i else "left", no_wrap=True)
    return made


# --- numbers -----------------------------------------------------------------------------------------

SCALES = ((1e9, "G"), (1e6, "M"), (1e3, "K"), (1.0, ""))


def scale(value: float) -> tuple[float, str]:
    return next(((size, letter) for size, letter in SCALES if value >= size), (1.0, ""))


def number(value: float, digits: int = 4) -> str:
    """With that many significant digits, never in powers of ten."""
    if value == 0:
        return "0"
    shown = f"{value:.{digits}g}"
    return f"{value:.0f}" if "e" in shown and abs(value) >= 1 else shown


def rate(value: float) -> str:
    size, letter = scale(value)
    return f"{number(value / size)} {letter}/s"


def ratio(found: stats.Ratio | None, digits: int = 2) -> str:
    """0.97 (0.95-0.99): the median of the pairs and its interval; ? where there are too few runs for one."""
    if found is None:
        return ""
    if stats.verdict(found) == stats.TOO_FEW:
        return f"{found.median:.{digits}f} (?)"
    return f"{found.median:.{digits}f} ({found.low:.{digits}f}-{found.high:.{digits}f})"


STYLES = {"faster": "green", "smaller": "green", "slower": "red", "larger": "red", "fewer": "green", "more": "red"}


def verdict(found: stats.Ratio | None, words: stats.Words) -> Text:
    if found is None:
        return Text("")
    word = stats.verdict(found, words)
    return Text(word, style=STYLES.get(word, ""))


# --- a workload --------------------------------------------------------------------------------------


def peak_key(series: Series) -> str:
    return "child_rss_peak_kb" if series.values("child_rss_peak_kb") else "rss_peak_kb"


def middle(series: Series | None, key: str) -> float | None:
    values = series.values(key).values() if series else None
    return median(values) if values else None


def _mib(kb: float | None) -> str:
    return "" if kb is None else f"{kb / 1024:.1f}"


def by_rate(outcome: Outcome) -> list[Series]:
    """The measured series: the subject first, the rest by rate."""
    measured = [series for series in outcome.series if series.values(RATE)]
    return sorted(measured, key=lambda series: (series.name != outcome.subject, -middle(series, RATE)))


def speed_table(outcome: Outcome) -> Table:
    series_all, subject, best = by_rate(outcome), outcome.subject, outcome.best_peer()
    size, letter = scale(middle(series_all[0], RATE))
    made = table("", f"{letter}/s, median", f"{stats.SUMMARY_LEVEL:.0%} of it", "mean", "stdev", "CV %", "min", "max",
                 f"{subject} / it", f"{subject} is")  # fmt: skip
    for series in series_all:
        found = stats.summarize(value / size for value in series.values(RATE).values())
        quotient = outcome.ratio(subject, series.name)
        made.add_row(
            series.name + (" *" if series.name == best else ""), number(found.median),
            f"{number(found.low)}-{number(found.high)}", number(found.mean), number(found.stdev, 2),
            f"{100 * found.cv:.1f}", number(found.minimum), number(found.maximum), ratio(quotient),
            verdict(quotient, stats.SPEED))  # fmt: skip
    return made


def _shown(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def memory_table(outcome: Outcome, shows=()) -> Table:
    subject = outcome.subject
    heads = ["", "CPU s", "peak RSS MiB", f"{subject} / it", f"{subject} is", "RSS at end", "of live", "faults"]
    made = table(*heads, "system calls", "own", "a 1000 ops", *shows)
    for series in by_rate(outcome):
        peak = peak_key(series)
        quotient = outcome.ratio(subject, series.name, peak)
        calls, operations = middle(series, "system_calls"), middle(series, "operations")
        each = None if calls is None or not operations else 1000 * calls / operations
        made.add_row(
            series.name,
            _shown(middle(series, "cpu_seconds"), ".3f"),
            _mib(middle(series, peak)),
            ratio(quotient),
            verdict(quotient, stats.SIZE),
            _mib(middle(series, "rss_kb")),
            _shown(middle(series, "peak_over_live") or middle(series, "rss_over_live"), ".2f"),
            _shown(middle(series, "faults_minor"), ".0f"),
            _shown(calls, ".0f"),
            _shown(middle(series, "calls_own"), ".0f"),
            "" if each is None else number(each, 3),
            *("" if (value := middle(series, key)) is None else number(value) for key in shows),
        )
    return made


def outcome_tables(outcome: Outcome, shows=(), note: str = "") -> Group:
    measured = by_rate(outcome)
    runs = max((len(series.results) for series in measured), default=0)
    command = outcome.series[0].command
    parts = [Text(f"{outcome.work}: {command}  [{runs} run{'s' if runs != 1 else ''}{note}]", style="bold")]
    parts += [speed_table(outcome), memory_table(outcome, shows)] if measured else []
    parts += [Text(f"  {series.name}: {series.problem}") for series in outcome.series if series.problem]
    return Group(*parts)


# --- several -----------------------------------------------------------------------------------------


def summary(outcomes: list[Outcome]) -> Group:
    """One line a workload; the geometric mean under it."""
    subject = outcomes[0].subject
    made = table("work", "rate", "best peer", "ratio", f"{subject} is", "peak RSS MiB", "ratio", f"{subject} is")
    means = []
    for outcome in outcomes:
        own, best = outcome.of(subject), outcome.best_peer()
        if own is None or not own.results or not best:
            made.add_row(outcome.work, "failed" if own and own.problem else "", best or "no peer")
            continue
        speed, peak = outcome.ratio(subject, best), peak_key(own)
        space = outcome.ratio(subject, best, peak)
        if speed is None:
            continue
        if outcome.work not in ROWS or ROWS[outcome.work].is_rate_compared:
            means.append(speed.median)
        made.add_row(outcome.work, rate(middle(own, RATE)), best, ratio(speed), verdict(speed, stats.SPEED),
                     _mib(middle(own, peak)), ratio(space), verdict(space, stats.SIZE))  # fmt: skip
    parts = [Text(f"{subject} against the best peer of each row:", style="bold"), made]
    if means:
        parts.append(Text(f"  geometric mean of {len(means)} ratios: {stats.geometric_mean(means):.3f}"))
    return Group(*parts)


def goal_table(outcomes: list[Outcome], found_goals, is_judged: bool) -> Group:
    by_name = {outcome.work: outcome for outcome in outcomes}
    made, words = table("goal", "reached", "smallest to largest", "goal", "aim", ""), []
    for goal in found_goals:
        values, word = goals.judge(goal, by_name)
        word = word if is_judged or not values else "not judged"
        digits = 0 if goal.least >= 100 else 2
        sign = ">=" if goal.at_least else "<="
        unit = f" {goal.unit}" if goal.unit else ""
        made.add_row(
            goal.text,
            f"{median(values):.{digits}f}{unit}" if values else "",
            f"{min(values):.{digits}f} to {max(values):.{digits}f}" if values else "",
            f"{sign} {goal.least:g}{unit}",
            f"{sign} {goal.aim:g}" if goal.aim is not None else "",
            word,
        )
        words.append(word.split(",")[0])
    counts = ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words))
    return Group(Text(f"{outcomes[0].subject}, medians of paired ratios:", style="bold"), made, Text(f"  {counts}"))


LEGEND = (
    f"ratios: medians of the runs' pairs, with the interval that holds the median at {stats.LEVEL:.0%} or more; a "
    f"difference is named when all of it lies beyond {stats.SMALLEST:.0%}.  * the best peer.  System calls: the whole "
    "program's, counted by the kernel in the warm-up run; own: those that hakmem counts itself."
)


class Line:
    """What runs at the moment, on stderr: one line that overwrites itself on a terminal."""

    def __init__(self, text: str = ""):
        self.console = console(to_stderr=True)
        self.status = self.console.status(text) if self.console.is_terminal else None
        self.last = ""
        if self.status:
            self.status.start()

    def show(self, text: str, elsewhere: str = "") -> None:
        """elsewhere: a line that is printed where there is no terminal, once for as long as it stays the same."""
        if self.status:
            self.status.update(text)
        elif elsewhere and elsewhere != self.last:
            with contextlib.suppress(BrokenPipeError):
                self.console.print(elsewhere)
            self.last = elsewhere

    def close(self) -> None:
        if self.status:
            self.status.stop()


class Progress(Line):
    """Of rows that run in turns."""

    def __init__(self, rows: int, runs: int):
        super().__init__()
        self.rows, self.runs, self.seen = rows, runs, {}

    def turn(self, row, entry, run: int) -> None:
        position = self.seen.setdefault(row.name, len(self.seen) + 1)
        text = f"{position}/{self.rows} {row.name}"
        self.show(f"{text}, run {run}/{min(self.runs, row.runs_max or self.runs)}, {entry.series.name}", text)
