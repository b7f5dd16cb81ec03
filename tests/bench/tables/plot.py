"""The plot of growth, as SVG: for time and for memory, a line for each kind of thing, on logarithmic axes.

A dashed line shows linear growth: whatever is steeper grows faster.
"""

import html
import math
from collections.abc import Iterator, Mapping, Sequence

from tests.bench.tables.growth import medians
from tests.bench.tables.table import Row

WIDTH, HEIGHT = 380, 300
"""The size of a panel."""
LEFT, TOP, RIGHT, BOTTOM = 60, 30, 10, 40
LEGEND = 30
COLOURS = ("#1b6ca8", "#c44536", "#2a7f62", "#8a5a9e", "#b07d1a")
FONT = 'font-family="sans-serif" font-size="11"'
PANELS = (("seconds", "seconds"), ("memory of the client, or of the broker, in MB", "mb"))
Points = Mapping[int, float]


def svg(rows: list[Row]) -> str:
    """The plot as a document."""
    width, height = len(PANELS) * WIDTH, HEIGHT + LEGEND
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {FONT}>',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for at, (title, figure) in enumerate(PANELS):
        curves = [medians(_with_memory(row), figure) for row in rows]
        lines += [f'<g transform="translate({at * WIDTH} 0)">', *_panel(title, curves), "</g>"]
    for at, row in enumerate(rows):
        x = LEFT + at * (width - LEFT) / len(rows)
        name = html.escape(", ".join(row.labels))
        lines.append(f'<rect x="{x:.1f}" y="{HEIGHT + 8}" width="12" height="4" fill="{COLOURS[at % len(COLOURS)]}"/>')
        lines.append(f'<text x="{x + 18:.1f}" y="{HEIGHT + 14}">{name}</text>')
    return "\n".join([*lines, "</svg>", ""])


def _with_memory(row: Row) -> dict[str, list[dict[str, float]] | str]:
    """The figures, with the memory of the client if it was measured, else of the broker."""
    return {
        name: rounds
        if isinstance(rounds, str)
        else [each | {"mb": each.get("client_mb", each.get("broker_mb", math.nan))} for each in rounds]
        for name, rounds in row.found.items()
    }


def _panel(title: str, curves: Sequence[Points]) -> Iterator[str]:
    points = [point for curve in curves for point in curve.items() if point[1] > 0]
    if not points:
        return
    across, up = _decades([x for x, _ in points]), _decades([y for _, y in points])

    def x_of(value: float) -> float:
        return LEFT + (math.log10(value) - across[0]) / (across[-1] - across[0]) * (WIDTH - LEFT - RIGHT)

    def y_of(value: float) -> float:
        return HEIGHT - BOTTOM - (math.log10(value) - up[0]) / (up[-1] - up[0]) * (HEIGHT - TOP - BOTTOM)

    yield f'<text x="{LEFT}" y="{TOP - 12}" font-weight="bold">{html.escape(title)}</text>'
    for power in across:
        x = x_of(10**power)
        yield f'<path d="M{x:.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="#ddd"/>'
        yield f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{10**power:,}</text>'
    for power in up:
        y = y_of(10**power)
        yield f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>'
        yield f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{10.0**power:,g}</text>'
    linear = min(across[-1] - across[0], up[-1] - up[0])
    x, y = x_of(10 ** (across[0] + linear)), y_of(10.0 ** (up[0] + linear))
    yield f'<path d="M{LEFT} {HEIGHT - BOTTOM}L{x:.1f} {y:.1f}" stroke="#999" stroke-dasharray="4 4"/>'
    yield f'<text x="{(LEFT + WIDTH) / 2}" y="{HEIGHT - BOTTOM + 32}" text-anchor="middle">how many of them</text>'
    for colour, curve in zip(COLOURS, curves, strict=False):
        path = " ".join(f"{x_of(x):.1f},{y_of(y):.1f}" for x, y in sorted(curve.items()) if y > 0)
        yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'


def _decades(values: list[float]) -> list[int]:
    """The powers of ten around the values, two at least."""
    low = math.floor(math.log10(min(values)))
    return [*range(low, max(math.ceil(math.log10(max(values))), low + 1) + 1)]
