"""hak compare: the user's own program under several allocators, and which one to use."""

import os
import pathlib
from typing import Annotated

import typer
from rich.console import Console

from lab.judge import recommend
from lab.run import allocators, compare, machine
from lab.show import compare as show
from lab.verbs import arguments

REFERENCE = "glibc"
DEFAULT = ("mimalloc", "jemalloc", "tcmalloc", "hakmem-speed", "hakmem", "hakmem-lean")
DEFAULT_RUNS = 14  # for six allocators, one odd run more or less does not hide a difference
SETTINGS = {"allow_interspersed_args": False}
EPILOG = f"""CMD gets your environment, without what would disturb (LD_PRELOAD and allocators' settings; it is said what
was dropped). An allocator is one of {allocators.KNOWN}. The reference is glibc, or the malloc that the
program brings along. For a server, --until CMD is the load: it runs once the server listens (or --ready succeeds), its
duration is the time, then the server gets SIGTERM. Example:
hak compare --until 'redis-benchmark -q -t set -n 100000' -- redis-server --save ''"""


def run(
    words: Annotated[list[str], typer.Argument(metavar="[--] CMD [ARGUMENT]...", help="the program", show_default=False)],
    against: Annotated[str, typer.Option(metavar="LIST", help="what to compare with glibc")] = ",".join(DEFAULT),
    lib: arguments.Libraries = None,
    runs: arguments.Rounds = DEFAULT_RUNS,
    until: Annotated[str | None, typer.Option(metavar="CMD", help="CMD is a server; this is the load on it")] = None,
    ready: Annotated[str | None, typer.Option(metavar="CMD", help="succeeds when the server can be loaded")] = None,
    timeout: arguments.Timeout = 600,
    pin: Annotated[str, typer.Option(metavar="CPU", help="one CPU for CMD, or none")] = "none",
    env: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="set for CMD")] = None,
    clean: Annotated[bool, typer.Option("--clean", help="CMD gets PATH, HOME, TMPDIR, LC_ALL=C and --env only")] = False,
    stdin: Annotated[pathlib.Path | None, typer.Option(metavar="FILE", help="what CMD reads; else nothing")] = None,
    same_output: Annotated[bool, typer.Option("--same-output",
        help="stdout (of the load, for a server) must be the reference's")] = False,
    json_file: arguments.Rows = None,
    build_dir: arguments.BuildDir = None,
) -> None:  # fmt: skip
    build = arguments.build_dir(build_dir)
    with arguments.refusals():
        if ready and not until:
            raise ValueError("--ready needs --until: it is about servers")
        found = allocators.find_all(against, build, arguments.pairs(lib, "--lib"))
        if any(allocator.name == REFERENCE and allocator.library for allocator in found):
            raise ValueError(f"{REFERENCE} is the reference, and nothing is preloaded for it; give yours another name")
        found = [allocator for allocator in found if allocator.name != REFERENCE]
        if not found:
            raise ValueError(f"--against names nothing to compare with {REFERENCE}")
        settings = arguments.pairs(env, "--env")
        environment, dropped = compare.user_environment(clean, settings)
        plan = compare.Plan(words, str(build), environment, runs, timeout, machine.cpu(pin),
                            stdin.read_bytes() if stdin else b"", until, ready, same_output)  # fmt: skip
        arguments.check_programs(build, ())
        arguments.check_options(settings, found, build)
        writer = arguments.writer(json_file, build, found)

    candidates = [compare.Candidate(allocators.Allocator(REFERENCE, None))]
    candidates += [compare.Candidate(allocator, problem=allocator.missing) for allocator in found]
    comparison = compare.Comparison(plan, candidates)
    if dropped:
        comparison.notes.append(f"not passed on to CMD: {', '.join(dropped)} (--env sets what it needs)")
    progress = show.Progress(comparison)

    def keep(candidate: compare.Candidate, number: int) -> None:
        of = candidate.allocator
        try:
            writer.write(
                kind="compare", work=os.path.basename(words[0]), command=list(words), allocator=of.name,
                library=of.library, version=of.version, settings=settings | dict(of.settings),
                run=number, n=runs, cpu_pinned=plan.cpu, load=machine.load(),
                result=candidate.results[number])  # fmt: skip
        except OSError as error:  # the comparison goes on: its tables are worth having
            writer.stop(f"--json: {json_file}: {error.strerror}; rows are no longer stored")

    comparison.on_turn, comparison.on_run = progress.turn, keep
    out = arguments.open_console(writer.context)
    sentence, status = "", 0
    try:
        if _is_stopped(comparison):
            sentence, status = "stopped; what was measured until then is above", 130
        elif comparison.failure:
            sentence, status = comparison.failure, 1
    except compare.Refused as refused:
        sentence, status = str(refused), refused.status
    finally:
        progress.close()
    if comparison.reference.results or status in (0, 130):
        out.print("\n", show.comparison_tables(comparison))
    if status in (0, 130):
        _advise(comparison, out)
    if writer.problem:
        arguments.say(writer.problem)
    if sentence:
        arguments.say(sentence)
    failed = any(candidate.problem and not candidate.allocator.missing for candidate in comparison.candidates)
    raise typer.Exit(status or int(failed or bool(writer.problem)))


def _is_stopped(comparison: compare.Comparison) -> bool:
    with arguments.ending():
        try:
            comparison.run()
        except KeyboardInterrupt:
            return True
    return False


def _advise(comparison: compare.Comparison, out: Console) -> None:
    advice = recommend.recommend(comparison.measured(), comparison.reference.name, comparison.compared)
    out.print(f"\n{advice.sentence}.")
    chosen = next((candidate.allocator for candidate in comparison.candidates if candidate.name == advice.name), None)
    if chosen and chosen.library:
        out.print(f"To use it: {show.how_to_use(comparison.plan, chosen)}")
