"""Which sessions figures come from: all peers, profiles, sessions that disagree; traces; the stored rows themselves."""

import made_rows
import pytest
from made_rows import parsed

from lab.judge import stats
from lab.run.workloads import ROWS
from lab.show import files, page, parts, plots, quoted, scorecard
from lab.show.figures import Figures
from lab.store import rows as stored

PEERS = ("glibc", "mimalloc", "jemalloc", "tcmalloc", "mimalloc2", "snmalloc", "rpmalloc")


def session(name, day, work="mixed", names=("hakmem", *PEERS), rates=None, n=11, **changes):
    """A session of one workload; hakmem does 1.0 if rates say nothing else."""
    marks = {"session": name, "time": f"2026-02-{day:02}T00:00:00+00:00"}
    return [row | marks for place, allocator in enumerate(names)
            for row in made_rows.series(work, allocator, 1e8 * (rates or {}).get(allocator, 1.0), n=n, seed=place,
                                        **changes)]  # fmt: skip


WHOLE = {"mimalloc": 2.0, "glibc": 0.5}


@pytest.mark.parametrize(("later", "is_taken"), [
    ({"names": ("hakmem", "hakmem-speed", "hakmem-lean", "glibc")}, False),  # the command of the presets' block
    ({"n": 2}, False), ({"is_tiny": True}, False), ({}, True),
])  # fmt: skip
def test_only_a_complete_session_displaces_another(later, is_taken):
    rows = parsed(session("aaaaaaaaaaaa", 1, rates=WHOLE) + session("bbbbbbbbbbbb", 2, **later))
    figures = Figures(rows)
    assert figures.last["mixed"].session == ("bbbbbbbbbbbb" if is_taken else "aaaaaaaaaaaa")
    if not is_taken:
        assert figures.fastest("mixed") == "mimalloc"
        assert quoted.renderer(rows)(["ratio", "mixed", "best"]) == "0.50"


def test_profiles_come_from_their_own_session():
    names = ("hakmem", "hakmem-speed", "hakmem-lean", "glibc")
    own = session("bbbbbbbbbbbb", 1, names=names, rates={"hakmem-speed": 3.0, "hakmem-lean": 0.2})
    later = session("cccccccccccc", 2, rates=WHOLE)
    for rows in (own + later, session("aaaaaaaaaaaa", 1, rates=WHOLE) + own + later):
        found = {entry["profile"]: entry for entry in scorecard.collect(parsed(rows))["profiles"]}
        assert list(found) == ["speed", "balanced", "lean"]
        assert {entry["session"] for entry in found.values()} == {"bbbbbbbbbbbb"}
        assert found["speed"]["rate_of_glibc"]["median"] == pytest.approx(3.0, rel=0.05)
        text = quoted.renderer(parsed(rows))(["profiles"])
        assert "random_mixed 20000000" in text and "0.20 |" in text
    assert scorecard.collect(parsed(later))["profiles"] == []


def test_a_best_peer_of_some_is_marked():
    all_peers, some = (quoted.renderer(parsed(session("aaaaaaaaaaaa", 1, names=names)))
                       for names in (("hakmem", *PEERS), ("hakmem", "glibc")))  # fmt: skip
    assert "\\*" not in all_peers(["ratio", "mixed", "best"]) + all_peers(["measured"]) + all_peers(["speed"])
    assert some(["ratio", "mixed", "best"]).endswith("\\*")
    assert "not all peers were measured (nowhere: mimalloc," in " ".join(some(["measured"]).split())
    assert some(["ratio", "mixed", "glibc"])[-1] != "*"  # a named one is whole
    of_some = quoted.renderer(parsed(session("aaaaaaaaaaaa", 1, names=("hakmem", "glibc")) +
                                     session("bbbbbbbbbbbb", 1, "shift")))  # fmt: skip
    left_out = ", ".join(PEERS[1:])
    assert f"Measured without {left_out}: mixed." in " ".join(of_some(["losses"]).split())
    card = scorecard.collect(parsed(session("aaaaaaaaaaaa", 1, names=("hakmem", "glibc"))))
    assert any(sentence.startswith(f"Without {left_out}") for sentence in card["missing"])


