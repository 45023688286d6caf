"""What a soak says, as a table: a row a statistic, a column a soak; and the line while it runs."""

import math
from collections.abc import Callable, Iterable, Mapping

from rich.console import Group
from rich.text import Text

from lab.judge import drift, latency
from lab.judge.soak import HIGH_PERCENTS, LOW_PERCENTS, MIB, PROXY_PERCENTS, Analysis
from lab.show import tables
from lab.show.latency import TOO_FEW


def _share(found: drift.Drift | None) -> str:
    if found is None or not math.isfinite(found.low):
        return "" if found is None else found.verdict
    word = {drift.GROWS: "rises", drift.SHRINKS: "falls"}.get(found.verdict, found.verdict)
    return f"{word}: {100 * found.per_hour:+.2f} % ({100 * found.low:+.2f} to {100 * found.high:+.2f})"


def _slope(found: drift.Drift | None) -> str:
    if found is None or not math.isfinite(found.low):
        return "" if found is None else found.verdict
    per_hour, low, high = (value / MIB for value in (found.per_hour, found.low, found.high))
    return f"{found.verdict}: {per_hour:+.3f} MiB ({low:+.3f} to {high:+.3f})"


def _in_all(found: Analysis) -> str:
    """What the slope comes to in the measured time: an hour is a long way from a soak of a minute."""
    if found.rss_drift is None or not math.isfinite(found.rss_drift.low):
        return ""
    return f"{found.rss_drift.per_hour / MIB * found.seconds / drift.SECONDS_PER_HOUR:+.3f} MiB"


def _mib(kb: float | None) -> str:
    return "" if kb is None else f"{kb / MIB:.2f} MiB"


def _rate(value: float | None) -> str:
    return TOO_FEW if value is None else tables.rate(value)


def _ns(value: float | None) -> str:
    return TOO_FEW if value is None else "no operation" if math.isinf(value) else f"{tables.number(value)} ns"


def _rows() -> Iterable[tuple[str, Callable[[Analysis], str]]]:
    yield "epochs, and left out before them", lambda a: f"{a.epochs}, {a.warm_up}"
    yield "time", lambda a: f"{a.seconds:.0f} s"
    yield "throughput: median", lambda a: _rate(a.throughput.median) if a.throughput else ""
    yield "  mean", lambda a: _rate(a.throughput.mean) if a.throughput else ""
    yield "  stdev, CV", lambda a: f"{_rate(a.throughput.stdev)}, {100 * a.throughput.cv:.2f} %" if a.throughput else ""
    yield (
        "  smallest, largest",
        lambda a: f"{_rate(a.throughput.minimum)}, {_rate(a.throughput.maximum)}" if a.throughput else "",
    )
    for percent in (*LOW_PERCENTS, *HIGH_PERCENTS):
        yield f"  p{percent:g}", lambda a, p=percent: _rate(a.throughput.percentiles[p]) if a.throughput else ""
    yield "  an hour", lambda a: _share(a.rate_drift)
    yield "an operation, by epochs: slowest", lambda a: "" if a.slowest_ns is None else _ns(a.slowest_ns)
    for percent in PROXY_PERCENTS:
        yield f"  {latency.name(percent)}", lambda a, p=percent: _ns(a.proxy_ns[p]) if a.proxy_ns else ""
    yield "RSS: median", lambda a: _mib(a.rss_kb and a.rss_kb.median)
    yield "  smallest, largest", lambda a: f"{_mib(a.rss_kb.minimum)}, {_mib(a.rss_kb.maximum)}" if a.rss_kb else ""
    yield "  first tenth, last tenth", lambda a: f"{_mib(a.rss_first_kb)}, {_mib(a.rss_last_kb)}" if a.rss_kb else ""
    yield "  peak", lambda a: _mib(a.rss_peak_kb)
    yield "  an hour", lambda a: _slope(a.rss_drift)
    yield "  an hour, second half", lambda a: _slope(a.rss_drift_late)
    yield "  in all this time", _in_all
    for title, counter in (("minor faults", "faults_minor"), ("major faults", "faults_major"),
                           ("system calls", "system_calls")):  # fmt: skip
        yield (
            f"{title} / 1M operations",
            lambda a, c=counter: tables.number(a.per_million_ops[c], 3) if c in a.per_million_ops else "",
        )


def analysis(found: Mapping[str, Analysis]) -> Group:
    """name -> its analysis. Rows that say nothing of any of them are left out."""
    made = tables.table("", *found)
    for title, value in _rows():
        cells = [value(one) for one in found.values()]
        if any(cells):
            made.add_row(title, *cells)
    notes = [f"  {name}: {note}" for name, one in found.items() for note in one.notes]
    legend = (
        f"  an hour: slope and the interval that holds it at {drift.LEVEL:.0%}, also where epochs are correlated; the word is "
        f"that of the interval.\n  an operation, by epochs: 1 / throughput of each epoch, then percentiles; the slow tail is "
        f"the low end of the throughput.\n  {TOO_FEW}: fewer than {latency.BEYOND_MIN} epochs lie beyond that percentile."
    )
    return Group(made, Text("\n".join([*notes, legend])))


def clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


class Progress(tables.Line):
    """Of one soak; a line a minute where there is no terminal."""

    MINUTE = 60.0

    def __init__(self, title: str, seconds: float):
        super().__init__(title)
        self.title, self.seconds, self.epochs, self.said = title, seconds, 0, 0.0

    def epoch(self, time_s: float, ops_per_s: float, rss_kb: float) -> None:
        self.epochs += 1
        left = clock(max(0.0, self.seconds - time_s))
        text = f"{self.title}: epoch {self.epochs}, {tables.rate(ops_per_s)}, RSS {_mib(rss_kb)}, {left} left"
        is_due = time_s - self.said >= self.MINUTE
        self.said = time_s if is_due else self.said
        self.show(text, text if is_due else "")
