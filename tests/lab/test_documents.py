"""hak report --docs: the figures in documents are those of the rows, and none stands outside."""

import pathlib
import re
import statistics
from xml.etree import ElementTree

import forked
import jinja2
import made_rows
import pytest
from made_rows import parsed

from lab.show import documents, drawn, page, quoted

MEASURED = ("README.md", "docs/comparison.md")  # every figure of these stands in a block
# What looks like a figure and is none, with the reason.
ALLOWED = {
    "README.md": {},
    "docs/comparison.md": {
        "3.4": "mimalloc's version", "2.10": "gperftools' version", "2.36": "glibc's version", "2.43": "glibc's version",
        "0.1": "a default: seconds of a profile's delay",
    },
}  # fmt: skip
FIGURE = re.compile(
    r"(?<![\w.,])(?:\d+\.\d+(?!\.?\w)|\d+(?:\.\d+)?(?= ?%| ?times\b| of (?:glibc|mimalloc|jemalloc|tcmalloc|hakmem)))"
)
TEMPLATES = sorted(path.name.removesuffix(".md.j2") for path in
                   (pathlib.Path(documents.__file__).parent / "templates" / "docs").glob("*.md.j2"))  # fmt: skip
WORDS = {"ratio": "ratio mixed mimalloc"}


class Kept(dict):
    set = dict.__setitem__


@pytest.fixture(scope="module", autouse=True)
def _compiled_once():
    """Each renderer has an environment of its own, which would compile the templates anew."""
    made, cache = page.environment, jinja2.MemcachedBytecodeCache(Kept())

    def environment(autoescape):
        found = made(autoescape)
        found.bytecode_cache = cache
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page, "environment", environment)
        yield


@pytest.fixture(scope="module")
def whole():
    return parsed(made_rows.whole())


@pytest.fixture(scope="module")
def some(whole):
    """Fewer workloads, for what does not depend on them all."""
    return [row for row in whole if row.work in ("mixed", "churn-2m", "churn-4m", "threads", "shift", "idle")]


@pytest.fixture
def copy(tmp_path):
    """A tree with each block in a document, and one within a sentence."""
    blocks = (f"<!-- figures: {WORDS.get(name, name)} -->\n<!-- end figures -->\n" for name in TEMPLATES)
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text("# Title\n\n" + "\nbetween\n\n".join(blocks) + "\nend\n")
    (tmp_path / "docs" / "in.md").write_text(
        "It is <!-- figures: ratio mixed mimalloc -->0<!-- end figures --> of mimalloc.\n"
    )
    (tmp_path / "docs" / "plain.md").write_text("No figures: 1.23.\n")
    return tmp_path


# --- what stands in the tree ------------------------------------------------------------------------------


def outside(text: str, where: str) -> list[str]:
    """The figures that stand outside of blocks, code and links."""
    text = re.sub(
        r"```.*?```|^ {4}[^\n]*|`[^`\n]*`|\]\([^)]*\)|<!--.*?-->|https?://\S+",
        " ",
        outside_text(text, where),
        flags=re.DOTALL | re.MULTILINE,
    )
    return [found[0] for found in FIGURE.finditer(text)]


def test_no_block_is_stale(tree):
    done = forked.hak("report", "--docs", "--check", cwd=tree)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", MEASURED)
def test_every_figure_stands_in_a_block(tree, name):
    path = tree / name
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    assert documents.MARK.search(text), f"{name} has no block of figures"
    assert [figure for figure in outside(text, name) if figure not in ALLOWED[name]] == []
    assert all(figure in outside(text, name) for figure in ALLOWED[name]), "allowed, but not there"


def test_a_figure_outside_is_found():
    text = "1.05 is\n<!-- figures: speed -->\n2.5 and 30 %\n<!-- end figures -->\n    in code 8.8\n`7.7` [a](b-1.1.md) 1.2.3 2,000 C17"
    assert outside(text, "x") == ["1.05"]
    assert outside(text + " 3 times, 20 % and 4 of glibc's, 0.9?", "x") == ["1.05", "3", "20", "4", "0.9"]


COMPARISON = re.compile(
    r"\b(fast|slow|small|lean|quick|cheap)(er|est)\b|\b(less|more|least|most) memory\b|\bbeats?\b|\blarg(er|est)\b",
    re.IGNORECASE,
)


def outside_text(text: str, where: str) -> str:
    last, parts = 0, []
    for begin, end, _ in documents.blocks(text, where):
        parts.append(text[last:begin])
        last = end
    return " ".join([*parts, text[last:]])


@pytest.mark.parametrize("name", MEASURED)
def test_who_wins_is_computed(tree, name):
    """No word of rate or memory against others stands outside of blocks: it would stay when the rows change."""
    text = outside_text((tree / name).read_text(encoding="utf-8"), name)
    assert [found[0] for found in COMPARISON.finditer(text)] == []


