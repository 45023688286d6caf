"""Options and functions of hakmem that the documents name exist.

    names.py ROOT

Each run also judges names that are wrong, and must refuse them.
"""

import pathlib
import re
import sys

# Options of the build, and examples of names that do not exist.
ALLOWED = {"HAKMEM_DEFAULT_PROFILE", "HAKMEM_OBSERVE", "HAKMEM_PROBES", "HAKMEM_PROFIL", "HAKMEM_X"}


def unknown(text: str, options: set[str], functions: set[str]) -> set[str]:
    return {*re.findall(r"\bHAKMEM_[A-Z_]*[A-Z]\b", text)} - options - ALLOWED | {
        *re.findall(r"\bhak_[a-z_]+\b", text)
    } - functions


root = pathlib.Path(sys.argv[1])
options = {*re.findall(r"\bHAKMEM_[A-Z_]+\b", (root / "docs" / "options.md").read_text(encoding="utf-8"))}
functions = {name for header in (root / "include" / "hakmem").glob("*.h")
             for name in re.findall(r"\bhak_[a-z_]+\b", header.read_text(encoding="utf-8"))}  # fmt: skip
assert unknown("`HAKMEM_PURGE`, `HAKMEM_PURE`: `hak_trim`, hak_trims(0)", options, functions) == {
    "HAKMEM_PURE", "hak_trims",
}  # fmt: skip
pages = [root / "README.md", *(path for path in (root / "docs").rglob("*.md") if "decisions" not in path.parts)]
wrong = {str(path.relative_to(root)): found for path in pages
         if (found := unknown(path.read_text(encoding="utf-8"), options, functions))}  # fmt: skip
for page, names in wrong.items():
    print(f"{page}: {', '.join(sorted(names))}: there is no such option or function")
print(f"{len(pages)} documents read")
sys.exit(bool(wrong) or len(pages) < 15)
