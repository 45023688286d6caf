"""Tables for people."""

import sys
from statistics import median

from lab import goals, stats


def columns(rows, right):
    """Lines of a table; columns whose number is in `right` are flush right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  " + "  ".join(cell.rjust(width) if i in right else cell.ljust(width)
                             for i, (cell, width) in enumerate(zip(row, widths))).rstrip() for row in rows]


def rate(value):
    for scale, letter in ((1e6, "M"), (1e3, "K")):
        if value >= scale:
            return f"{value / scale:.4g} {letter}/s"
    return f"{value:.4g} /s"


def ratio(values):
    found = stats.spread(values)
    return f"{found.median:.2f} ({found.low:.2f}-{found.high:.2f})" if found else ""


def _peak_key(entry):
    return "child_rss_peak_kb" if entry.values("child_rss_peak_kb") else "rss_peak_kb"


def row_table(outcome, note):
    """One workload: a line for each allocator, the subject first, the rest by rate."""
    subject, best = outcome.subject, outcome.best_peer()
    measured = [entry for entry in outcome.entries if entry.results]
    measured.sort(key=lambda entry: (entry.name != subject, -median(entry.values("ops_per_s").values())))
    cells = [["", "rate", f"{subject} / it", "peak RSS", f"{subject} / it", "of live",
              *outcome.row.shows]]
    for entry in measured:
        other = entry.name != subject
        peak = _peak_key(entry)
        live = entry.values("peak_over_live") or entry.values("rss_over_live")
        cells.append([
            entry.name + (" *" if entry.name == best else ""),
            rate(median(entry.values("ops_per_s").values())),
            ratio(outcome.rate_ratio(subject, entry.name).values()) if other else "",
            f"{median(entry.values(peak).values()) / 1024:.1f} MiB",
            ratio(outcome.pairs(subject, entry.name, peak, lambda x, y: x / y).values()) if other else "",
            f"{median(live.values()):.2f}" if live else "",
            *(f"{median(values):.4g}" if (values := entry.values(key).values()) else "" for key in outcome.row.shows)])
    runs = max((len(entry.results) for entry in measured), default=0)
    lines = [f'{outcome.row.name}: {outcome.entries[0].command}  [{runs} run{"s" if runs != 1 else ""}{note}]']
    lines += columns(cells, {1, 3, 5, *range(6, len(cells[0]))}) if measured else []
    lines += [f"  {entry.name}: {entry.problem}" for entry in outcome.entries if entry.problem]
    return "\n".join(lines)


def summary(outcomes):
    """One line a workload; the geometric mean under it."""
    cells, means = [["work", "rate", "best peer", "ratio", "peak RSS", "ratio"]], []
    for outcome in outcomes:
        subject, best = outcome.entry(outcome.subject), outcome.best_peer()
        if not subject.results or not best:
            cells.append([outcome.row.name, subject.problem and "failed", best or "no peer", "", "", ""])
            continue
        ratios, peak = outcome.rate_ratio(subject.name, best).values(), _peak_key(subject)
        if not ratios:
            continue
        means.append(median(ratios))
        cells.append([outcome.row.name, rate(median(subject.values("ops_per_s").values())), best, ratio(ratios),
                      f"{median(subject.values(peak).values()) / 1024:.1f} MiB",
                      ratio(outcome.pairs(subject.name, best, peak, lambda x, y: x / y).values())])
    lines = [f"{outcomes[0].subject} against the best peer of each row:", *columns(cells, {1, 4})]
    if means:
        lines.append(f"  geometric mean of {len(means)} ratios: {stats.geometric_mean(means):.3f}")
    return "\n".join(lines)


def goal_table(outcomes, found_goals, judged):
    by_name = {outcome.row.name: outcome for outcome in outcomes}
    cells, words = [["goal", "reached", "spread", "goal", "aim", ""]], []
    for goal in found_goals:
        found, word = goals.judge(goal, by_name)
        word = word if judged or not found else "not judged"
        digits = 0 if goal.least >= 100 else 2
        sign = ">=" if goal.at_least else "<="
        unit = f" {goal.unit}" if goal.unit else ""
        cells.append([
            goal.text,
            f"{found.median:.{digits}f}{unit}" if found else "",
            f"{found.low:.{digits}f} to {found.high:.{digits}f}" if found else "",
            f"{sign} {goal.least:g}{unit}",
            f"{sign} {goal.aim:g}" if goal.aim is not None else "",
            word])
        words.append(word.split(",")[0])
    counts = ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words))
    return "\n".join([f"{outcomes[0].subject}, medians of paired ratios:", *columns(cells, {1}), f"  {counts}"])


class Progress:
    """What runs now: one line that overwrites itself on a terminal, one line a row elsewhere."""

    def __init__(self, rows, runs):
        self.rows, self.runs, self.seen, self.last = rows, runs, {}, ""
        self.terminal = sys.stderr.isatty()

    def turn(self, row, entry, run):
        number = self.seen.setdefault(row.name, len(self.seen) + 1)
        text = f"{number}/{self.rows} {row.name}"
        if self.terminal:
            print(f"\r\033[K{text}, run {run}/{self.runs}, {entry.name}", end="", file=sys.stderr, flush=True)
        elif text != self.last:
            print(text, file=sys.stderr, flush=True)
        self.last = text

    def clear(self):
        if self.terminal and self.last:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
