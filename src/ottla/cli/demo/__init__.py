"""`ottla demo`: real flights through the proxy, read in PySpark.

`story.py` is the script; `flights.py` has the data, `expected.py` the results that must come out; `service_sdk.py`,
`service_librdkafka.py` and `analyst.py` are separate processes, which `children.py` starts and ends. `security.py`
writes the files of `--secured`.
"""

from pathlib import Path
from typing import Annotated

import typer

from ottla.cli import exits
from ottla.cli.logs import LogFormat, LogLevel, configure
from ottla.cli.options import Format, Level

EXAMPLE = "Example: ottla demo, or on your Kafka: ottla demo --kafka localhost:9092"


def demo(
    kafka: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Use this Kafka; the topics get new names, and are kept.")
    ] = None,
    keep: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep the broker's data in this folder, to explore it later.")
    ] = None,
    secured: Annotated[
        bool, typer.Option("--secured", help="With TLS, users and rights, at the broker and at the proxy.")
    ] = False,
    rows: Annotated[
        int | None, typer.Option(min=1, help="The number of flights to use, of 336,776; fewer take less time.")
    ] = None,
    log_format: Format = LogFormat.TEXT,
    log_level: Level = LogLevel.WARNING,
) -> None:
    """Run the demo: real flights, two services that disagree where a key goes, a proxy that settles it, and PySpark."""
    configure(log_format, log_level)
    if kafka is not None and keep is not None:
        raise typer.BadParameter("with --kafka the demo has no broker of its own", param_hint="--keep")
    if kafka is not None and secured:
        raise typer.BadParameter("with --kafka the demo has no broker of its own", param_hint="--secured")

    async def run() -> None:
        from rich.console import Console

        from ottla.cli.demo.flights import ROWS
        from ottla.cli.demo.story import Choices, tell

        await tell(Choices(kafka=kafka, keep=keep, secured=secured, rows=min(rows or ROWS, ROWS)), Console())

    exits.run(run)
