"""What `hak replay` prints: a trace, and how allocators did on it."""

from rich.console import Group
from rich.table import Table
from rich.text import Text

from lab.judge import stats
from lab.judge.allocations import KINDS, Tally
from lab.judge.outcome import Outcome
from lab.show import tables
from lab.store.trace import Facts, Site

TOP_SITES = 12


def _mib(size: float) -> str:
    return f"{tables.number(size / 2**20)} MiB"


def _size(value: int) -> str:
    for letter, shift in (("T", 40), ("G", 30), ("M", 20), ("K", 10)):
        if value >= 1 << shift:
            return f"{value >> shift}{letter}"
    return str(value)


def line(name: str, facts: Facts, found: Tally) -> str:
    return (
        f"{name}: {facts.program}, {found.events:,} events, {found.objects:,} blocks, {found.threads:,} "
        f"thread{'s' if found.threads != 1 else ''}, {found.last_us / 1e6:.3f} s, peak live {_mib(found.live_peak)}, "
        f"{found.remote_share:.1%} of the frees by other threads"
    )


def info(name: str, facts: Facts, found: Tally, sites: list[Site]) -> Group:
    size = facts.file_bytes / max(1, facts.raw_events)
    facts_table = Table(box=None, show_header=False, pad_edge=False)
    for key, value in (
        ("program", f"{facts.program}, process {facts.pid}" + (f", {facts.images - 1} exec" if facts.images > 1 else "")),
        ("span", f"{facts.duration_us / 1e6:.3f} s"),
        ("file", f"{facts.file_bytes:,} bytes, {size:.2f} an event"),
        ("events", f"{found.events:,}: " + ", ".join(
            f"{count:,} {kind}" for kind, count in zip(KINDS, found.by_kind, strict=True) if count)),
        ("blocks", f"{found.objects:,}, {_mib(found.asked)} in all"),
        ("threads", f"{found.threads:,}"),
        ("peak live", f"{found.live_peak:,} bytes, at event {found.live_peak_event:,}"),
        ("live at the end", f"{found.live:,} bytes"),
        ("frees by other threads", f"{found.remote_frees:,} of {found.frees:,}, {found.remote_share:.1%}"),
        ("not in the trace", f"{facts.unknown_frees:,} frees of blocks from before, {facts.lost:,} calls"),
    ):  # fmt: skip
        facts_table.add_row(f"  {key}", value)
    parts = [Text(name, style="bold"), facts_table, sizes_table(found)]
    if found.sites:
        parts.append(sites_table(found, sites))
    return Group(*parts)


def sizes_table(found: Tally) -> Table:
    made = tables.table("sizes", "blocks", "%", "bytes", "%")
    blocks, total = sum(found.sizes), sum(found.size_bytes)
    rows = [row for row, count in enumerate(found.sizes) if count]
    for row in range(min(rows, default=0), max(rows, default=-1) + 1):
        count, size = found.sizes[row], found.size_bytes[row]
        made.add_row(f"{_size(1 << row if row else 0)} to {_size(2 << row)}", f"{count:,}", f"{100 * count / blocks:.1f}",
                     f"{size:,}", f"{100 * size / max(1, total):.1f}")  # fmt: skip
    return made


def sites_table(found: Tally, sites: list[Site]) -> Table:
    made = tables.table("sites of large blocks", "blocks", "bytes", "mean", "build id")
    for row, site in found.top_sites(TOP_SITES):
        made.add_row(str(sites[row]), f"{site.blocks:,}", f"{site.bytes:,}", _mib(site.bytes / site.blocks),
                     sites[row].build_id[:12])  # fmt: skip
    left = len(found.sites) - TOP_SITES
    if left > 0:
        made.add_row(f"and {left} more")
    return made


# --- how allocators did --------------------------------------------------------------------------------


def _cell(value: float | None, form: str = ".2f", scale: float = 1.0) -> str:
    return "" if value is None else format(value / scale, form)


def outcome(found: Outcome, note: str) -> Group:
    subject = found.subject
    measured = sorted((series for series in found.series if series.results),
                      key=lambda series: (series.name != subject, tables.middle(series, "seconds")))  # fmt: skip
    runs = max((len(series.results) for series in measured), default=0)
    parts = [Text(f"{found.work}  [{runs} run{'s' if runs != 1 else ''}{note}]", style="bold")]
    if measured:
        speed = tables.table("", "seconds", f"{stats.SUMMARY_LEVEL:.0%} of it", "CPU s", "ops/s", f"{subject} / it",
                             f"{subject} is", "faults")  # fmt: skip
        space = tables.table("", "heap's peak MiB", f"{subject} / it", f"{subject} is", "of peak live", "mean over time",
                             "at the end MiB")  # fmt: skip
        for series in measured:
            time = stats.summarize(series.values("seconds").values())
            rates = found.ratio(subject, series.name)
            speed.add_row(series.name, tables.number(time.median),
                          f"{tables.number(time.low)}-{tables.number(time.high)}",
                          tables.number(tables.middle(series, "cpu_seconds")), tables.rate(tables.middle(series, "ops_per_s")),
                          tables.ratio(rates), tables.verdict(rates, stats.SPEED),
                          _cell(tables.middle(series, "faults_minor"), ".0f"))  # fmt: skip
            peaks = found.ratio(subject, series.name, "heap_peak_kb")
            space.add_row(series.name, _cell(tables.middle(series, "heap_peak_kb"), ".2f", 1024), tables.ratio(peaks),
                          tables.verdict(peaks, stats.SIZE), _cell(tables.middle(series, "peak_over_live")),
                          _cell(tables.middle(series, "mean_over_live")),
                          _cell(tables.middle(series, "heap_kb"), ".2f", 1024))  # fmt: skip
        parts += [speed, space]
    parts += [Text(f"  {series.name}: {series.problem}") for series in found.series if series.problem]
    return Group(*parts)


LEGEND = (
    f"ratios: medians of the runs' pairs, with the interval that holds the median at {stats.LEVEL:.0%} or more. heap: "
    "resident memory less the replay's tables. of peak live: heap's peak over the live bytes' peak. mean over time: the "
    "same of the means of all samples."
)
