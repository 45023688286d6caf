"""hak report: what the scorecard says, that it is one page, and how it looks in a browser."""

import json
import re
import shutil
import subprocess
import sys
import time

import made_rows
import pytest

from lab.judge import stats
from lab.run import goals
from lab.show import page, plots, scorecard
from lab.store import rows as stored

HOSTILE = ('<script>alert("x")</script>', "a\"b'c&d|e`f$g$", "long-" + "x" * 300, "</svg><img src=x onerror=alert(1)>")
CONTRAST_LEAST = 4.5


def report(tree, *words):
    return subprocess.run([sys.executable, "-B", "-m", "lab", "report", *map(str, words)], cwd=tree, text=True,
                          capture_output=True, check=False)  # fmt: skip


def parsed(made):
    return [stored.parse(json.dumps(row), "made") for row in made]


@pytest.fixture(scope="module")
def made():
    """A whole scorecard with latencies, soaks and hostile names."""
    rows = made_rows.whole() + made_rows.latency_rows() + made_rows.soak_rows()
    for place, name in enumerate(HOSTILE):
        rows += made_rows.series("fixed-16", name, 9e7, n=11, seed=place)
        rows += made_rows.series(name, "hakmem") + made_rows.series(name, "glibc", 8e7)
        rows += made_rows.soak_rows(work=name, allocators=(name,))
    return rows


@pytest.fixture(scope="module")
def folder(made, tmp_path_factory, tree):
    found = tmp_path_factory.mktemp("report")
    rows = made_rows.save(found / "made.jsonl", made)
    soak = found / "of <others>.csv"
    soak.write_text("time_s,ops_per_s,rss_kb\n" + "".join(f"{i},{1e6 + i},{2000 + i % 7}\n" for i in range(1, 80)))
    began = time.monotonic()
    done = report(tree, "--rows", rows, "--soak", soak, "--out", found / "out")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == [
        str(found / "out" / name) for name in ("index.html", "scorecard.md", "scorecard.json")
    ]
    print(f"{len(made)} rows in {time.monotonic() - began:.1f} s")
    return found / "out"


@pytest.fixture(scope="module")
def card(folder):
    return json.loads((folder / "scorecard.json").read_text())


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
    assert word["threads / best"] == "missed" and word["cold_churn / best"] == "met"
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


# --- in a browser ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser():
    program = shutil.which("chromium")
    if not program:
        pytest.fail("there is no chromium; install Debian's packages chromium and fonts-dejavu-core")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        started = play.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        yield started
        started.close()


class Visit:
    """A page that is opened without a network, and what went wrong meanwhile."""

    def __init__(self, browser, file, width=1280, scheme="light", script=True):
        self.context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme,
                                           java_script_enabled=script)  # fmt: skip
        self.page, self.faults, url = self.context.new_page(), [], file.as_uri()
        self.page.on(
            "console", lambda said: self.faults.append(said.text) if said.type in ("error", "warning") else None
        )
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.faults.append("a dialog"), dialog.dismiss()))

        def route(call):
            if call.request.url == url:
                return call.continue_()
            self.faults.append(f"request: {call.request.url}")
            return call.abort()

        self.page.route("**/*", route)
        self.page.goto(url)

    def overflow(self):
        return self.page.evaluate("document.documentElement.scrollWidth - window.innerWidth")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.context.close()


CONTRAST = """() => {
  const numbers = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (node) => {
    for (; node; node = node.parentElement) {
      const [r, g, b, a = 1] = numbers(getComputedStyle(node).backgroundColor);
      if (a > 0 && r !== undefined) return [r, g, b];
    }
    return [255, 255, 255];
  };
  let worst = [99, ""];
  for (const node of document.querySelectorAll("body *")) {
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
    if (!own || node.closest("style, script, option") || !node.getClientRects().length) continue;
    const style = getComputedStyle(node);
    const ink = numbers(node.closest("svg") ? style.fill : style.color);
    const [a, b] = [light(ink), light(ground(node))].sort((x, y) => y - x);
    const found = (a + 0.05) / (b + 0.05);
    if (found < worst[0]) worst = [found, node.outerHTML.slice(0, 200)];
  }
  return worst;
}"""


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (360, "light"), (1280, "dark")])
def test_in_a_browser(browser, folder, tmp_path, width, scheme):
    with Visit(browser, folder / "index.html", width, scheme) as visit:
        shown = visit.page
        assert visit.overflow() <= 0
        shown.click("#every")  # opens all
        assert visit.overflow() <= 0
        contrast, where = shown.evaluate(CONTRAST)
        assert contrast >= CONTRAST_LEAST, where
        ground = [
            int(part) for part in re.findall(r"\d+", shown.evaluate("getComputedStyle(document.body).backgroundColor"))
        ]
        assert (max(ground) < 60) == (scheme == "dark")
        shown.click("#every")
        shown.screenshot(path=tmp_path / f"{scheme}-{width}.png", full_page=True)
        assert visit.faults == []


