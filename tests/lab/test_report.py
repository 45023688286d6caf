"""hak report: what the scorecard says."""

import json
import re

import made_rows
import pytest
from made_rows import HOSTILE, parsed, report

from lab.judge import stats
from lab.run import goals
from lab.show import page, plots, scorecard
from lab.store.rows import read
from lab.verbs import report as report_verb

pytest_plugins = ("made_report",)


# --- what it says -------------------------------------------------------------------------------------


def test_figures_are_those_of_the_rows(made, card):
    """Computed here by hand from the rows, for one workload."""
    values = {name: {row["run"]: row["result"]["ops_per_s"] for row in made
                     if row["work"] == "churn-2m" and row["allocator"] == name} for name in made_rows.NAMES}  # fmt: skip
    work = next(work for work in card["workloads"] if work["name"] == "churn-2m")
    by_name = {entry["name"]: entry for entry in work["allocators"]}
    assert next(iter(by_name)) == "hakmem" and set(by_name) == set(made_rows.NAMES)
    for name, runs in values.items():
        assert dict(map(tuple, by_name[name]["rate"]["runs"])) == runs
        middle = sorted(runs.values())[5]
        assert by_name[name]["rate"]["median"] == middle
    pairs = sorted(values["hakmem"][run] / values["glibc"][run] for run in values["glibc"])
    assert by_name["glibc"]["rate_ratio"]["median"] == pytest.approx(pairs[5])
    assert work["best_peer"] == "mimalloc" and work["rate_ratio"]["verdict"] == "faster"
    assert work["leanest_peer"] == "glibc" and work["peak_ratio"]["verdict"] == "larger"


def test_verdicts_are_computed(made, card):
    words = {work["name"]: work["rate_ratio"]["verdict"] for work in card["workloads"] if work["rate_ratio"]}
    assert words["threads"] == words["large_mix"] == stats.SPEED.under
    assert words["fixed-64"] == stats.SAME and words["idle"] == stats.TOO_FEW
    # The same rows with the libraries' names exchanged: the word turns round.
    turned = [row | {"allocator": {"hakmem": "tcmalloc", "tcmalloc": "hakmem"}.get(row["allocator"], row["allocator"])}
              for row in made if row["work"] == "threads"]  # fmt: skip
    found = scorecard.collect(parsed(turned))
    assert found["workloads"][0]["rate_ratio"]["verdict"] == stats.SPEED.over
    summary = card["summary"]["rate"]
    compared = [work["rate_ratio"]["verdict"] for work in card["workloads"] if work["is_rate_compared"]]
    assert summary == {word: compared.count(word) for word in summary} and sum(summary.values()) == len(compared)


def test_goals_and_what_is_missing(card):
    assert [goal["text"] for goal in card["goals"]] == [goal.text for goal in goals.GOALS]
    word = {goal["text"]: goal["verdict"] for goal in card["goals"]}
    assert word["threads / best"] == "missed" and word["vmas, most mappings"] == "met"
    assert word["cold_churn / best"] == "not measured"  # on all peers, and hakmem is the fastest of some
    tiny = made_rows.series("mixed", "hakmem", command=["random_mixed", "20000", "100", "1"], n=1)
    tiny += made_rows.series("mixed", "glibc", command=["random_mixed", "20000", "100", "1"], n=1)
    found = scorecard.collect(parsed(tiny))
    assert {goal["verdict"] for goal in found["goals"]} == {"not measured"}
    text = " ".join(found["missing"])
    assert "Ran with other arguments" in text and "mimalloc" in text and "Tail latency." in text and "churn-2m" in text
    assert all("Tail latency." not in sentence for sentence in card["missing"])


def test_the_latest_session_counts():
    early = made_rows.series("mixed", "hakmem", 1e8) + made_rows.series("mixed", "glibc", 1e8)
    late = [row | {"session": "cafecafecafe", "time": "2026-03-01T00:00:00+00:00"}
            for row in made_rows.series("mixed", "hakmem", 2e8) + made_rows.series("mixed", "glibc", 1e8)]  # fmt: skip
    for rows in (early + late, late + early):
        work = scorecard.collect(parsed(rows))["workloads"][0]
        assert work["session"] == "cafecafecafe" and work["rate_ratio"]["median"] > 1.8
        assert len(work["allocators"][0]["rate"]["runs"]) == 11


def test_sizes_latency_and_soak(card):
    assert card["sizes"]["sizes"][0] == 16 and len(card["sizes"]["of_glibc"]["hakmem"]) == 10
    entry = next(entry for entry in card["latency"] if entry["allocator"] == "glibc")
    assert entry["malloc"]["samples"] == 2 * made_rows.LATENCY_SAMPLES
    assert entry["malloc"]["percentiles"]["p50"] == pytest.approx(50, rel=0.02)
    assert entry["malloc"]["percentiles"]["p99.999"] is None  # too few samples
    soak = next(entry for entry in card["soak"] if entry["allocator"] == "hakmem")
    assert soak["figures"]["rss_drift_mib_verdict"] == "grows" and len(soak["curve"]) == 120
    assert any(entry["name"] == "of <others>.csv" for entry in card["soak"])


