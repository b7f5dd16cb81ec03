"""Tables for people, on stdout; numbers stand on the right."""

from collections.abc import Iterable, Sequence


def show(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str | None = None) -> None:
    """Print a table. A column is one of numbers, or of what is unknown, where every cell is; ``None`` is a dash."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    cells = [list(row) for row in rows]
    table = Table(title=Text(title) if title else None, title_justify="left")
    for index, name in enumerate(columns):
        numeric = any(isinstance(row[index], int) for row in cells)
        table.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in cells:
        table.add_row(*(Text("-" if cell is None else str(cell)) for cell in row))
    Console().print(table)


def clear() -> None:
    """Begin again at the top of the screen, where stdout is one."""
    from rich.console import Console

    Console().clear()
