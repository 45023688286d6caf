"""Imports in lab/ go downwards, and no files import each other in a circle: see lab/README.md."""

import ast
import graphlib
import pathlib

LAYERS = ["judge", "store", "run", "show", "verbs"]
# Libraries that only some layers may use.
ONLY = {
    "typer": {"verbs"},
    "rich": {"verbs", "show"},
    "subprocess": {"run"},
    "matplotlib": {"show"},
    "jinja2": {"show"},
    "pydantic": {"store"},
    "google": {"store"},
    "elftools": {"store"},
    "scipy": {"judge"},
    "simpy": {"judge"},
}


def imported(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{'.' * node.level}{node.module or ''}.{name.name}" for name in node.names)


def faults(folder):
    found, files = [], {}
    for path in sorted(folder.rglob("*.py")):
        layer = path.relative_to(folder).parts[0]
        if layer not in LAYERS:
            continue
        names = files[f"lab.{layer}.{path.stem}"] = set(imported(path))
        for name in sorted(names):
            parts = name.split(".")
            above = parts[0] == "lab" and parts[1] in LAYERS and LAYERS.index(parts[1]) > LAYERS.index(layer)
            if above or name.startswith("."):
                found.append(f"{path.name} ({layer}) imports {name}")
            if layer not in ONLY.get(parts[0], {layer}):
                found.append(f"{path.name} ({layer}) imports {parts[0]}")
    graph = {file: {other for other in files for name in names if name == other or name.startswith(f"{other}.")}
             for file, names in files.items()}  # fmt: skip
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        found.append(f"a circle of imports: {' > '.join(error.args[1])}")
    return found


def test_imports_go_down(tree):
    assert faults(tree / "lab") == []


def test_wrong_imports_are_found(tmp_path):
    for path, text in {
        "judge/x.py": "from lab.run import process",
        "store/x.py": "import lab.show.tables",
        "show/x.py": "import typer",
        "show/y.py": "from . import x",
        "run/x.py": "from lab.run import y",
        "run/y.py": "from lab.run.x import something",
        "run/z.py": "from lab.run import x",
    }.items():
        file = pathlib.Path(tmp_path / path)
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    found = faults(tmp_path)
    assert len(found) == 5 and "circle" in found[-1], found
