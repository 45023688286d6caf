"""Several files that belong together."""

import contextlib
import os
import pathlib
from collections.abc import Mapping


@contextlib.contextmanager
def _named(path: pathlib.Path):
    """An error inside is one of this file. That of a write has no name, and others would have that of the part."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


def write(texts: Mapping[pathlib.Path, str]) -> list[pathlib.Path]:
    """Every text is written beside its file first; only when that went well for all do they take their names, so that a
    full disk leaves all files as they were. OSError."""
    beside = {path: path.with_name(f".{path.name}.part") for path in texts}
    try:
        for path, text in texts.items():
            with _named(path):
                beside[path].write_text(text, encoding="utf-8", errors="replace")
                if path.exists():
                    beside[path].chmod(path.stat().st_mode & 0o7777)
        for path, part in beside.items():
            with _named(path):
                os.replace(part, path)
    finally:
        for part in beside.values():
            part.unlink(missing_ok=True)
    return list(texts)
