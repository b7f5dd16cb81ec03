"""The report of a chaos run: a self-contained HTML page with plots in SVG, and a table for a terminal."""

import html
import math
from collections import Counter
from collections.abc import Callable, Iterable

from tests.chaos.run import Chart, Result

WIDTH, LEFT, RIGHT = 1100, 110, 20
BAND = 16
"""The height of a line of the timeline."""
COLOURS = {
    "kill": "#c0392b",
    "kill coordinator": "#e84393",
    "pause": "#e67e22",
    "move leaders": "#2980b9",
    "rolling restart": "#8e44ad",
}
OF_PROGRAMS = {"kill": "#7f1d1d", "slow": "#b7950b", "pause": "#d4a373", "usurp": "#16a085", "visit": "#7f8c8d"}
"""Colours by the first word of the kind; the second is the role."""
LINES = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd")


def summary(result: Result) -> list[tuple[str, str]]:
    """The run and its results, as pairs of a name and a value."""
    seconds = result.load_end - result.begin
    kinds = Counter(each.kind for each in result.injections)
    broken = result.findings.broken
    return [
        ("seed", f"{result.seed}, {result.load.lower()} on Apache Kafka {result.release.version}"),
        ("load", f"{seconds:.0f} s, judged after {result.end - result.begin:.0f} s"),
        ("injected", ", ".join(f"{count} × {kind}" for kind, count in sorted(kinds.items()))),
        *result.findings.rows,
        ("promises", "all kept" if not broken else f"{len(broken)} BROKEN"),
    ]


def table(result: Result) -> str:
    lines = [f"  {name:<20} {value}" for name, value in summary(result)]
    return "\n".join([*lines, *(f"  BROKEN: {each}" for each in result.findings.broken)])


# -- the page --------------------------------------------------------------------------------------------------------


def page(result: Result) -> str:
    """The whole report."""
    rows = "".join(f"<tr><th>{html.escape(a)}</th><td>{html.escape(b)}</td></tr>" for a, b in summary(result))
    broken = "".join(f"<li>{html.escape(each)}</li>" for each in result.findings.broken)
    injected = "".join(
        f"<tr><td>{each.start - result.begin:.1f}</td><td>{each.end - each.start:.1f}</td>"
        f'<td><b style="color:{_colour(each.kind)}">{each.kind}</b></td><td>{each.target}</td>'
        f"<td>{html.escape(each.more)}</td></tr>"
        for each in result.injections
    )
    plots = "".join(f"<h2>{html.escape(each.title)}</h2>{chart(result, each)}" for each in result.findings.charts)
    return f"""<!doctype html><html lang="en"><meta charset="utf-8"><title>ottla: chaos, seed {result.seed}</title>
<style>
body {{ font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: {WIDTH}px; color: #222; background: #fff; }}
h1 {{ font-size: 1.5em; }} h2 {{ font-size: 1.05em; margin: 1.6em 0 .3em; }}
table {{ border-collapse: collapse; }} th, td {{ text-align: left; padding: .15em .8em .15em 0; vertical-align: top; }}
.broken {{ color: #c0392b; }} svg {{ display: block; width: 100%; height: auto; }}
</style>
<h1>Three nodes of Apache Kafka {result.release.version}, {PROMISES[bool(broken)]}</h1>
<ul class="broken">{broken}</ul><table>{rows}</table>
<h2>What was done</h2>{timeline(result)}{plots}
<h2>Injections</h2><table><tr><th>at s</th><th>for s</th><th>what</th><th>whom</th><th></th></tr>{injected}</table>
</html>
"""


PROMISES = {False: "and every promise was kept", True: "and promises were BROKEN"}


def _colour(kind: str) -> str:
    return COLOURS.get(kind) or OF_PROGRAMS[kind.partition(" ")[0]]


def _x(result: Result) -> Callable[[float], float]:
    """From seconds since the start to a position in the plot."""
    scale = (WIDTH - LEFT - RIGHT) / (result.end - result.begin)
    return lambda seconds: LEFT + seconds * scale


