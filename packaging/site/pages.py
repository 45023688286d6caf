"""The documents as mkdocs wants them.

    pages.py SOURCE PAGES [SCORECARD]

Copies the documents, and the files that they link to, to the folder PAGES. Links stay as they are; one to a folder leads to a
list of its pages. SCORECARD is the folder that `hak report` wrote.
"""

import pathlib
import re
import shutil
import sys

LINK = re.compile(r"(\[[^\]\n]*\]\()([^)\s#]+)((?:#[^)\s]*)?\))")
FOLDERS = (".", "docs", "src", "bench", "lab", "lab/results", "tests", "packaging/python", "packaging/rust")


def documents(source: pathlib.Path) -> list[pathlib.Path]:
    found = [path for folder in FOLDERS for path in sorted((source / folder).glob("*.md"))]
    return found + [path for folder in ("docs/coming-from", "docs/decisions") for path in sorted((source / folder).glob("*.md"))]


def title(path: pathlib.Path) -> str:
    return path.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")


def with_blank_lines(text: str) -> str:
    """A list may follow a paragraph without a blank line, but not for mkdocs."""
    lines, is_code = [], False
    for line in text.splitlines():
        is_code ^= line.startswith("```")
        before = lines[-1] if lines else ""
        if not is_code and line.startswith("- ") and before and not before.startswith(("- ", " ")):
            lines.append("")
        lines.append(line)
    return "\n".join(lines) + "\n"


def main(source: pathlib.Path, pages: pathlib.Path, scorecard: pathlib.Path | None) -> None:
    shutil.rmtree(pages, ignore_errors=True)
    wanted = documents(source)

    def copied(path: pathlib.Path, text: str) -> None:
        to = pages / path.relative_to(source)
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_text(text, encoding="utf-8")

    for path in wanted:

        def link(match: re.Match, path: pathlib.Path = path) -> str:
            target = (path.parent / match[2]).resolve()
            if re.match(r"[a-z]+:", match[2]) or not target.is_relative_to(source):
                return match[0]
            if target.is_dir():
                if not (pages / target.relative_to(source) / "README.md").exists() and not (target / "README.md").exists():
                    inside = sorted(target.glob("*.md")) or sorted(each for each in target.iterdir() if each.is_file())
                    for each in inside:
                        if each.suffix != ".md":
                            copied(each, each.read_text(encoding="utf-8"))
                    lines = [f"- [{title(each) if each.suffix == '.md' else each.name}]({each.name})" for each in inside]
                    copied(target / "README.md", f"# {target.name}\n\n" + "\n".join(lines) + "\n")
                return f"{match[1]}{match[2].rstrip('/')}/README.md{match[3]}"
            if target.is_file() and target.suffix != ".md":
                copied(target, target.read_text(encoding="utf-8"))
            return match[0]

        text = LINK.sub(link, path.read_text(encoding="utf-8"))
        if scorecard and path == source / "docs/README.md":
            text += "\n[The scorecard](../scorecard/index.html): all measurements, as one page.\n"
        copied(path, with_blank_lines(text))
    if scorecard:
        shutil.copytree(scorecard, pages / "scorecard")


main(*(pathlib.Path(word).resolve() for word in sys.argv[1:3]), pathlib.Path(sys.argv[3]) if len(sys.argv) > 3 else None)
