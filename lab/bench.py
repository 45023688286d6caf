"""hak bench: the command line, and the loop over the rows."""

import argparse
import datetime
import json
import os
import signal
import sys

from lab import allocators, goals, machine, report, runner, workloads


def _options():
    parser = argparse.ArgumentParser(
        prog="hak bench", formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Runs the benchmark programs on hakmem and its peers in turns; prints medians and paired ratios.",
        epilog=f"""NAME is a group ({', '.join(workloads.GROUPS)}), a row (fixed-64, larson-8-1024, ...),
"all", "goals" (the rows that have a goal), or a program with its arguments as one word
("random_mixed 5000000 4000 1"). Without NAME: the first row of each group. At the end stands how far
the goals of the measured rows are.
An allocator is a name ({', '.join((allocators.SUBJECT,) + allocators.PEERS)}) or NAME=/path/to/library.so.""")
    parser.add_argument("names", nargs="*", metavar="NAME", help="what to run")
    parser.add_argument("--against", metavar="LIST",
                        help=f"what to compare hakmem with ({','.join(allocators.PEERS)})")
    parser.add_argument("--allocators", metavar="LIST",
                        help="all of them; hakmem, or else the first, is compared with the rest")
    parser.add_argument("--lib", metavar="NAME=PATH", action="append", default=[], help="the library of an allocator")
    parser.add_argument("--runs", type=int, default=7, metavar="N", help="runs of each, after one that is dropped (7)")
    parser.add_argument("--pin", metavar="CPU", help="for rows with one thread; the last CPU, or none")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the random numbers (1)")
    parser.add_argument("--env", metavar="NAME=VALUE", action="append", default=[], help="set for every program")
    parser.add_argument("--timeout", type=float, default=120, metavar="S", help="seconds a run may take (120)")
    parser.add_argument("--cpu-time", action="store_true",
                        help="rates of rows with one thread from CPU time: for a machine that does other work too")
    parser.add_argument("--json", metavar="FILE", help="append every run, one JSON object a line")
    parser.add_argument("--tiny", action="store_true", help="one run of almost nothing: does it work?")
    parser.add_argument("--build-dir", metavar="DIR", help="where bin/ and lib/ are (build/release)")
    return parser


def _pairs(parser, words, what):
    for word in words:
        if not word.partition("=")[0] or "=" not in word:
            parser.error(f"{what} takes NAME=VALUE, not '{word}'")
    return dict(word.split("=", 1) for word in words)


def _cpu(parser, word):
    allowed = os.sched_getaffinity(0)
    if word == "none":
        return None
    if word is None:
        return max(allowed)
    if not word.isdigit() or int(word) not in allowed:
        parser.error(f"--pin: '{word}' is none of the CPUs {', '.join(map(str, sorted(allowed)))}, nor none")
    return int(word)


def _allocators(parser, options, libraries):
    words = (options.allocators or f"{allocators.SUBJECT},{options.against or ','.join(allocators.PEERS)}").split(",")
    if options.allocators and options.against:
        parser.error("--allocators and --against exclude each other")
    try:
        found = [allocators.find(word.strip(), options.build_dir, libraries) for word in words]
    except ValueError as error:
        parser.error(str(error))
    names = [allocator.name for allocator in found]
    doubles = {name for name in names if names.count(name) > 1}
    if doubles:
        parser.error(f"{', '.join(sorted(doubles))} is named twice")
    return found, allocators.SUBJECT if allocators.SUBJECT in names else names[0]


class Log:
    """Every measured run, with all that is needed to read it alone."""

    def __init__(self, path, context, runs):
        self.file = open(path, "a", encoding="utf-8") if path else None
        self.context, self.runs, self.source = context, runs, None

    def write(self, row, entry, run, result):
        if not self.file:
            return
        record = {
            "time": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "row": row.name, "allocator": entry.name, "library": entry.allocator.library, "run": run, "n": self.runs,
            "command": self.source.words(entry.command), "seed": self.source.seed,
            "cpu_pinned": None if row.threads else self.source.cpu, "cpu_time": self.source.cpu_time,
            "options": self.source.settings | entry.environment, "load": machine.load(), **self.context, "result": result}
        self.file.write(json.dumps(record) + "\n")
        self.file.flush()


def _interrupted(_signal, _frame):
    raise KeyboardInterrupt


def main(arguments):
    parser = _options()
    options = parser.parse_args(arguments)
    options.build_dir = os.path.abspath(options.build_dir or allocators.ROOT / "build" / "release")
    want_goals = "goals" in options.names
    try:
        rows = workloads.chosen(options.names, goals.ROW_NAMES)
    except ValueError as error:
        parser.error(str(error))
    if options.runs < 1 or options.seed < 0 or options.timeout <= 0:
        parser.error("--runs and --timeout take a number over 0, --seed one from 0")
    found, subject = _allocators(parser, options, _pairs(parser, options.lib, "--lib"))
    lost = next(allocator.missing for allocator in found if allocator.name == subject)
    if lost:
        parser.error(f"{subject}: {lost}")
    programs = {row.command.split()[0] for row in rows}
    lost = sorted(p for p in programs if not os.access(os.path.join(options.build_dir, "bin", p), os.X_OK))
    if lost:
        parser.error(f"no {lost[0]} in {options.build_dir}/bin; run ./hak build")

    runs = 1 if options.tiny else options.runs
    try:
        log = Log(options.json, machine.describe(options.build_dir), runs)
    except OSError as error:
        parser.error(f"--json: {options.json}: {error.strerror}")
    progress = report.Progress(len(rows), runs)
    source = log.source = runner.Runner(
        options.build_dir, runs, options.tiny, options.seed, _cpu(parser, options.pin), options.timeout,
        options.cpu_time, _pairs(parser, options.env, "--env"), on_run=log.write, on_turn=progress.turn)
    signal.signal(signal.SIGTERM, _interrupted)

    print(machine.line(log.context))
    if machine.load() > log.context["cpus"] / 2:
        print(f"load average {machine.load():.1f} on {log.context['cpus']} CPUs: others run here, expect noise")
    outcomes, stopped = [], False
    for row in rows:
        outcome = source.open_row(row, found, subject)
        try:
            source.run_row(outcome)
        except KeyboardInterrupt:
            stopped = True
        progress.clear()
        if not stopped or any(entry.results for entry in outcome.entries):
            outcomes.append(outcome)
            pinned = "" if row.threads or source.cpu is None else f", CPU {source.cpu}"
            clock = ", CPU time" if options.cpu_time and not (row.threads or row.children) else ""
            tiny = ", tiny: rates mean nothing" if options.tiny else ""
            print("\n" + report.row_table(outcome, pinned + clock + tiny), flush=True)
        if stopped:
            break
    if len(outcomes) > 1:
        print("\n" + report.summary(outcomes))
    measured = {outcome.row.name for outcome in outcomes}
    to_judge = [goal for goal in goals.GOALS if want_goals or measured.issuperset(goal.rows) and not options.tiny]
    if to_judge and outcomes:
        print("\n" + report.goal_table(outcomes, to_judge, judged=not options.tiny))
    if stopped:
        print(f"stopped after {len(outcomes)} of {len(rows)} rows", file=sys.stderr)
        return 130
    return 1 if any(entry.problem and not entry.absent
                    for outcome in outcomes for entry in outcome.entries) else 0
