"""The technical report: each reference is cited and each citation has one, each figure is there, sections are in order.

    report.py ROOT

Each run also judges reports that are wrong, and must refuse them.
"""

import pathlib
import re
import sys
import tempfile


def problems(path: pathlib.Path) -> list[str]:
    text = path.read_text(encoding="utf-8")
    body, _, references = text.partition("\n## References\n")
    listed = [int(number) for number in re.findall(r"^(\d+)\. ", references, re.MULTILINE)]
    cited = {int(number) for number in re.findall(r"\[\[(\d+)\]\]\(#references\)", body)}
    sections = [int(number) for number in re.findall(r"^## (\d+) ", body, re.MULTILINE)]
    captions = [int(number) for number in re.findall(r"^\*Figure (\d+)\.", body, re.MULTILINE)]
    pictures = re.findall(r"!\[[^\]]*\]\(([^)]*)\)", body)
    wrong = [f"[{number}] is cited and not listed" for number in sorted(cited - set(listed))]
    wrong += [f"[{number}] is listed and not cited" for number in sorted(set(listed) - cited)]
    for what, numbers in (("references", listed), ("sections", sections), ("figures", captions)):
        if not numbers or numbers != list(range(1, len(numbers) + 1)):
            wrong.append(f"{what} are numbered {numbers}")
    wrong += [f"{name} is not there" for name in pictures if not (path.parent / name).is_file()]
    drawn = {f"figures/{each.name}" for each in (path.parent / "figures").glob("*.svg")}
    wrong += [f"{name} is not shown" for name in sorted(drawn - set(pictures))]
    return wrong


def control() -> None:
    right = "# T\n\n## 1 A\n\nas in [[1]](#references).\n\n![a](figures/a.svg)\n\n*Figure 1. A.*\n\n## References\n\n1. B.\n"
    faults = {"[[1]]": "[[2]]", "## 1 A": "## 2 A", "1. B.\n": "1. B.\n2. C.\n", "figures/a": "figures/b", "*Figure 1": "*Figure 2"}
    with tempfile.TemporaryDirectory() as name:
        page = pathlib.Path(name) / "page.md"
        (page.parent / "figures").mkdir()
        (page.parent / "figures" / "a.svg").write_text("<svg/>")
        page.write_text(right)
        assert problems(page) == [], problems(page)
        for old, new in faults.items():
            page.write_text(right.replace(old, new))
            assert problems(page), f"'{new}' is not noticed"


control()
found = problems(pathlib.Path(sys.argv[1]) / "docs" / "design.md")
print("\n".join(found) or "the report's references, sections and figures are in order")
sys.exit(bool(found))
