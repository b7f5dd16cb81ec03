"""Tables for people, on stdout; numbers are right-aligned, and control characters escaped."""

from collections.abc import Iterable, Sequence

from ottla.cli import stdio
from ottla.cli.escapes import escaped, writing


async def show(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str | None = None) -> None:
    """Print a table. Columns with integers are right-aligned; ``None`` is shown as a dash."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    cells = [list(row) for row in rows]
    table = Table(title=Text(escaped(title)) if title else None, title_justify="left")
    for index, name in enumerate(columns):
        numeric = any(isinstance(row[index], int) for row in cells)
        table.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in cells:
        table.add_row(*(Text("-" if cell is None else escaped(str(cell))) for cell in row))
    console = Console()
    with writing("stdout"), console.capture() as printed:  # rich writes nothing, and even that can fail
        console.print(table)
    await stdio.draw(printed.get())


async def clear() -> None:
    """Clear the screen, if stdout is a terminal."""
    from rich.console import Console

    console = Console()
    with writing("stdout"), console.capture() as printed:  # rich writes nothing, and even that can fail
        console.clear()
    await stdio.draw(printed.get())
