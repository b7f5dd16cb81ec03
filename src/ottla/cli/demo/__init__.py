"""`ottla demo`: real flights through the proxy, read in PySpark."""

from pathlib import Path
from typing import Annotated

import typer

from ottla.cli.logs import LogFormat, LogLevel, configure
from ottla.cli.options import Format, Level

EXAMPLE = "Example: ottla demo, or on your Kafka: ottla demo --kafka localhost:9092"


def demo(
    kafka: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Use this Kafka; topics of new names stay there.")
    ] = None,
    keep: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Keep the broker's data in this folder, to explore it later."),
    ] = None,
    rows: Annotated[
        int | None, typer.Option(min=1, help="Only the first so many of the 336,776 flights, for a quick look.")
    ] = None,
    log_format: Format = LogFormat.TEXT,
    log_level: Level = LogLevel.WARNING,
) -> None:
    """336,776 real flights, two services that do not agree where a key goes, a proxy that settles it, and PySpark."""
    configure(log_format, log_level)
    raise NotImplementedError
