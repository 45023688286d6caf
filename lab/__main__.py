"""python3 -m lab VERB ...: the verbs of `hak` that measure. A verb's module is imported when it is wanted."""

import errno
import importlib
import os
import re
import signal
import sys

# verb -> what `hak help` says of it; lab/verbs/VERB.py has the function `run` and perhaps EPILOG, SETTINGS, and WORDS: what
# a first argument stands for instead, a function and its help.
VERBS = {
    "bench": "Runs the benchmark programs on hakmem and its peers in turns; prints medians, ratios and verdicts.",
    "compare": "Runs your own program on glibc, the peers and hakmem's presets in turns, and recommends one.",
    "soak": "Runs one benchmark for minutes, an epoch a second to CSV; reports drift, spread and tail.",
    "record": "Records the allocations of a program to a trace.",
    "replay": "Replays a trace on several allocators in turns.",
    "profile": "Runs a program with the heap profiler on, and says what held its memory.",
    "report": "Writes the scorecard: HTML, Markdown and JSON; or the figures in the documents.",
}


def _open_streams() -> None:
    """Python has none for a descriptor that is closed. The program that a verb runs does not inherit these. What is written
    to a closed stdout is an error."""
    for name, access in (("stdout", os.O_RDONLY), ("stderr", os.O_WRONLY)):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.open(os.devnull, access), "w"))  # to the end


def _give_up(error: OSError) -> None:
    """stdout cannot be written to: a full disk, for example. No other error comes here: verbs say those themselves."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what Python still writes at its end
    if error.errno != errno.EPIPE:
        print(f"hak: {error.filename or 'stdout'}: {error.strerror}", file=sys.stderr)
    sys.exit(1)


def _refuse(name: str, message: str) -> int:
    """One line about wrong usage, where typer prints four. Returns the exit status."""
    sentence = " ".join(message.split()).removesuffix(".")
    sentence = re.sub(r"Input should be ([^,]*).*", r"it is not \1", sentence)  # a library's words, of a number
    print(f"hak: {name.removeprefix('hak ')}: {sentence}; see: {name} --help", file=sys.stderr)
    return 2


def main(words: list[str]) -> None:
    _open_streams()
    verb = words[0] if words else ""
    if verb not in VERBS:
        print(f"hak: unknown verb '{verb}'; known: {', '.join(VERBS)}", file=sys.stderr)
        sys.exit(2)
    # They import for a second; an interruption then ends this process without a traceback.
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    typer, module = map(importlib.import_module, ("typer", f"lab.verbs.{verb}"))
    signal.signal(signal.SIGINT, before)
    function, told, name, rest = module.run, VERBS[verb], f"hak {verb}", words[1:]
    settings = getattr(module, "SETTINGS", {})  # click's context settings
    epilog = getattr(module, "EPILOG", None)
    if rest and rest[0] in getattr(module, "WORDS", {}):
        (function, told), name, settings, epilog = module.WORDS[rest[0]], f"{name} {rest[0]}", {}, None
        rest = rest[1:]
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    app.command(help=told, epilog=epilog, context_settings=settings)(function)
    try:
        try:
            status = app(args=rest, prog_name=name, standalone_mode=False)
        except typer.BadParameter.__base__ as error:  # UsageError
            status = _refuse(name, error.format_message())
        finally:
            sys.stdout.flush()
    except OSError as error:
        _give_up(error)
    sys.exit(status)


if __name__ == "__main__":
    main(sys.argv[1:])
