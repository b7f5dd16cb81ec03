"""The report of a chaos run: a page of HTML that stands alone, with plots in SVG, and a table for a terminal."""

import html
import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from tests.chaos.ledger import Silence, Verdict
from tests.chaos.run import Result

WIDTH, LEFT, RIGHT = 1100, 110, 20
BAND = 16
"""Height of a line of the timeline."""
COLOURS = {
    "kill": "#c0392b",
    "pause": "#e67e22",
    "move leaders": "#2980b9",
    "rolling restart": "#8e44ad",
    "kill consumer": "#7f1d1d",
    "slow consumer": "#b7950b",
}
LINES = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd")
Series = Sequence[tuple[float, float]]
"""Seconds since the beginning, value."""


def quantile(values: Sequence[float], part: float) -> float:
    """Of sorted values; nan if there are none."""
    return values[min(int(len(values) * part), len(values) - 1)] if values else math.nan


def summary(result: Result) -> list[tuple[str, str]]:
    """What a run was and what came out, as pairs of a name and a value."""
    verdict = result.verdict
    acked = sorted(each.latency for each in verdict.sends if each.offset >= 0)
    seconds = max(result.load_end - result.begin, 1.0)
    kinds: dict[str, int] = defaultdict(int)
    for each in result.injections:
        kinds[each.kind] += 1
    awaited = sorted(each.latency for each in verdict.sends if each.offset >= 0 and each.how == "send")
    read = sum(each.next - each.first for each in verdict.reads)
    again = sum(verdict.repeats.values())
    reasons = ", ".join(f"{count} after {why}" for why, count in sorted(verdict.repeats.items())) or "none"
    members = len({each.who for each in verdict.assignments})
    silences = sorted(verdict.silences.values(), key=lambda each: -each.seconds)
    return [
        ("seed", f"{result.seed}, assignor {' '.join(result.assignors)}"),
        ("load", f"{seconds:.0f} s, the group done after {result.end - result.begin:.0f} s"),
        ("injected", ", ".join(f"{count} × {kind}" for kind, count in sorted(kinds.items()))),
        ("sent", f"{len(verdict.sends)}, acknowledged {len(acked)} ({len(acked) / seconds:.0f}/s)"),
        ("not acknowledged", str(len(verdict.sends) - len(acked))),
        ("in the log", str(sum(map(len, result.evidence.log.values())))),
        ("latency of send", _quantiles(awaited)),
        ("latency of all", _quantiles(acked)),
        ("read by the group", f"{read}, {again} of them again ({reasons})"),
        ("commits", f"{sum(map(len, result.evidence.commits.values()))}; {verdict.stale_answers} stale answers"),
        ("partitions given", f"{len(verdict.assignments)} times, by {members} members"),
        (
            "longest silences",
            "; ".join(_told(result, each) for each in silences[:5]) + f"; allowed {result.bounds.silence:.0f} s",
        ),
        ("promises", "all kept" if not verdict.broken else f"{len(verdict.broken)} BROKEN"),
    ]


def _told(result: Result, silence: Silence) -> str:
    """A silence, and what was done meanwhile."""
    meanwhile = [each for each in result.injections if each.start < silence.time and each.end > silence.since]
    done = dict.fromkeys(each.kind for each in meanwhile)
    during = f" during {' and '.join(done)}" if done else ""
    return f"{silence.seconds:.1f} s until {silence.time - result.begin:.0f} s by {silence.who}{during}"


def _quantiles(values: Sequence[float]) -> str:
    parts = ((0.5, "p50"), (0.9, "p90"), (0.99, "p99"), (1.0, "max"))
    return ", ".join(f"{name} {quantile(values, part) * 1000:,.0f} ms" for part, name in parts)


def table(result: Result) -> str:
    lines = [f"  {name:<20} {value}" for name, value in summary(result)]
    return "\n".join([*lines, *(f"  BROKEN: {each}" for each in result.verdict.broken)])


# -- the page --------------------------------------------------------------------------------------------------------


