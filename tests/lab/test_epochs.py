"""Known answers for the drift and all other statistics of a soak, and the CSV of ours and of others."""

import json
import math
import statistics

import numpy
import pytest
from scipy.signal import lfilter

from lab.judge import drift, soak
from lab.store import epochs

HEADER = b"time_s,epoch_ops,ops_per_s,rss_kb,rss_peak_kb,epoch_faults_minor,epoch_faults_major,epoch_cpu_seconds,"
HEADER += b"epoch_system_calls\n"

# --- drift --------------------------------------------------------------------------------------------


def ar1(rng, n, phi, series):
    noise = rng.standard_normal((series, n + 300))
    return lfilter([1], [1, -phi], noise, axis=1)[:, 300:]


def test_a_line_is_found_exactly():
    time_s = numpy.arange(1.0, 301.0)
    found = drift.drift(time_s, 5000 + 720 / 3600 * time_s)
    assert found.per_hour == pytest.approx(720) and found.verdict == "grows"
    assert found.low == pytest.approx(720) and found.high == pytest.approx(720) and found.blocks == 30
    assert drift.drift(time_s, 5000 - 0.2 * time_s).verdict == "shrinks"
    assert drift.drift(time_s, [5000.0] * 300).verdict == "no drift seen"


def test_too_few_epochs_say_nothing():
    found = drift.drift(range(29), range(29))
    assert found.verdict == "too few epochs" and math.isinf(found.high) and math.isnan(found.per_hour)
    assert drift.drift(range(30), range(30)).verdict == "grows"


@pytest.mark.parametrize("n, phi", [(270, 0.0), (270, 0.9), (1740, 0.97)])
def test_the_interval_covers_the_truth(n, phi):
    """About 95 % of the intervals hold the slope; and the same without the widening do not, where noise hangs together."""
    rng, slope, series = numpy.random.default_rng(7), 0.01, 300
    time_s = numpy.arange(float(n))
    found = [drift.drift(time_s, noise + slope * time_s) for noise in ar1(rng, n, phi, series)]
    covered = statistics.fmean(one.low <= slope * 3600 <= one.high for one in found)
    # 300 draws of 95 % lie between 92 and 98 % all but once in a hundred times.
    assert 0.92 <= covered <= 0.995
    if phi:
        from scipy.stats import linregress

        fooled = 0
        for noise in ar1(rng, n, phi, 100):
            line = linregress(time_s, noise)
            fooled += abs(line.slope) > 1.96 * line.stderr
        assert fooled > 30, "the control: a straight fit sees drift where there is none"


def test_no_word_of_drift_for_steps_and_outliers():
    rng = numpy.random.default_rng(5)
    time_s = numpy.arange(300.0)
    steps = 20000 + 400 * (time_s > 140) + rng.normal(0, 5, 300)
    assert drift.drift(time_s, steps).verdict == "no drift seen"
    outliers = 20000 + rng.normal(0, 5, 300)
    outliers[250:255] += 90000
    assert drift.drift(time_s, outliers).verdict == "no drift seen"


