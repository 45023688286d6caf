"""python3 -m lab VERB ...: the verbs of `hak` that measure. A verb's module is imported when it is wanted."""

import importlib
import sys

import typer

# verb -> what `hak help` says of it; lab/verbs/VERB.py has the function `run` and perhaps EPILOG, SETTINGS, and WORDS: what
# a first argument stands for instead, a function and its help.
VERBS = {
    "bench": "Runs the benchmark programs on hakmem and its peers in turns; prints medians, ratios and verdicts.",
    "compare": "Runs your own program on glibc, the peers and hakmem's profiles in turns, and recommends one.",
    "soak": "Runs one benchmark for minutes, an epoch a second to CSV; reports drift, spread and tail.",
    "record": "Records the allocations of a program to a trace.",
    "replay": "Replays a trace on several allocators in turns.",
    "profile": "Runs a program with the heap profiler on, and says what held its memory.",
    "report": "Writes the scorecard: HTML, Markdown and JSON; or the figures in the documents.",
}


def main(words: list[str]) -> None:
    verb = words[0] if words else ""
    if verb not in VERBS:
        print(f"hak: unknown verb '{verb}'; known: {', '.join(VERBS)}", file=sys.stderr)
        sys.exit(2)
    module = importlib.import_module(f"lab.verbs.{verb}")
    function, told, name, rest = module.run, VERBS[verb], f"hak {verb}", words[1:]
    settings = getattr(module, "SETTINGS", {})  # click's context settings
    epilog = getattr(module, "EPILOG", None)
    if rest and rest[0] in getattr(module, "WORDS", {}):
        (function, told), name, settings, epilog = module.WORDS[rest[0]], f"{name} {rest[0]}", {}, None
        rest = rest[1:]
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    app.command(help=told, epilog=epilog, context_settings=settings)(function)
    app(args=rest, prog_name=name)


if __name__ == "__main__":
    main(sys.argv[1:])