def page(result: Result) -> str:
    """The whole report."""
    rows = "".join(f"<tr><th>{html.escape(a)}</th><td>{html.escape(b)}</td></tr>" for a, b in summary(result))
    broken = "".join(f"<li>{html.escape(each)}</li>" for each in result.verdict.broken)
    injected = "".join(
        f"<tr><td>{each.start - result.begin:.1f}</td><td>{each.end - each.start:.1f}</td>"
        f'<td><b style="color:{COLOURS[each.kind]}">{each.kind}</b></td><td>{each.target}</td>'
        f"<td>{html.escape(each.more)}</td></tr>"
        for each in result.injections
    )
    plots = "".join(
        f"<h2>{title}</h2>{svg}"
        for title, svg in (
            ("What was done", timeline(result)),
            ("Records a second", chart(result, rates(result), "/s")),
            (
                "Time from send to receipt, by the second of the receipt",
                chart(result, latencies(result), "ms", log=True),
            ),
            ("Records acknowledged and not yet read, or not yet committed", chart(result, lags(result), "records")),
        )
    )
    return f"""<!doctype html><html lang="en"><meta charset="utf-8"><title>ottla: chaos, seed {result.seed}</title>
<style>
body {{ font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: {WIDTH}px; color: #222; background: #fff; }}
h1 {{ font-size: 1.5em; }} h2 {{ font-size: 1.05em; margin: 1.6em 0 .3em; }}
table {{ border-collapse: collapse; }} th, td {{ text-align: left; padding: .15em .8em .15em 0; vertical-align: top; }}
.broken {{ color: #c0392b; }} svg {{ display: block; width: 100%; height: auto; }}
</style>
<h1>Three nodes of Apache Kafka, {PROMISES[bool(broken)]}</h1>
<ul class="broken">{broken}</ul><table>{rows}</table>{plots}
<h2>Injections</h2><table><tr><th>at s</th><th>for s</th><th>what</th><th>whom</th><th></th></tr>{injected}</table>
</html>
"""


PROMISES = {False: "and every promise was kept", True: "and promises were BROKEN"}


def _x(result: Result) -> Callable[[float], float]:
    """From seconds since the beginning to a place on the paper."""
    scale = (WIDTH - LEFT - RIGHT) / (result.end - result.begin)
    return lambda seconds: LEFT + seconds * scale


def timeline(result: Result) -> str:
    """A line for each node and each consumer."""
    x = _x(result)
    targets = sorted({each.target for each in result.injections}, key=lambda each: (each.startswith("consumer"), each))
    parts = [
        f'<text x="{LEFT - 8}" y="{BAND * (row + 1) - 4}" text-anchor="end" font-size="11">{target}</text>'
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{BAND * row + 8}" y2="{BAND * row + 8}" stroke="#eee"/>'
        for row, target in enumerate(targets)
    ]
    for each in result.injections:
        start, end = x(each.start - result.begin), x(each.end - result.begin)
        parts.append(
            f'<rect x="{start:.1f}" y="{BAND * targets.index(each.target) + 2}" width="{max(end - start, 2):.1f}" '
            f'height="{BAND - 4}" fill="{COLOURS[each.kind]}">'
            f"<title>{each.kind}: {html.escape(each.more)}</title></rect>"
        )
    height = BAND * len(targets)
    return _svg(height + 40, parts + _legend(COLOURS.items(), height + 14) + _seconds(result, height))


def chart(result: Result, series: dict[str, Series], unit: str, *, log: bool = False, height: int = 170) -> str:
    """Lines over time; behind them, pale, the injections."""
    x = _x(result)
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
        f'<rect x="{x(each.start - result.begin):.1f}" y="0" height="{height}" fill="{COLOURS[each.kind]}" '
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


# -- what the plots show ---------------------------------------------------------------------------------------------


def rates(result: Result) -> dict[str, Series]:
    acked: dict[int, float] = defaultdict(float)
    read: dict[int, float] = defaultdict(float)
    for send in result.verdict.sends:
        if send.offset >= 0:
            acked[int(send.time + send.latency - result.begin)] += 1
    for each in result.verdict.reads:
        read[int(each.time - result.begin)] += each.next - each.first
    seconds = range(int(result.end - result.begin) + 1)
    return {"acknowledged": [(s, acked[s]) for s in seconds], "read": [(s, read[s]) for s in seconds]}


def latencies(result: Result) -> dict[str, Series]:
    """In milliseconds."""
    seconds: dict[int, list[float]] = defaultdict(list)
    for send in result.verdict.sends:
        if send.offset >= 0:
            seconds[int(send.time + send.latency - result.begin)].append(send.latency * 1000)
    for values in seconds.values():
        values.sort()
    return {
        name: [(second, quantile(seconds[second], part)) for second in sorted(seconds)]
        for name, part in (("p50", 0.5), ("p99", 0.99), ("max", 1.0))
    }


def lags(result: Result) -> dict[str, Series]:
    """Of all partitions together, each half second."""
    acked = sorted(each.time + each.latency - result.begin for each in result.verdict.sends if each.offset >= 0)
    read = _first_reads(result.verdict, result.begin)
    times = [tick / 2 for tick in range(int((result.end - result.begin) * 2) + 1)]
    unread = [(at, float(max(bisect_right(acked, at) - bisect_right(read, at), 0))) for at in times]
    uncommitted = [
        (at - result.begin, float(max(bisect_right(acked, at - result.begin) - sum(answer.values()), 0)))
        for at, answer in result.evidence.answers
    ]
    return {"not read": unread, "not committed": uncommitted}


def _first_reads(verdict: Verdict, begin: float) -> list[float]:
    """When each record was read first, sorted."""
    at: dict[int, int] = defaultdict(int)
    times: list[float] = []
    for each in verdict.reads:
        times += [each.time - begin] * max(each.next - max(each.first, at[each.partition]), 0)
        at[each.partition] = max(at[each.partition], each.next)
    return times