def test_a_span_says_how_many_are_missing():
    ratios = [stats.of_ratios([value] * 11) for value in (1.2, 1.5, 1.4)]
    assert quoted.span(ratios) == "1.20 to 1.50" and quoted.span([None, None]) == "not measured"
    assert quoted.span([None, *ratios]) == "1.20 to 1.50 (3 of 4 measured)"
    assert quoted.span([None, ratios[0]]) == "1.20 (1 of 2 measured)"


def test_sessions_that_disagree_are_named():
    same = [session(name, day, rates={"glibc": 0.5}) for name, day in (("aaaaaaaaaaaa", 1), ("bbbbbbbbbbbb", 2))]
    assert Figures(parsed(same[0] + same[1])).disagreements == []
    other = session("cccccccccccc", 3, rates={"glibc": 2.0})
    found = Figures(parsed(same[0] + other)).disagreements
    assert [(one.work, one.key, one.peer) for one in found] == [("mixed", "rate", "glibc")]
    assert [verdict for *_, verdict in found[0].said] == ["faster", "slower"]
    # Those that were not complete, short, or tiny do not count.
    for changes in ({"names": ("hakmem", "glibc")}, {"n": 3}, {"command": ["random_mixed", "20000", "100", "1"]}):
        other = session("cccccccccccc", 3, rates={"glibc": 2.0}, **changes)
        assert Figures(parsed(same[0] + other)).disagreements == []
    card = scorecard.collect(parsed(same[0] + session("cccccccccccc", 3, rates={"glibc": 2.0})))
    texts = scorecard.render(card)
    assert "cccccccccccc" in texts["scorecard.md"] and 'id="disagreements"' in texts["index.html"]
    assert 'id="disagreements"' not in scorecard.render(scorecard.collect(parsed(same[0])))["index.html"]


def test_rates_that_compare_nothing_are_no_losses():
    """A real program's rate is no verdict; its memory is."""
    work = "app-perl"
    rows = [row | {"result": row["result"] | {"rss_peak_kb": 9000 if row["allocator"] == "hakmem" else 5000}}
            for row in session("aaaaaaaaaaaa", 1, work, rates={"glibc": 3.0})]  # fmt: skip
    figures = Figures(parsed(rows))
    assert figures.losses("ops_per_s") == [] and [loss.work for loss in figures.losses("peak")] == [work]
    card = scorecard.collect(parsed(rows))
    assert (card["summary"]["workloads"], card["summary"]["rate"]) == (0, {})
    assert card["summary"]["peak"] == {"larger": 1} and card["summary"]["geometric_mean"] is None
    text = quoted.renderer(parsed(rows))(["workloads"])
    assert text.count(f"| `{work}` |") == 1  # in the table of memory only


# --- presets over time, traces --------------------------------------------------------------------------


def test_tail_and_drift_of_profiles():
    names = ("hakmem", "hakmem-speed", "hakmem-lean", "glibc")
    rows = made_rows.latency_rows(allocators=names) + made_rows.soak_rows(allocators=names)
    card = scorecard.collect(parsed(rows))
    assert [entry["profile"] for entry in card["profile_tails"]] == ["balanced", "speed", "lean"]
    lean = next(entry for entry in card["profile_tails"] if entry["profile"] == "lean")
    assert lean["malloc"]["percentiles"]["p99"] == pytest.approx(119, rel=0.02)
    assert {entry["profile"]: entry["figures"]["rss_drift_mib_verdict"] for entry in card["profile_drifts"]}[
        "balanced"] == "grows"  # fmt: skip
    texts = scorecard.render(card)
    for name in ("index.html", "scorecard.md"):
        assert "Tail latency of the presets" in texts[name] and "The presets over time" in texts[name]
    none = scorecard.collect(parsed(made_rows.latency_rows() + made_rows.soak_rows()))
    assert none["profile_tails"] == none["profile_drifts"] == []


def trace_rows(names=("hakmem", "glibc"), curve=True):
    found = []
    for place, name in enumerate(names):
        result = {"seconds": 1.0, "heap_peak_kb": 2000 + 500 * place, "peak_over_live": 1.0 + place,
                  "mean_over_live": 1.25 + place, "heap_kb": 50}  # fmt: skip
        if curve:
            result |= {
                "curve_progress": [0.0, 0.5, 1.0],
                "curve_live_kb": [1, 100, 200],
                "curve_rss_kb": [10, 150, 220],
            }
        found += made_rows.series("perl.trace", name, extra=result, command=["replay", "perl.trace"], kind="replay")
    return found