def test_a_word_outside_is_found():
    text = (
        "It is Faster.\n<!-- figures: speed -->\nslower\n<!-- end figures -->\nTakes less memory, breakfast, most of it"
    )
    assert [found[0] for found in COMPARISON.finditer(outside_text(text, "x"))] == ["Faster", "less memory"]


# --- plots --------------------------------------------------------------------------------------------------


def test_plots_are_drawn_from_the_rows(tmp_path, some):
    idle = dict.fromkeys(drawn.IDLE_S, 2048)
    some = [row.model_copy(update={"result": row.result | idle}) if row.work == "idle" else row for row in some]
    folder = tmp_path / "docs" / "figures"
    folder.mkdir(parents=True)
    (tmp_path / "README.md").write_text("of mimalloc <!-- figures: ratio mixed mimalloc -->0<!-- end figures -->\n")
    assert "docs/figures/rate.svg" in documents.fill(tmp_path, some)
    assert documents.fill(tmp_path, some, is_check=True) == []
    made = {path.name: path.read_text() for path in folder.iterdir()}
    assert {"rate.svg", "memory.svg", "idle.svg"} <= made.keys()
    assert all(ElementTree.fromstring(text).tag.endswith("svg") for text in made.values())
    assert "seconds idle" in made["idle.svg"] and "var(" not in "".join(made.values())
    (folder / "rate.svg").write_text(made["rate.svg"].replace("mixed", "other"))
    (folder / "idle.svg").unlink()
    assert sorted(documents.fill(tmp_path, some, is_check=True)) == ["docs/figures/idle.svg", "docs/figures/rate.svg"]
    assert documents.plots(tmp_path / "docs", some) == {}


# --- figures ------------------------------------------------------------------------------------------------


def test_figures_are_those_of_the_rows(whole):
    def rates(name):
        return {row.run: row.result["ops_per_s"] for row in whole if row.work == "churn-4m" and row.allocator == name}

    own, peer = rates("hakmem"), rates("jemalloc")
    by_hand = statistics.median(own[run] / peer[run] for run in own)
    render = quoted.renderer(whole)
    assert render(["ratio", "churn-4m", "jemalloc"]) == f"{by_hand:.2f}"
    assert f"{by_hand:.2f}" not in render(["speed"])  # of the best and of mimalloc only
    best = render(["ratio", "churn-4m", "best"])
    assert f"| {render(['ratio', 'churn-2m', 'best'])}, {best} |" in render(["speed"])
    assert f"| `churn-4m` | **{render(['ratio', 'churn-4m', 'glibc'])}** | 1 |" in render(["workloads"])


def test_rounding_and_verdicts():
    assert [quoted.rounded(value) for value in (0.984, 1.2345, 1.999, 2.44, 9.96, 37.6)] == [
        "0.98", "1.23", "2.0", "2.4", "10", "38"]  # fmt: skip
    same = parsed(made_rows.series("mixed", "hakmem") + made_rows.series("mixed", "mimalloc"))
    assert quoted.renderer(same)(["ratio", "mixed", "mimalloc"]).startswith("≈")
    few = [row for row in same if row.run < 4]
    assert quoted.renderer(few)(["ratio", "mixed", "mimalloc"]).endswith("?")
    assert quoted.renderer(same)(["ratio", "mixed", "jemalloc"]) == "not measured"


def test_losses_are_computed(whole):
    text = quoted.renderer(whole)(["losses"])
    slower = next(line for line in text.splitlines() if line.startswith("- Slower"))
    assert "`threads` 0.77 of tcmalloc's" in slower and "`large_mix` 0.77 of tcmalloc's" in slower
    assert slower.count("`") == 4  # these and no other
    assert re.search(r"Larger peak RSS than the leanest peer: `\S+` 1\.2\d of\s+glibc's \(", text)
    goals = quoted.renderer(whole)(["goals"])
    assert "- threads / best 0.77 (at least 1.15)\n" in goals
    count = re.search(r"Goals of its own that are missed: (\d+) of \d+\.", text)
    assert count and goals.count("\n- ") == int(count[1])
    # Twice as fast and half as large, it loses nowhere.
    better = []
    for row in whole:
        if row.work == "threads":
            result = dict(row.result)
            if row.allocator == "hakmem":
                result |= {"ops_per_s": result["ops_per_s"] * 4, "rss_peak_kb": result["rss_peak_kb"] / 4}
            better.append(row.model_copy(update={"result": result}))
    text = quoted.renderer(better)(["losses"])
    assert "- Slower than the fastest peer: nowhere." in text and "leanest peer: nowhere." in text


