"""Options, functions and files of hakmem that the documents name exist.

    names.py ROOT

Each run also judges names that are wrong, and must refuse them.
"""

import pathlib
import re
import sys

# Options of the build, and examples of names that do not exist.
ALLOWED = {"HAKMEM_DEFAULT_PROFILE", "HAKMEM_OBSERVE", "HAKMEM_PROBES", "HAKMEM_PROFIL", "HAKMEM_X"}
# Names of others' that stand alone in pages about hakmem.
OF_OTHERS = {"exc_page_fault", "get_robust_list", "je_malloc"}
# What the sources are: a name of hakmem's is a word there.
SOURCES = ("src", "observe", "include", "compat", "tools", "bench", "lab", "tests", "packaging")
PLACES = ("", "src/", "observe/", "include/")  # where a path in a page may begin
FILE = re.compile(r"[\w-]+(?:/[\w.-]+)+\.(?:c|h|py|sh|pml|def)")


def lost(text: str, words: set[str], files: set[str]) -> set[str]:
    """Names with an underscore, and paths of sources, in backticks, of which there are none."""
    quoted = re.findall(r"`([^`\n]+)`", re.sub(r"^    .*", "", text, flags=re.MULTILINE))
    names = {name for code in quoted if re.fullmatch(r"\w+(\(.*\))?", code) for name in re.findall(r"^[a-z]+_[a-z_]*[a-z]\b", code)}
    paths = {code for code in quoted if FILE.fullmatch(code) and not code.startswith("sys/") and "NAME" not in code}
    return names - words - OF_OTHERS | {path for path in paths if not any(place + path in files for place in PLACES)}


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
assert lost("`bin_refill`, `bin_refil(x)`, `heap/bin.c`, `heap/bun.c`\n\n    `no_name`", {"bin_refill"}, {"src/heap/bin.c"}) == {
    "bin_refil", "heap/bun.c",
}  # fmt: skip
pages = [root / "README.md", *(path for path in (root / "docs").rglob("*.md") if "decisions" not in path.parts)]
wrong = {str(path.relative_to(root)): found for path in pages
         if (found := unknown(path.read_text(encoding="utf-8"), options, functions))}  # fmt: skip
files = {str(path.relative_to(root)): path for folder in SOURCES for path in (root / folder).rglob("*")
         if path.is_file() and path.parent != root / "tests" / "docs" and path.suffix in (".c", ".h", ".py", ".sh", ".pml", ".def", ".cc", ".txt")}  # fmt: skip
words = {word for path in files.values() for word in re.findall(r"\w+", path.read_text(encoding="utf-8", errors="replace"))}
ours = [path for path in pages if path.parent.name != "coming-from" and path.name != "comparison.md"]  # those name others' calls
for path in (*ours, root / "ARCHITECTURE.md", root / "CONTRIBUTING.md", root / "src" / "README.md"):
    if found := lost(path.read_text(encoding="utf-8"), words, set(files)):
        wrong.setdefault(str(path.relative_to(root)), set()).update(found)
for page, names in wrong.items():
    print(f"{page}: {', '.join(sorted(names))}: there is no such option, function or file")
print(f"{len(pages)} documents read")
sys.exit(bool(wrong) or len(pages) < 15)