def timeline(result: Result) -> str:
    """The timeline, with a line for each node and each program."""
    x = _x(result)
    targets = sorted({each.target for each in result.injections}, key=_order)
    parts = [
        f'<text x="{LEFT - 8}" y="{BAND * (row + 1) - 4}" text-anchor="end" font-size="11">{target}</text>'
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{BAND * row + 8}" y2="{BAND * row + 8}" stroke="#eee"/>'
        for row, target in enumerate(targets)
    ]
    for each in result.injections:
        start, end = x(each.start - result.begin), x(each.end - result.begin)
        parts.append(
            f'<rect x="{start:.1f}" y="{BAND * targets.index(each.target) + 2}" width="{max(end - start, 2):.1f}" '
            f'height="{BAND - 4}" fill="{_colour(each.kind)}">'
            f"<title>{each.kind}: {html.escape(each.more)}</title></rect>"
        )
    kinds = {each.kind: _colour(each.kind) for each in result.injections}
    height = BAND * len(targets)
    return _svg(height + 40, parts + _legend(kinds.items(), height + 14) + _seconds(result, height))


def _order(target: str) -> tuple[bool, str, int]:
    """Sorts nodes before programs, and the tenth program after the second."""
    kind = target.rstrip("0123456789")
    return not kind.startswith(("node", "cluster")), kind, int(target[len(kind) :] or 0)


def chart(result: Result, what: Chart, height: int = 170) -> str:
    """Lines over time, with the injections pale behind them."""
    x, series, unit, log = _x(result), what.lines, what.unit, what.log
    highest = max((value for each in series.values() for _, value in each), default=1.0) or 1.0
    power = 10.0 ** math.floor(math.log10(highest))
    top = highest if log else next(power * part for part in (1, 2, 4, 6, 8, 10) if power * part >= highest)
    low = 1.0 if log else 0.0
    span = math.log10(max(top, 10.0)) if log else top

    def y(value: float) -> float:
        part = math.log10(max(value, low)) / span if log else value / span
        return height - part * (height - 12)

    ticks = [10.0**power for power in range(int(span) + 1)] if log else [top * part / 4 for part in range(5)]
    parts = [
        f'<rect x="{x(each.start - result.begin):.1f}" y="0" height="{height}" fill="{_colour(each.kind)}" '
        f'width="{max(x(each.end - result.begin) - x(each.start - result.begin), 1):.1f}" opacity="0.10"/>'
        for each in result.injections
    ]
    parts += [
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(tick):.1f}" y2="{y(tick):.1f}" stroke="#ddd"/>'
        f'<text x="{LEFT - 8}" y="{y(tick) + 4:.1f}" text-anchor="end" font-size="11">{tick:,.0f} {unit}</text>'
        for tick in ticks
    ]
    for colour, each in zip(LINES, series.values(), strict=False):
        points = " ".join(f"{x(seconds):.1f},{y(value):.1f}" for seconds, value in each)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.3"/>')
    names = zip(series, LINES, strict=False)
    return _svg(height + 40, parts + _legend(names, height + 14) + _seconds(result, height))


def _svg(height: int, parts: Iterable[str]) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height}" font-family="system-ui, sans-serif">{"".join(parts)}</svg>'


def _legend(names: Iterable[tuple[str, str]], y: int) -> list[str]:
    parts, x = [], LEFT
    for name, colour in names:
        parts.append(f'<rect x="{x}" y="{y + 10}" width="10" height="10" fill="{colour}"/>')
        parts.append(f'<text x="{x + 14}" y="{y + 19}" font-size="11">{name}</text>')
        x += 34 + 7 * len(name)
    return parts


def _seconds(result: Result, y: int) -> list[str]:
    x, end = _x(result), result.end - result.begin
    step = next(each for each in (5, 10, 30, 60, 300, 600, 3600, 36000) if end / each <= 20 or each == 36000)
    return [
        f'<text x="{x(second):.1f}" y="{y + 13}" text-anchor="middle" font-size="11">{second} s</text>'
        for second in range(0, int(end) + 1, step)
    ]
