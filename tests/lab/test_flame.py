"""Flame graphs: shares as widths, names as text and nothing else, in a browser."""

import xml.etree.ElementTree

import made_profile
import pytest
from made_browser import CONTRAST, CONTRAST_LEAST, Visit
from made_profile import HOSTILE

from lab.judge import stacks
from lab.show import flame

pytest_plugins = ("made_profile", "made_browser")

SVG = "{http://www.w3.org/2000/svg}"
ROWS = [(("main", "reads"), 250), (("main", "parses", "grows"), 500), (("main",), 50), (("other",), 200)]


@pytest.fixture(scope="module")
def root():
    return stacks.tree(made_profile.stacks(ROWS))


def boxes_of(text):
    """{name: (x, width, y)} of an SVG's boxes."""
    found = {}
    for group in xml.etree.ElementTree.fromstring(text).iter(f"{SVG}g"):
        rect = group.find(f"{SVG}rect")
        found[group.find(f"{SVG}title").text.splitlines()[0]] = tuple(
            float(rect.get(name)) for name in ("x", "width", "y")
        )
    return found


def judge_widths(found):
    shares = {"all": 1.0, "main": 0.8, "other": 0.2, "parses": 0.5, "grows": 0.5, "reads": 0.25}
    assert found.keys() == shares.keys()
    for name, share in shares.items():
        assert found[name][1] == pytest.approx(share * flame.WIDTH, abs=1), name
    callers = {"main": "all", "other": "all", "parses": "main", "reads": "main", "grows": "parses"}
    for name, caller in callers.items():
        x, width, y = found[name]
        assert found[caller][0] <= x and x + width <= found[caller][0] + found[caller][1] + 1
        assert y == found[caller][2] + flame.ROW
    assert found["reads"][0] >= found["parses"][0] + found["parses"][1]


def test_widths_are_shares(root):
    text = flame.svg(root, "made")
    judge_widths(boxes_of(text))
    assert "500 B, 50.0 %, 500 objects" in text
    wrong = stacks.tree(made_profile.stacks([*ROWS[:-1], (("other",), 210)]))
    with pytest.raises(AssertionError):
        judge_widths(boxes_of(flame.svg(wrong, "made")))


def test_what_is_too_narrow_is_told():
    many = stacks.tree(made_profile.stacks([((f"f{i}", "g"), 1) for i in range(10000)] + [(("big",), 90000)]))
    assert set(boxes_of(flame.svg(many, "made"))) == {"all", "big"}
    assert "20,000 of 20,002 boxes" in flame.hidden(many)
    assert flame.hidden(stacks.tree(made_profile.stacks(ROWS))) == ""
    deep = stacks.tree(made_profile.stacks([(tuple(f"f{i}" for i in range(5000)), 1)]))
    assert len(flame.boxes(deep)) == flame.DEPTH_MAX + 1


def test_names_are_text(verb, hostile, tmp_path):
    verb("flame", hostile, "--out", "x.svg")
    text = (tmp_path / "x.svg").read_text()
    tree = xml.etree.ElementTree.fromstring(text)
    assert {node.tag for node in tree.iter()} == {f"{SVG}{name}" for name in ("svg", "g", "title", "rect", "text")}
    titles = [node.text for node in tree.iter(f"{SVG}title")]
    assert any(title.startswith(HOSTILE[0]) for title in titles) and any(
        "two?lines??[31mred" in title for title in titles
    )
    assert max(map(len, titles)) < flame.TITLE_LENGTH_MAX + 200 and len(text) < 20000
    assert "[<made> & up]" in titles[1]
    attributes = {name for node in tree.iter() for name in node.attrib}
    assert attributes == {"id", "viewBox", "role", "data-letter", "font-family", "font-size", "aria-label", "data-x", "data-w",
                          "data-d", "data-n", "x", "y", "width", "height", "fill"}  # fmt: skip


# --- in a browser -------------------------------------------------------------------------------------


@pytest.fixture
def drawn(verb, made, tmp_path):
    assert verb("flame", made / "real", "--out", "real.html").stdout == "real.html\n"
    return tmp_path / "real.html"


def width_of(page, name):
    return page.evaluate("""name => [...document.querySelectorAll("#flame g")].filter((g) => g.dataset.n === name
        && g.style.display !== "none").map((g) => g.querySelector("rect").width.baseVal.value)[0] || 0""", name)  # fmt: skip


def test_zoom_and_search(browser, drawn):
    with Visit(browser, drawn) as visit:
        page = visit.page
        before = width_of(page, "reads")
        assert before == pytest.approx(1200 * 1000 / (1000 + 3072), abs=1) and page.locator("#found").inner_text() == ""
        page.locator('g[data-n="reads"]').click()
        assert width_of(page, "reads") == width_of(page, "works") == 1199.5 and width_of(page, "parses") == 0
        page.click("#reset")
        assert width_of(page, "reads") == pytest.approx(before, abs=0.1) and width_of(page, "parses") > before
        page.fill("#find", "READS")
        assert page.locator("#found").inner_text() == "1 found, 24.6 % of the bytes"
        page.fill("#find", "s")  # boxes inside each other count once
        assert page.locator("#found").inner_text().endswith("100.0 % of the bytes")
        assert page.locator("g.hit").count() > 2
        page.fill("#find", "<nothing>")
        assert page.locator("#found").inner_text() == "0 found, 0.0 % of the bytes"
        assert visit.faults == []


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (360, "dark")])
def test_looks(browser, drawn, width, scheme):
    with Visit(browser, drawn, width, scheme) as visit:
        assert visit.overflow() <= 0
        visit.page.evaluate("document.querySelector('main').remove()")  # its text lies on boxes, not on the page
        contrast, where = visit.page.evaluate(CONTRAST)
        assert contrast >= CONTRAST_LEAST, where
        assert visit.faults == []


def test_without_script(browser, drawn):
    with Visit(browser, drawn, script=False) as visit:
        assert visit.page.locator("#find").is_hidden() and visit.page.locator('g[data-n="parses"]').is_visible()
        assert "3.0 MiB, 75.4 %, 3 objects" in visit.page.locator('g[data-n="parses"] title').text_content()


def test_hostile_page(browser, verb, hostile, tmp_path):
    verb("flame", hostile, "--out", "x.html")
    page = tmp_path / "x.html"
    with Visit(browser, page) as visit:
        assert visit.page.locator("script").count() == 1 and visit.page.locator("img").count() == 0
        visit.page.fill("#find", "alert(1)")
        assert visit.page.locator("#found").inner_text().startswith("1 found")
        assert visit.faults == []
    # The control: what the policy keeps out is noticed.
    text = page.read_text()
    page.write_text(text.replace("</main>", '</main><script>document.title = "x"</script>', 1))
    with Visit(browser, page) as visit:
        assert visit.faults
