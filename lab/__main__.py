"""python3 -m lab VERB ...: the verbs of `hak` that measure. A verb's module is imported when it is wanted."""

import importlib
import sys

import typer

# verb -> what `hak help` says of it; lab/verbs/VERB.py has the function `run` and perhaps EPILOG.
VERBS = {
    "bench": "Runs the benchmark programs on hakmem and its peers in turns; prints medians, ratios and verdicts.",
    "compare": "Runs your own program on glibc, the peers and hakmem's profiles in turns, and recommends one.",
    "soak": "Runs one benchmark for minutes, an epoch a second to CSV; reports drift, spread and tail.",
    "record": "Records the allocations of a program to a trace.",
    "replay": "Replays a trace on several allocators in turns.",
    "report": "Writes the scorecard: HTML, Markdown and JSON; or the figures in the documents.",
}


def main(words: list[str]) -> None:
    verb = words[0] if words else ""
    if verb not in VERBS:
        print(f"hak: unknown verb '{verb}'; known: {', '.join(VERBS)}", file=sys.stderr)
        sys.exit(2)
    module = importlib.import_module(f"lab.verbs.{verb}")
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    settings = getattr(module, "SETTINGS", {})  # click's context settings
    app.command(help=VERBS[verb], epilog=getattr(module, "EPILOG", None), context_settings=settings)(module.run)
    app(args=words[1:], prog_name=f"hak {verb}")


if __name__ == "__main__":
    main(sys.argv[1:])
