"""hakmem-top, in a real terminal (tmux): what is on the screen at 80 by 24 and at other sizes, keys, the end.

screen.py TOP LIBRARY WORKER
"""

import functools
import os
import re
import subprocess
import sys
from contextlib import closing
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import cases


def environment(**more):
    own = {name: value for name, value in cases.environment().items() if not name.startswith("TMUX")}
    return own | {"LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"} | more


class Terminal:
    """One program in a terminal of its own."""

    def __init__(self, command, columns=80, lines=24, **more):
        self.name = f"hakmem-{os.getpid()}"
        new = ("new-session", "-d", "-x", columns, "-y", lines, *self.wrapped(command))
        self.tmux(*new, environment=environment(**more))

    @staticmethod
    def wrapped(command):
        """What the shell says afterwards stays on the screen: the program's status."""
        return ("sh", "-c", '"$@"; echo "status $?"; sleep 60', "sh", *map(str, command))

    def tmux(self, *words, environment=None):
        command = ["tmux", "-L", self.name, "-f", "/dev/null", *map(str, words)]
        result = subprocess.run(command, check=False, capture_output=True, text=True, env=environment, timeout=200)
        assert result.returncode == 0, f"{command}: {result.stderr}"
        return result.stdout

    def screen(self):
        return self.tmux("capture-pane", "-p").rstrip("\n").split("\n")

    def press(self, *keys):
        self.tmux("send-keys", *keys)

    def resize(self, columns, lines):
        self.tmux("resize-window", "-x", columns, "-y", lines)

    def until(self, condition):
        """The screen, once the condition holds of it."""
        def seen():
            lines = self.screen()
            assert condition(lines), "this was not to be seen:\n" + "\n".join(lines)
            return lines

        return cases.until(seen, AssertionError)

    def shows(self, *texts):
        return self.until(lambda lines: all(any(text in line for line in lines) for text in texts))

    def close(self):
        subprocess.run(["tmux", "-L", self.name, "kill-server"], check=False, capture_output=True)


def worker():
    return cases.running(WORKER, "idle", env=environment(LD_PRELOAD=LIBRARY, HAKMEM_LIVE="1"))


UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def sizes(line):
    return [float(number) * UNITS[unit] for number, unit in re.findall(r"([\d.]+) ([KMG]?i?B)\b", line)]


def table(lines, title):
    """The lines of the table below its titles."""
    at = next(i for i, line in enumerate(lines) if title in line)
    return [line for line in lines[at + 1 : -1] if line.strip()]


def judge_80x24(lines, pid):
    """The whole screen of the view of classes."""
    assert len(lines) == 24 and max(map(len, lines)) <= 80, lines
    assert lines[0].startswith(f" hakmem top  {pid} ") and " threads, figures of " in lines[0], lines[0]
    live, heap, most, resident, _ = sizes(lines[1])
    assert 30 * UNITS["MiB"] < live <= heap <= most and resident > UNITS["MiB"], lines[1]
    assert "refills" in lines[2] and "given back" in lines[2] and "heap over the last" in lines[3]
    graph = lines[4:9]
    assert "█" in graph[-1] and graph[-1].lstrip().startswith("0 B"), graph
    assert all(line[80:] == "" for line in lines)
    tabs = lines[10]
    assert [word for word in tabs.split() if len(word) > 1] == ["classes", "sites", "threads", "purge"], tabs
    assert lines[11].split() == ["blocks", "of", "slabs", "live", "in", "bins", "free", "used"], lines[11]
    rows = [sizes(line) for line in table(lines, "blocks of")]
    assert rows and all(len(row) == 5 for row in rows), lines
    lives = [row[2] for row in rows]
    assert lives == sorted(lives, reverse=True), lives
    assert lines[23].startswith(" q quit  h help"), lines[23]


refuses = functools.partial(cases.refuses, (AssertionError, ValueError, StopIteration))


