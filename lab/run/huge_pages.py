"""The system's setting of transparent huge pages, for the rows that ask for one (as root)."""

import contextlib
import os
import pathlib
import subprocess
from collections.abc import Iterator

WORDS = ("always", "madvise", "never")
SETTING = pathlib.Path("/sys/kernel/mm/transparent_hugepage/enabled")
# The keeper: puts the setting back when its input ends, which is when the process that started it ends, however.
KEEPER = 'trap "" HUP INT TERM; read -r _; printf %s "$0" >"$1"'


def read(setting: pathlib.Path = SETTING) -> str:
    """The word in brackets; "" if the kernel has no such setting."""
    try:
        text = setting.read_text(encoding="utf-8")
    except OSError:
        return ""
    return text[text.find("[") + 1 : text.find("]")] if "[" in text else text.strip()


def missing(setting: pathlib.Path = SETTING) -> str:
    """Why it cannot be switched, or nothing."""
    if not read(setting):
        return f"no {setting}"
    return "" if os.access(setting, os.W_OK) else f"cannot write {setting}, which needs root"


class Refused(Exception):
    """The kernel does not take the setting."""


@contextlib.contextmanager
def switched(word: str, setting: pathlib.Path = SETTING) -> Iterator[None]:
    """Inside, the system has this setting; "": the one that it has. Refused if the kernel does not take it."""
    if not word:
        yield
        return
    # In a session of its own, so that what interrupts this process does not reach it. Programs that are started inside
    # do not inherit the pipe.
    with subprocess.Popen(
        ["/bin/sh", "-c", KEEPER, read(setting), str(setting)], stdin=subprocess.PIPE, start_new_session=True
    ):  # the end closes the pipe and waits
        try:
            setting.write_text(word, encoding="utf-8")
        except OSError as error:
            raise Refused(f"{setting}: {error.strerror}") from None
        if read(setting) != word:
            raise Refused(f"{setting} does not take '{word}'")
        yield
