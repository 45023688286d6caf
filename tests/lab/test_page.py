"""hak report's page in a browser: it needs nothing but itself, and shows what it should."""

import re

import made_rows
import pytest
from made_browser import CONTRAST, CONTRAST_LEAST, Visit
from made_rows import HOSTILE, parsed

from lab.show import scorecard

pytest_plugins = ("made_report", "made_browser")


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (360, "light"), (1280, "dark")])
def test_in_a_browser(browser, folder, width, scheme):
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
        assert visit.faults == []


def test_names_and_clicks(browser, folder, card):
    with Visit(browser, folder / "index.html") as visit:
        shown = visit.page
        # Names are no markup.
        text = shown.inner_text("body")
        assert all(name in text for name in HOSTILE)
        assert shown.locator("script").count() == 1 and shown.locator("img").count() == 0
        works = [work["name"] for work in card["workloads"]]
        assert shown.locator("details.work").count() == len(works)
        # Sort by the ratio to the fastest peer: down, then up; who has none comes last.
        column = shown.locator("#all thead th").nth(4)
        for order in ("descending", "ascending"):
            column.locator("button").click()
            assert column.get_attribute("aria-sort") == order
            values = shown.eval_on_selector_all(
                "#all tbody tr", "rows => rows.map((row) => row.cells[4].dataset.v).filter(Boolean).map(Number)")  # fmt: skip
            assert values == sorted(values, reverse=order == "descending") and len(values) > 30
        # Filter by name and by group.
        shown.fill("#find", "larson")
        assert (
            shown.locator("details.work:visible").count()
            == shown.locator("#all tbody tr:visible").count()
            == sum("larson" in work for work in works)
        )
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
        # A link in the table opens the workload. The event comes after the click has returned: the check waits for it.
        shown.select_option("#group", "")
        shown.locator("#all tbody a", has_text=re.compile("^vmas$")).click()
        shown.locator("details.work[open] .name", has_text=re.compile("^vmas$")).wait_for(state="visible")
        assert visit.faults == []


def test_without_script(browser, folder, card):
    with Visit(browser, folder / "index.html", script=False) as visit:
        assert visit.page.locator("details.work").count() == len(card["workloads"])
        assert visit.page.locator("#find").is_hidden() and visit.page.locator("#all tbody tr").first.is_visible()
        visit.page.locator("details.work summary").first.click()
        assert visit.page.locator("details.work svg").first.is_visible()


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