def test_markdown(folder, card):
    text = (folder / "scorecard.md").read_text()
    assert not re.search(r"<(?!/?details)[a-z/]", re.sub(r"`[^`]*`", "", text.replace("\\<", "")))
    for line in text.splitlines():
        if line.startswith("| churn-2m |"):
            assert "| faster |" in line and card["workloads"][11]["name"] == "churn-2m"
    widths = [len(re.findall(r"(?<!\\)\|", line)) for line in text.splitlines()]
    lines = text.splitlines()
    for i, line in enumerate(lines[1:], 1):  # a table's lines have as many cells as its head
        if line.startswith("|") and lines[i - 1].startswith("|"):
            assert widths[i] == widths[i - 1], line


# --- usage --------------------------------------------------------------------------------------------


def test_refusals(tree, tmp_path):
    good = json.dumps(made_rows.row("mixed", "hakmem", 1))
    out = tmp_path / "out"
    out.mkdir()
    (out / "index.html").write_text("kept")
    bad = tmp_path / "bad.jsonl"
    for damage, told in (("{", "bad.jsonl:2: not JSON"), ("[]", "bad.jsonl:2: not an object"),
                         (good.replace('"run": 1', '"run": 0'), "bad.jsonl:2: run"),
                         (good.replace('"schema": 1', '"schema": 9'), "bad.jsonl:2: schema 9")):  # fmt: skip
        bad.write_text(f"{good}\n{damage}\n{good}\n")
        done = report(tree, "--rows", bad, "--out", out)
        assert done.returncode == 2 and told in done.stderr and done.stderr.count("\n") == 1, done.stderr
        assert [path.name for path in out.iterdir()] == ["index.html"] and (out / "index.html").read_text() == "kept"
    histogram = made_rows.latency_rows()
    histogram[0]["result"]["latency_free"] = histogram[0]["result"]["latency_free"][:-20]
    for rows, told in (([made_rows.row("mixed", "hakmem", 1, result={"rss_kb": [1]})], "mixed, hakmem, run 1"),
                       (histogram, "latency, hakmem: its latency histograms")):  # fmt: skip
        done = report(tree, "--rows", made_rows.save(bad, rows), "--out", out)
        assert done.returncode == 2 and told in done.stderr and done.stderr.count("\n") == 1, done.stderr
        assert [path.name for path in out.iterdir()] == ["index.html"] and (out / "index.html").read_text() == "kept"
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    for words, told in ((["--rows", empty], "there are no rows; make some: hak bench"), (["--check"], "--docs"),
                        (["--docs", "--out", out], "--out"), (["--rows", tmp_path / "none"], "No such file")):  # fmt: skip
        done = report(tree, *words)
        assert done.returncode == 2 and told in done.stderr and done.stderr.count("\n") == 1, done.stderr


def test_folder_is_made_before_the_pictures(tmp_path, monkeypatch):
    rows = read([made_rows.save(tmp_path / "rows.jsonl", [made_rows.row("mixed", "hakmem", 1)])])
    monkeypatch.setattr(scorecard, "render", None)  # calling it is a TypeError
    with pytest.raises(FileExistsError):
        report_verb.scorecard(rows, [], tmp_path / "rows.jsonl")


def test_rows_without_what_is_usual(tmp_path):
    """One allocator, one run, results that lack almost everything, rows of other kinds: a page all the same."""
    lonely = made_rows.row("mixed", "mimalloc", 1, n=1)
    lonely["result"] = {"ops_per_s": 5.0}
    empty = made_rows.row("vm", "hakmem", 1, result={"ops_per_s": None})
    other = made_rows.row("prog", "glibc", 1, kind="compare")
    soak = made_rows.row("mixed", "hakmem", 1, kind="soak")
    soak["result"] = {"epochs": 3, "rss_kb": "much", "curve_s": [1, 2], "curve_rss_kb": ["a", "b"]}
    found = scorecard.collect(parsed([lonely, empty, other, soak]))
    assert [work["name"] for work in found["workloads"]] == ["mixed"]
    assert any("Rows of hak compare" in sentence for sentence in found["missing"])
    assert "<svg" in scorecard.render(found)["index.html"]


def test_a_plot_has_ids_of_its_own_and_no_name_is_markup():
    one, two = (plots.strip([plots.Mark(HOSTILE[0], 0, [1, 2], 1.5, 1, 2)], "x", HOSTILE[3]) for _ in range(2))
    ids = [set(re.findall(r'\bid="([^"]+)"', text)) for text in (one, two)]
    assert ids[0] and not ids[0] & ids[1]
    assert "<script" not in one and "<img" not in one and "http" not in one and "var(--a0)" in one
    assert not re.search(r"#[0-9a-f]{6}\b", one)  # no colour but the page's


def test_numbers_in_words():
    assert page.ratio({"median": 1.234, "low": 1.1, "high": 1.3}) == "1.23 (1.10-1.30)"
    assert page.ratio({"median": 0.0123, "low": None, "high": None}) == "0.012 (?)"
    assert [page.nanoseconds(value) for value in (None, 41.2, 1530, 8.1e6)] == ["too few", "41 ns", "1.53 µs", "8.1 ms"]
    assert page.goal_value(-0.001, {"goal": 1, "unit": "ms"}) == "0.00 ms"
    assert page.cell("a|b<c") == r"a\|b\<c"