def test_traces():
    card = scorecard.collect(parsed(trace_rows()))
    own, glibc = card["traces"]
    assert own["curve"] == [[0.5, 1.5], [1.0, 1.1]]  # where almost nothing lives there is no ratio
    assert glibc["mean_over_live"] == 2.25 and glibc["peak_ratio"]["verdict"] == "smaller"
    texts = scorecard.render(card)
    assert "% of the trace" in texts["index.html"] and "| perl.trace | glibc | 11 |" in texts["scorecard.md"]
    without = scorecard.render(scorecard.collect(parsed(trace_rows(curve=False))))["index.html"]
    assert "perl.trace" in without and "% of the trace" not in without
    assert parts.traces(Figures(parsed(made_rows.series("mixed", "hakmem"))).others) == []


# --- files ------------------------------------------------------------------------------------------------


def test_files_change_together_or_not_at_all(tmp_path):
    good, bad = tmp_path / "good.md", tmp_path / "none" / "bad.md"
    good.write_text("kept")
    with pytest.raises(OSError, match="bad.md"):
        files.write({good: "changed", bad: "changed"})
    assert good.read_text() == "kept" and [path.name for path in tmp_path.iterdir()] == ["good.md"]
    good.chmod(0o640)
    assert files.write({good: "changed"}) == [good] and good.read_text() == "changed"
    assert good.stat().st_mode & 0o777 == 0o640


def faults_of(rows) -> list[str]:
    """What keeps stored rows from standing behind a document."""
    found, runs = [], {}
    for row in rows:
        where = f"{row.work}, {row.allocator}, session {row.session}"
        if len(row.commit) != 40:
            found.append(f"{where}: commit '{row.commit}'")
        if row.kind == "bench":
            runs.setdefault((where, row.work), set()).add(row.run)
            known = (ROWS[row.work].command, ROWS[row.work].tiny) if row.work in ROWS else ("", "")
            whole, tiny = (command.replace("SEED", str(row.seed)) for command in known)
            if row.is_tiny or " ".join(row.command) == tiny != whole:
                found.append(f"{where}: tiny")
    for (where, work), seen in runs.items():
        needed = min(stats.runs_needed(), ROWS[work].runs_max or stats.runs_needed()) if work in ROWS else 1
        if len(seen) < needed:
            found.append(f"{where}: {len(seen)} runs of {needed}")
    return sorted(set(found))


def test_stored_rows_are_of_a_clean_commit_and_make_a_scorecard(tree, monkeypatch):
    rows = stored.read(sorted((tree / "lab" / "results").glob("*.jsonl")))
    assert faults_of(rows) == []
    drawn = []
    for plot in ("strip", "forest", "lines", "curves", "over_time"):  # lab.report draws them
        monkeypatch.setattr(plots, plot, lambda marks, *_: drawn.append(len(marks)) or "<svg></svg>")
    found = scorecard.collect(rows)
    text = scorecard.render(found)["index.html"]
    assert min(drawn) > 0 and text.count("<svg></svg>") == len(drawn) > len(found["workloads"]) > 40
    assert all(work["name"] in text for work in found["workloads"])


@pytest.mark.parametrize(("change", "told"), [
    ({"commit": "0123456789abcdef0123456789abcdef01234567+changes"}, "+changes"), ({"commit": "unknown"}, "unknown"),
    ({"is_tiny": True}, "tiny"), ({"command": ["random_mixed", "20000", "100", "1"]}, "tiny"), ({"n": 3}, "3 runs of 7"),
])  # fmt: skip
def test_rows_that_must_not_be_stored_are_noticed(change, told):
    faults = faults_of(parsed(made_rows.series("mixed", "hakmem", **change)))
    assert faults and all(told in fault for fault in faults)
    assert faults_of(parsed(made_rows.series("mixed", "hakmem"))) == []


def test_templates_know_the_levels():
    """No level and no number of samples is typed in a template."""
    for name in ("scorecard.html.j2", "scorecard.md.j2"):
        text = (page.FOLDER / name).read_text()
        assert "95 %" not in text and "98 %" not in text and "10 samples" not in text