def test_a_slow_leak_is_seen():
    rng = numpy.random.default_rng(6)
    time_s = numpy.arange(300.0)
    leak = 20000 + 4 * (time_s // 20) + rng.normal(0, 5, 300)  # a page in 20 seconds: 720 KiB an hour
    found = drift.drift(time_s, leak)
    assert found.verdict == "grows" and found.low < 720 < found.high


# --- the analysis -------------------------------------------------------------------------------------


def made(n=400, rss=None, rates=None):
    time_s = [float(i + 1) for i in range(n)]
    rates = rates or [100.0 + i % 5 for i in range(n)]
    return soak.Epochs(time_s=time_s, ops_per_s=rates, rss_kb=rss or [2048.0] * n, ops=rates,
                       counters={"system_calls": [1.0] * n, "faults_minor": [0.5] * n})  # fmt: skip


def test_warm_up():
    assert [soak.warm_up(n) for n in (1, 4, 10, 20, 60, 300, 3600)] == [0, 2, 5, 5, 6, 30, 60]


def test_known_answers():
    found = soak.analyze(made())
    assert (found.epochs, found.warm_up, found.seconds) == (360, 40, 360)
    rates = [100.0 + i % 5 for i in range(40, 400)]
    assert found.throughput.median == 102 and found.throughput.mean == pytest.approx(numpy.mean(rates))
    assert found.throughput.stdev == pytest.approx(numpy.std(rates, ddof=1))
    assert found.throughput.cv == pytest.approx(numpy.std(rates, ddof=1) / numpy.mean(rates))
    assert (found.throughput.minimum, found.throughput.maximum) == (100, 104)
    assert found.throughput.percentiles == {1: None, 5: 100, 10: 100, 90: 104, 95: 104, 99: None}
    assert found.proxy_ns[95] == 1e9 / 100 and found.proxy_ns[99] is None and found.slowest_ns == 1e7
    assert found.per_million_ops["system_calls"] == pytest.approx(1e6 / 102)
    assert found.rss_drift.verdict == found.rss_drift_late.verdict == "no drift seen"


def test_growth_that_came_to_an_end_shows_in_the_levels():
    rss = [1000.0 + 10 * min(i, 150) + i % 3 for i in range(400)]
    found = soak.analyze(made(rss=rss))
    assert (found.rss_first_kb, found.rss_last_kb) == (pytest.approx(1576, abs=10), pytest.approx(2501, abs=2))
    assert found.rss_drift.verdict == found.rss_drift_late.verdict == "no drift seen"
    late = soak.analyze(made(rss=[1000.0 + 10 * max(i, 200) + i % 3 for i in range(400)]))
    assert late.rss_drift_late.verdict == "grows" and late.rss_drift_late.per_hour == pytest.approx(36000, rel=0.01)


def test_an_epoch_without_operations_is_no_number():
    found = soak.analyze(made(n=50, rates=[0.0] * 50))
    assert found.slowest_ns == math.inf and found.rate_drift is None
    json.dumps(soak.figures(found), allow_nan=False)


def test_curve_is_thinned():
    times, kb = soak.curve(made(n=3600))
    assert len(times) == len(kb) == 300 and (times[0], times[-1]) == (1, 3600)
    assert len(soak.curve(made(n=299))[0]) == 299


# --- the files ----------------------------------------------------------------------------------------


def write(folder, text):
    path = folder / "a.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_ours_round_trip(tmp_path):
    writer = epochs.create(tmp_path / "a.csv")
    writer.write(HEADER)
    for i in range(1, 4):
        writer.write(b"%d.5,%d,%d.0,2048,4096,3,0,0.99,\n" % (i, 100 * i, 90 * i))
    read = epochs.read(tmp_path / "a.csv")
    assert read.time_s == [1.5, 2.5, 3.5] and read.ops_per_s == [90, 180, 270] and read.ops == [100, 200, 300]
    assert read.rss_kb == [2048] * 3 and read.rss_peak_kb == [4096] * 3
    assert read.counters == {"faults_minor": [3] * 3, "faults_major": [0] * 3, "cpu_seconds": [0.99] * 3}
    with pytest.raises(FileExistsError):
        epochs.create(tmp_path / "a.csv")
    assert len((tmp_path / "a.csv").read_bytes().splitlines()) == 4, "what is there stays"


@pytest.mark.parametrize("text, time_s, rates, rss", [
    ("epoch,throughput,rss_mb\n1,5,2\n2,6,2\n", [1, 2], [5, 6], [2048, 2048]),
    ("Timestamp;Throughput (ops/s);RSS (bytes)\n1700000000;5;1024\n1700000002;6;2048\n", [1, 3], [5, 6], [1, 2]),
    ("time\trss\n1\t10\n2\t11\n", [1, 2], None, [10, 11]),
    ("\ufefftime_ms,ops\r\n500,10\r\n1500,30\r\n", [0.5, 1.5], [20, 30], None),
    ("ops_per_s,ops,time_s\n7,1,1\n8,1,2", [1, 2], [7, 8], None),
    ("timestamp,mops\n2025-11-01T10:00:00,1.5\n2025-11-01T10:00:01,2\n", [1, 2], [1.5e6, 2e6], None),
    ("time_s,rss_kb\n1,10\n\n2,11\n3,1", [1, 2, 3], None, [10, 11, 1]),
    ("time_s,rss_kb\n1,10\n2,11\n3", [1, 2], None, [10, 11]),
])  # fmt: skip
def test_files_of_others(tmp_path, text, time_s, rates, rss):
    read = epochs.read(write(tmp_path, text))
    assert (list(read.time_s), read.ops_per_s, read.rss_kb) == (time_s, rates, rss)


def test_how_a_column_was_understood_is_said(tmp_path):
    read = epochs.read(write(tmp_path, "epoch,ops,rss\n1,5,2\n2,6,2"), epoch_s=2)
    assert read.time_s == [2, 4] and read.ops_per_s == [2.5, 3]
    assert ["epoch" in read.notes[0], "ops" in read.notes[1], "rss" in read.notes[2]] == [True] * 3
    cut = epochs.read(write(tmp_path, "time_s,rss_kb\n1,10\n2,11\n3"))
    assert cut.notes == ("line 4, the last one, is cut off and left out",)
    holes = epochs.read(write(tmp_path, "time_s,rss_kb,epoch_system_calls\n1,10,\n2,11,4\n"))
    assert holes.counters == {} and "1 of 2 lines" in holes.notes[0]


@pytest.mark.parametrize("text, says", [
    ("time_s,rss_kb\n1,10\n2,x\n3,12\n", "a.csv:3: rss_kb: 'x' is not a number"),
    ("time_s,rss_kb\n1,10\n2\n3,12\n", "a.csv:3: 1 fields; the first line names 2"),
    ("time_s,rss_kb\n1,10\n2,11,12", "a.csv:3: 3 fields"),
    ("time_s,rss_kb\n1,10\n1,11\n", "a.csv:3: time_s: the time does not rise"),
    ("time_s,rss_kb\n1,10\n2,-1\n", "a.csv:3: rss_kb: '-1' is no number from 0 on"),
    ("time_s,rss_kb\n1,10\n2,nan\n", "a.csv:3: rss_kb: 'nan'"),
    ("time_s,rss_kb\n1,10\n2,\n", "a.csv:3: rss_kb: ''"),
    ("time_s,rss_kb\n1,10\n2,\0\x80\n", "a.csv:3: rss_kb"),
    ("when,rss_kb\n1,10\n", "no column of time; found: when, rss_kb"),
    ("time_s,memory\n1,10\n", "no column of throughput or RSS; found: time_s, memory"),
    ("1,10\n2,11\n", "first line is numbers"),
    ("", "names no columns"),
    ("time_s,rss_kb\n", "no epochs"),
    ("time_s,rss_kb,rss_kb\n1,2,3\n", "rss_kb is there twice"),
    ("time_s,ops\n" + "".join(f"{i},{1000 * i}\n" for i in range(1, 12)), "a running sum"),
])  # fmt: skip
def test_damage_is_said(tmp_path, text, says):
    with pytest.raises(epochs.BadEpochs) as refusal:
        epochs.read(write(tmp_path, text))
    assert says in str(refusal.value)


def test_the_page_names_every_column(tree):
    page = (tree / "docs" / "soak.md").read_text()
    tables = [epochs.TIME, epochs.RATE, epochs.OPS, epochs.RSS, epochs.PEAK, *epochs.COUNTERS.values()]
    assert [name for table in tables for name in table if f"`{name}`" not in page] == []
    assert f"`{'rss_tb'}`" not in page, "the control: a name that is not known is not there"
