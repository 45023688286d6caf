"""Imports in lab/ go downwards: see lab/README.md."""

import ast
import pathlib

LAYERS = ["judge", "store", "run", "show", "verbs"]
# Libraries that only some layers may use.
ONLY = {
    "typer": {"verbs"},
    "rich": {"verbs", "show"},
    "subprocess": {"run"},
    "matplotlib": {"show"},
    "jinja2": {"show"},
}


def imported(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{name.name}" for name in node.names)


def faults(folder):
    found = []
    for path in sorted(folder.rglob("*.py")):
        layer = path.relative_to(folder).parts[0]
        if layer not in LAYERS:
            continue
        for name in imported(path):
            parts = name.split(".")
            if (
                parts[0] == "lab"
                and len(parts) > 1
                and parts[1] in LAYERS
                and LAYERS.index(parts[1]) > LAYERS.index(layer)
            ):
                found.append(f"{path.name} ({layer}) imports {name}")
            if layer not in ONLY.get(parts[0], {layer}):
                found.append(f"{path.name} ({layer}) imports {parts[0]}")
    return found


def test_imports_go_down(tree):
    assert faults(tree / "lab") == []


def test_a_wrong_import_is_found(tmp_path):
    for layer, text in (
        ("judge", "from lab.run import process"),
        ("store", "import lab.show.tables"),
        ("show", "import typer"),
        ("run", "x = 1"),
    ):
        (tmp_path / layer).mkdir()
        pathlib.Path(tmp_path / layer / "x.py").write_text(text)
    assert len(faults(tmp_path)) == 3
