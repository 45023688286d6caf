"""Links in the documents of the tree lead to files and headings that exist, and no line of prose is too long.

    links.py ROOT

Each run also judges links and lines that are wrong, and must refuse them.
"""

import pathlib
import re
import sys
import tempfile

LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")
FENCED = re.compile(r"```.*?```|^ {4}[^\n]*|`[^`\n]*`", re.DOTALL | re.MULTILINE)
COLUMNS = 120
HEADING = re.compile(r"^#+ +(.*)$", re.MULTILINE)


def anchors(text: str) -> set[str]:
    """The names that GitHub gives the headings of a page."""
    plain = (re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", head).lower() for head in HEADING.findall(text))
    return {re.sub(r"[^\w\- ]", "", head).strip().replace(" ", "-") for head in plain}


def wrong_links(root: pathlib.Path, paths: list[pathlib.Path]) -> list[str]:
    wrong = []
    for path in paths:
        for target in LINK.findall(FENCED.sub(" ", path.read_text(encoding="utf-8"))):
            if re.match(r"[a-z]+:", target):
                continue
            name, _, anchor = target.partition("#")
            to = (path.parent / name).resolve() if name else path
            if not to.exists():
                wrong.append(f"{path.relative_to(root)}: {target}: there is no such file")
            elif anchor and (to.suffix != ".md" or anchor not in anchors(to.read_text(encoding="utf-8"))):
                wrong.append(f"{path.relative_to(root)}: {target}: there is no such heading")
    return wrong


def long_lines(root: pathlib.Path, paths: list[pathlib.Path]) -> list[str]:
    """Lines over COLUMNS, but for those of tables and code."""
    wrong = []
    for path in paths:
        is_code = False
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            is_code ^= line.startswith("```")
            if len(line) > COLUMNS and not is_code and not line.lstrip().startswith(("|", "[![")) and line[:4].strip():
                wrong.append(f"{path.relative_to(root)}: {number}: {len(line)} columns")
    return wrong


def documents(root: pathlib.Path) -> list[pathlib.Path]:
    folders = (root, *(root / name for name in ("docs", "src", "observe", "tools", "bench", "lab", "tests", "include", "packaging")))
    return sorted({path for folder in folders for path in (folder.glob("*.md") if folder == root else folder.rglob("*.md"))})


def control() -> None:
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name).resolve()
        (root / "a.md").write_text("# One `word` more\n[a](b.md) [b](a.md#one-word-more) [c](https://a.b/c) `[d](e)`\n")
        (root / "b.md").write_text("[file](c.md) [heading](a.md#two) [here](#three)\n")
        found = wrong_links(root, documents(root))
        (root / "c.md").write_text(f"{'a ' * COLUMNS}\n| {'b ' * COLUMNS}|\n\n    {'c ' * COLUMNS}\n```\n{'d ' * COLUMNS}\n")
        too_long = long_lines(root, documents(root))
    assert [line.split(":")[1].strip() for line in found] == ["c.md", "a.md#two", "#three"], found
    assert too_long == [f"c.md: 1: {2 * COLUMNS} columns"], too_long


control()
tree = pathlib.Path(sys.argv[1]).resolve()
pages = documents(tree)
problems = wrong_links(tree, pages) + long_lines(tree, pages)
print("\n".join(problems) or f"{len(pages)} documents, all links lead somewhere, no line is too long")
sys.exit(bool(problems) or len(pages) < 20)