@pytest.fixture(scope="module")
def missing(whole):
    """Renderers of rows of which some are missing; the first has none."""
    works = dict.fromkeys(row.work for row in whole)
    only_few = {"mixed", "idle", "fixed-16", "profiles", "startup"}
    return [quoted.renderer(rows) for rows in (
        [], [row for row in whole if row.work in only_few], [row for row in whole if row.allocator == "hakmem"],
        [row for row in whole if row.work == next(iter(works)) and row.run == 1],
        [row for row in whole if row.allocator != "glibc"], [row for row in whole if row.allocator != "hakmem"])]  # fmt: skip


@pytest.mark.parametrize("name", TEMPLATES)
def test_every_block_bears_missing_rows(missing, name):
    words = WORDS.get(name, name).split()
    texts = [render(words) for render in missing]
    for text in texts:
        assert text and "None" not in text and "nan" not in text and "Undefined" not in text
    assert "not measured" in texts[0].lower()


def test_other_arguments_do_not_count():
    """A tiny run says nothing in a document."""
    tiny = [row | {"command": ["random_mixed", "20000", "100", "1"]} for name in ("hakmem", "glibc")
            for row in made_rows.series("mixed", name)]  # fmt: skip
    assert quoted.renderer(parsed(tiny))(["ratio", "mixed", "glibc"]) == "not measured"


# --- filling in -----------------------------------------------------------------------------------------------


def test_filling_and_checking(copy, some):
    texts = {path: path.read_text() for path in copy.rglob("*.md")}
    stale = documents.fill(copy, some, is_check=True)
    assert len(stale) == len(TEMPLATES) + 1
    assert stale[0] == f"README.md:3: block '{WORDS.get(TEMPLATES[0], TEMPLATES[0])}'"
    assert {path: path.read_text() for path in texts} == texts  # a check changes nothing
    assert documents.fill(copy, some) == stale
    assert documents.fill(copy, some, is_check=True) == documents.fill(copy, some) == []
    text = (copy / "README.md").read_text()
    assert text.count("\nbetween\n") == len(TEMPLATES) - 1 and text.endswith("\nend\n")
    assert re.fullmatch(r"It is <!-- .* -->\d\.\d\d<!-- .* --> of mimalloc.\n", (copy / "docs" / "in.md").read_text())
    assert (copy / "docs" / "plain.md").read_text() == "No figures: 1.23.\n"


def test_a_changed_digit_is_found(copy, some):
    documents.fill(copy, some)
    path = copy / "README.md"
    text = path.read_text()
    inside = [place for begin, end, _ in documents.blocks(text, "x")
              for place in range(begin, end) if text[place].isdigit()]  # fmt: skip
    assert len(inside) > 150
    render = quoted.renderer(some)
    made = {tuple(words): render(words) for _, _, words in documents.blocks(text, "x")}

    def cached(words):
        return made[tuple(words)]

    for place in inside[:: len(inside) // 40]:
        wrong = text[:place] + str((int(text[place]) + 1) % 10) + text[place + 1 :]
        assert len(documents.filled(wrong, cached, "README.md")[1]) == 1, text[place - 20 : place + 20]
    assert documents.filled(text, cached, "README.md")[1] == []


def test_a_changed_row_is_found(copy, some):
    documents.fill(copy, some)
    for change in ({"ops_per_s": 0.9}, {"rss_peak_kb": 1.1}):
        changed = []
        for row in some:
            if (row.work, row.allocator) == ("churn-2m", "hakmem"):
                result = {
                    key: value * change.get(key, 1) if key in change else value for key, value in row.result.items()
                }
                row = row.model_copy(update={"result": result})
            changed.append(row)
        assert any("workloads" in place for place in documents.fill(copy, changed, is_check=True))


@pytest.mark.parametrize(("text", "told"), [
    ("a\n<!-- figures: speed -->\n", "docs/bad.md:2: figures without an end"),
    ("<!-- end figures -->", "docs/bad.md:1: an end of figures without a beginning"),
    ("<!-- figures: speed -->\n<!-- figures: speed -->\n<!-- end figures -->", "docs/bad.md:2: figures within figures"),
    ("\n\n<!-- figures: other -->\n<!-- end figures -->", "docs/bad.md:3: there are no figures 'other'"),
    ("<!-- figures: ../speed -->\n<!-- end figures -->", "docs/bad.md:1: '../speed' is no name of figures"),
    ("<!-- figures: ratio mixed -->\n<!-- end figures -->", "docs/bad.md:1: figures 'ratio mixed'"),
])  # fmt: skip
def test_wrong_marks(copy, some, text, told):
    """A sentence with the place; no document is changed, also none that is in order."""
    (copy / "docs" / "bad.md").write_text(text)
    texts = {path: path.read_text() for path in copy.rglob("*.md")}
    with pytest.raises(ValueError, match=re.escape(told)):
        documents.fill(copy, some)
    assert {path: path.read_text() for path in texts} == texts
