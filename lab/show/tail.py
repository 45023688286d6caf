"""What the scorecard says of tail latency, and of one process over time."""

import json
import pathlib
import zlib
from collections.abc import Mapping

from lab.judge import latency, soak
from lab.judge.outcome import Outcome, Series
from lab.show.figures import is_number
from lab.store.rows import Row

# Where the curve of latencies is looked at, beside its begin; what too few samples say nothing of is left out.
CURVE = (10, 25, 50, 75, 90, 95, 98, 99, 99.5, 99.8, 99.9, 99.95, 99.98, 99.99, 99.995, 99.998, 99.999, 99.9995, 99.9999)  # fmt: skip
PARTS = ("malloc", "free")
TIMER = (50, 99)
SOAK_TIME, SOAK_RSS = "curve_s", "curve_rss_kb"


def _timed(series: Series) -> list[dict]:
    """The results that hold histograms."""
    return [result for result in series.results.values() if result.get("latency_source")]


def _merged(work: str, series: Series) -> latency.Latency:
    """All runs together. ValueError if a histogram is damaged."""
    from hdrh import codec

    damaged = (ValueError, TypeError, AttributeError, LookupError, ArithmeticError, RuntimeError, zlib.error, codec.HdrCookieException,
               codec.HdrLengthException)  # fmt: skip
    try:
        return latency.merge([latency.load(result) for result in _timed(series)])
    except damaged as error:
        raise ValueError(f"{work}, {series.name}: its latency histograms cannot be read: {error}") from None


def _part(found: latency.Latency, part: str) -> dict:
    values = found.percentiles_ns(part, [*latency.PERCENTILES, *CURVE])
    least = min(found.parts[part].min_value, found.parts[part].max_value) / found.ticks_per_ns
    return {
        "samples": found.n(part), "percentiles": {latency.name(percent): values[percent] for percent in latency.PERCENTILES},
        "max": found.max_ns(part),
        "curve": [[0, least], *([percent, values[percent]] for percent in CURVE if values[percent] is not None)],
    }  # fmt: skip


def latencies(outcomes: Mapping[str, Outcome]) -> list[dict]:
    """Of every workload whose rows hold histograms: all runs of an allocator together."""
    found = []
    for work, outcome in outcomes.items():
        for series in outcome.series:
            if not _timed(series):
                continue
            merged = _merged(work, series)
            found.append({
                "work": work, "allocator": series.name, "runs": len(_timed(series)), "source": merged.source,
                "timer": {latency.name(percent): value for percent, value in merged.percentiles_ns("timer", TIMER).items()},
                **{part: _part(merged, part) for part in PARTS},
            })  # fmt: skip
    return found


def _soak(name: str, work: str, allocator: str, figures: Mapping, curve: list) -> dict:
    seconds = figures.get("seconds")
    minutes = seconds / 60 if isinstance(seconds, int | float) else None
    return {"name": name, "work": work, "allocator": allocator, "minutes": minutes, "figures": dict(figures),
            "curve": [list(point) for point in curve]}  # fmt: skip


def soak_of(row: Row) -> dict:
    """A row of kind soak."""
    figures = {key: value for key, value in row.result.items() if is_number(value) or key.endswith("_verdict")}
    times, sizes = (row.result.get(key) for key in (SOAK_TIME, SOAK_RSS))
    curve = zip(times, sizes, strict=False) if isinstance(times, list) and isinstance(sizes, list) else ()
    curve = [point for point in curve if all(map(is_number, point))]
    return _soak(f"{row.work}, {row.allocator}", row.work, row.allocator, figures, curve)


def _beside(path: pathlib.Path) -> tuple[str, str]:
    """Work and allocator, as `hak soak` stored them beside its CSV; of files of others the name serves as both."""
    try:
        told = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        work, allocator = told["work"], told["allocator"]
    except (OSError, ValueError, KeyError, TypeError):
        return path.stem, path.stem
    return (work, allocator) if isinstance(work, str) and isinstance(allocator, str) else (path.stem, path.stem)


def soak_of_file(path: pathlib.Path) -> dict:
    """A CSV file of `hak soak`, or of others. ValueError or OSError if it says nothing."""
    from lab.store import epochs

    read = epochs.read(path)
    curve = list(zip(*soak.curve(read), strict=True)) if read.rss_kb is not None else []
    return _soak(path.name, *_beside(path), soak.figures(soak.analyze(read)), curve)
