"""Options that several commands share."""

from typing import Annotated

import typer

from ottla.cli.logs import LogFormat, LogLevel

Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        "-b",
        envvar="OTTLA_BOOTSTRAP",
        metavar="HOST:PORT",
        help="Brokers, or a proxy; several separated by commas; zeroconf:// or zeroconf://NAME finds announced ones.",
    ),
]
ConnectTimeout = Annotated[
    float, typer.Option("--connect-timeout", metavar="SECONDS", min=0.1, help="How long to try to reach a broker.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Format = Annotated[LogFormat, typer.Option("--log-format", help="How log lines on stderr look.")]
Level = Annotated[LogLevel, typer.Option("--log-level", help="Which log lines are printed.")]

DEFAULT_BOOTSTRAP = "localhost:9092"
DEFAULT_CONNECT_TIMEOUT = 10.0
