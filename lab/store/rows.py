"""Stored rows: one JSON object a line, one line a measured run, each complete by itself.

    with Writer(path, context) as writer: writer.write(...)     append
    read([path, ...])                                           every row, checked; BadRow says where and what

A row says what ran, on what, how it was set up, and what came out. It holds no path of the machine: of absolute
paths, in whatever field, the last component is kept.
"""

import contextlib
import datetime
import json
import os
import pathlib
import re
import uuid
from collections.abc import Iterable, Mapping
from typing import IO, Literal

import pydantic

SCHEMA = 1
Scalar = bool | int | float | str | None
Value = Scalar | list[float] | list[int] | list[str]


class BadRow(ValueError):
    """A sentence with the file and the line."""


class _Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, populate_by_name=True, allow_inf_nan=False)


class Machine(_Model):
    cpu: str
    architecture: str
    cpus: int = pydantic.Field(ge=1)
    memory_kb: int = pydantic.Field(ge=0)
    kernel: str
    libc: str
    thp: str  # /sys/kernel/mm/transparent_hugepage/enabled
    overcommit: str


class Context(_Model):
    """What the rows of one invocation have in common."""

    session: str  # one invocation; its allocators took turns
    commit: str  # ends in +changes if the tree was not clean
    flags: dict[str, str]  # of the benchmark and of the library
    machine: Machine


class Row(Context):
    format_version: Literal[1] = pydantic.Field(default=SCHEMA, alias="schema")
    kind: Literal["bench", "soak", "compare", "replay", "policy", "security"]
    time: datetime.datetime
    work: str  # the name of the workload
    command: list[str]  # the program and its arguments
    seed: int | None = None
    allocator: str  # the name in tables
    library: str | None  # file that was preloaded; None: libc's malloc
    version: str = ""
    settings: dict[str, str] = {}  # environment variables besides the clean ones
    run: int = pydantic.Field(ge=1)
    n: int = pydantic.Field(ge=1)  # runs asked for
    cpu_pinned: int | None = None
    clock: Literal["wall", "cpu"] = "wall"  # what rates were computed from
    load: float = 0.0  # load average when the run began
    is_tiny: bool = False  # almost nothing was done: no figure of it means anything
    # System calls are those of a run that is not stored: counting slows them.
    result: dict[str, Value]


def session_name() -> str:
    return uuid.uuid4().hex[:12]


# An absolute path begins a word: what stands within one, as in base64, is none.
PATH = re.compile(r"(?:^|(?<=[\s=:,;\"'(]))/(?:[^\s/:,;=\"']+/)*([^\s/:,;=\"']+)/?")


def without_paths(value: Value) -> Value:
    """/home/me/x is x, and --out=/home/me/x is --out=x."""
    return PATH.sub(r"\1", value) if isinstance(value, str) else value


def _is_cut(path: str | os.PathLike) -> bool:
    """Whether a file ends within a row, which would damage the next one."""
    with open(path, "rb") as file:
        return file.seek(0, os.SEEK_END) > 0 and file.seek(-1, os.SEEK_END) >= 0 and file.read() != b"\n"


class Writer:
    """Appends rows to a file; without a path it checks them and writes nothing."""

    def __init__(self, path: str | os.PathLike | None, context: Context):
        self.context = context
        self.problem = ""  # why rows are no longer stored
        self.file: IO[str] | None = open(path, "a", encoding="utf-8") if path else None
        if self.file and os.path.isfile(path) and _is_cut(path):
            self.file.write("\n")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.file:
            self.file.close()

    def stop(self, problem: str) -> None:
        """Stores no more, as what was stored may end within a row."""
        self.problem, file, self.file = self.problem or problem, self.file, None
        if file:
            with contextlib.suppress(OSError):
                file.close()

    def keep(self, **fields) -> None:
        """As write. If the row cannot be stored, measuring goes on: the tables are worth having."""
        try:
            self.write(**fields)
        except OSError as error:
            self.stop(f"rows are no longer stored: {error.strerror}")

    def write(
        self, *, command: Iterable[str], library: str | None, result: dict, settings: Mapping[str, str] = {}, **fields
    ) -> Row:
        """fields: the others of a Row; those of the context hold unless given."""
        row = Row(
            **(dict(self.context) | fields),
            time=datetime.datetime.now(datetime.UTC).replace(microsecond=0),
            command=[str(without_paths(str(word))) for word in command],
            library=library and os.path.basename(library),
            result={key: without_paths(value) for key, value in result.items()},
            settings={name: str(without_paths(value)) for name, value in settings.items()},
        )
        if self.file:
            self.file.write(dump(row) + "\n")
            self.file.flush()
        return row


def dump(row: Row) -> str:
    return row.model_dump_json(by_alias=True)


def parse(line: str, where: str) -> Row:
    try:
        fields = json.loads(line)
    except ValueError as error:
        raise BadRow(f"{where}: not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise BadRow(f"{where}: not an object")
    if fields.get("schema") != SCHEMA:
        raise BadRow(f"{where}: schema {fields.get('schema')!r}; this hakmem reads {SCHEMA}")
    try:
        return Row.model_validate(fields)
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        said = first["msg"].replace("Input should be", "it is not")
        raise BadRow(f"{where}: {'.'.join(map(str, first['loc']))}: {said}") from None


def read(paths: Iterable[str | os.PathLike]) -> list[Row]:
    """All rows of the files, in order. Raises BadRow, or OSError."""
    rows = []
    for path in paths:
        name = pathlib.Path(path).name
        with open(path, encoding="utf-8", errors="replace") as file:
            rows += [parse(line, f"{name}:{number}") for number, line in enumerate(file, 1) if line.strip()]
    return rows