def test_clicks(browser, folder, card):
    with Visit(browser, folder / "index.html") as visit:
        shown = visit.page
        works = [work["name"] for work in card["workloads"]]
        assert shown.locator("details.work").count() == len(works)
        # Sort by the ratio to the fastest peer: down, then up; who has none comes last.
        column = shown.locator("#all thead th").nth(4)
        for order in ("descending", "ascending"):
            column.locator("button").click()
            assert column.get_attribute("aria-sort") == order
            values = shown.eval_on_selector_all(
                "#all tbody tr", "rows => rows.map((row) => row.cells[4].dataset.v).filter(Boolean).map(Number)")  # fmt: skip
            assert values == sorted(values, reverse=order == "descending") and len(values) > 40
        # Filter by name and by group.
        shown.fill("#find", "larson")
        assert shown.locator("details.work:visible").count() == shown.locator("#all tbody tr:visible").count() == 6
        shown.fill("#find", "")
        shown.select_option("#group", "churn")
        assert shown.locator("details.work:visible").count() == 2
        # Hide an allocator: in tables and plots.
        details = shown.locator("details.work:visible").first
        details.locator("summary").click()
        assert details.locator("svg").is_visible() and details.get_by_role("row").count() == 2 * (1 + 5)
        marks = details.locator("svg [data-a]:visible").count()
        chip = next(chip for chip in shown.locator(".chip").all() if chip.inner_text().strip() == "mimalloc")
        chip.locator("input").uncheck()
        assert details.get_by_role("row").count() == 2 * (1 + 4)
        assert details.locator("svg [data-a]:visible").count() < marks
        chip.locator("input").check()
        assert details.get_by_role("row").count() == 2 * (1 + 5)
        # A link in the table opens the workload.
        shown.select_option("#group", "")
        shown.locator("#all tbody a", has_text=re.compile("^vmas$")).click()
        assert shown.locator("details.work[open] .name", has_text=re.compile("^vmas$")).is_visible()
        assert visit.faults == []


def test_without_script(browser, folder, card):
    with Visit(browser, folder / "index.html", script=False) as visit:
        assert visit.page.locator("details.work").count() == len(card["workloads"])
        assert visit.page.locator("#find").is_hidden() and visit.page.locator("#all tbody tr").first.is_visible()
        visit.page.locator("details.work summary").first.click()
        assert visit.page.locator("details.work svg").first.is_visible()


def test_names_are_no_markup(browser, folder):
    with Visit(browser, folder / "index.html") as visit:
        text = visit.page.inner_text("body")
        assert all(name in text for name in HOSTILE)
        assert visit.page.locator("script").count() == 1 and visit.page.locator("img").count() == 0
        assert visit.faults == []


@pytest.mark.parametrize(("change", "told"), [
    (("</header>", '</header><img src="http://127.0.0.1:9/x.png" alt="">'), "fault"),
    (("</header>", '</header><script>document.title = "x"</script>'), "fault"),
    (("img-src data:", "img-src http: data:", "</header>", '</header><img src="http://127.0.0.1:9/x.png" alt="">'), "fault"),
    (("</header>", '<div style="width:150vw">wide</div></header>'), "overflow"),
    (("--text: #e4e8ed", "--text: #333333"), "contrast"),
])  # fmt: skip
def test_a_broken_page_is_noticed(browser, tmp_path, change, told):
    """The checks above, on pages that are not sound."""
    text = scorecard.render(scorecard.collect(parsed(made_rows.series("mixed", "hakmem"))))["index.html"]
    for before, after in zip(change[::2], change[1::2], strict=True):
        assert before in text
        text = text.replace(before, after, 1)
    broken = tmp_path / "broken.html"
    broken.write_text(text)
    with Visit(browser, broken, 360, "dark") as visit:
        visit.page.wait_for_load_state("networkidle")
        found = {"fault": bool(visit.faults), "overflow": visit.overflow() > 0,
                 "contrast": visit.page.evaluate(CONTRAST)[0] < CONTRAST_LEAST}  # fmt: skip
    assert {name for name, is_so in found.items() if is_so} == {told}