def the_screen_is_as_expected(_):
    with worker() as process, closing(Terminal([TOP, process.pid])) as terminal:
        lines = terminal.shows("blocks of", "64 B", "█", " q quit")  # the last line is drawn last
        judge_80x24(lines, process.pid)
        refuses(judge_80x24, [*lines[:12], lines[13], lines[12], *lines[14:]], process.pid)
        refuses(judge_80x24, lines[:-1], process.pid)
        refuses(judge_80x24, [line + " " * 60 + "x" for line in lines], process.pid)
        keys(terminal, process)
        sizes_of_terminals(terminal)
        process.stdin.close()
        process.wait(20)
        terminal.shows("the process has ended")
        terminal.press("q")
        terminal.shows("status 0")


def keys(terminal, process):
    terminal.press("s")
    rows = table(terminal.shows("large objects of"), "large objects of")
    assert any("test-live-worker+0x" in row and " 32 " in row for row in rows), rows
    terminal.press("t")
    terminal.until(lambda lines: any(f"test-live-w {process.pid}" in line for line in lines))
    terminal.press("p")
    terminal.shows("what was done", "calls_advise")
    terminal.press("<", "<")  # by name
    terminal.until(lambda lines: table(lines, "what was done")[0].split()[0] == "purges")
    terminal.press("r")
    terminal.until(lambda lines: table(lines, "what was done")[0].split()[0] == "bin_shrinks")
    terminal.press("Tab")
    terminal.shows("blocks of")
    terminal.press("<", "<")  # by the length of blocks
    terminal.until(lambda lines: is_falling([sizes(line)[0] for line in table(lines, "blocks of")]))
    first = table(terminal.screen(), "blocks of")[0]
    terminal.press("Down")
    terminal.until(lambda lines: table(lines, "blocks of")[0] != first)
    terminal.press("Home", "h")
    terminal.shows("the last look took", "more often")
    terminal.press("x", "l")
    choose(terminal, process.pid)
    terminal.shows("blocks of", f" hakmem top  {process.pid} ")


def is_falling(values):
    return len(values) > 1 and values == sorted(values, reverse=True)


def choose(terminal, pid):
    """Others of this user may be looked at, too. While the screen changes, it shows parts of both."""
    def pids(lines):
        return [line.split()[0] for line in lines[2:-1] if line.strip()]

    lines = terminal.until(lambda lines: "processes with" in lines[0] and str(pid) in pids(lines)
                           and all(word.isdigit() for word in pids(lines)))  # fmt: skip
    terminal.press(*["Down"] * pids(lines).index(str(pid)), "Enter")


def sizes_of_terminals(terminal):
    for columns, rows in ((60, 15), (132, 50), (40, 10), (80, 24)):
        terminal.resize(columns, rows)
        lines = terminal.until(
            lambda lines, rows=rows: len(lines) == rows and lines[-1].startswith(" q quit") and "hakmem top" in lines[0]
        )
        assert max(map(len, lines)) <= columns, lines
        assert "c classes" in " ".join(lines) and "blocks of" in " ".join(lines), lines
        assert ("heap over" in lines[3]) == (rows > 11), lines


def without_a_library_of_characters(_):
    """A terminal that knows ASCII only."""
    with worker() as process, closing(Terminal([TOP, process.pid], LANG="C", LC_ALL="C")) as terminal:
        lines = terminal.shows("blocks of", "#")
        assert all(line.isascii() for line in lines), lines


def fails(*words, said):
    assert cases.tool(TOP, *words, said=said, status=2, env=environment()) == ""


def what_cannot_be_shown(_):
    with worker() as process:
        fails(process.pid, said="needs a terminal")
        fails("x", said="'x' is no process id")
        fails("1", "2", said="one argument too many")
        fails("999999999", said="there is no process 999999999")
        with closing(Terminal(["env", "TERM=nonsense", TOP, process.pid])) as terminal:
            terminal.shows("this terminal is not known", "status 2")


TOP, LIBRARY, WORKER = sys.argv[1:4]
cases.need("tmux")
cases.run(the_screen_is_as_expected, without_a_library_of_characters, what_cannot_be_shown)
