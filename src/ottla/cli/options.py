"""Options that several commands share, and what makes a command of a function that needs a cluster."""

import inspect
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ottla.cli import exits
from ottla.cli.logs import LogFormat, LogLevel, configure

if TYPE_CHECKING:
    from ottla.sdk.client import Client


class Partitioner(StrEnum):
    """The codec's partitioners, which are not imported before a command runs."""

    MURMUR2 = "murmur2"
    CRC32 = "crc32"
    FNV1A = "fnv1a"
    FNV1A_REFERENCE = "fnv1a_reference"


class Compression(StrEnum):
    """The codec's compressions."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


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

Connect = Callable[[], "AbstractAsyncContextManager[Client]"]
"""`ottla.connect`, to the cluster that the options name."""


def at_cluster(command: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Make a command of ``command``: it has the options of all that need a cluster, too, and runs under trio.

    Args:
        command: is given a `Connect`, and what its own options say.
    """

    def run(
        *,
        bootstrap: Bootstrap = "localhost:9092",
        connect_timeout: ConnectTimeout = 10.0,
        log_format: Format = LogFormat.TEXT,
        log_level: Level = LogLevel.WARNING,
        **own: Any,
    ) -> None:
        async def work() -> None:
            import ottla

            await command(partial(ottla.connect, bootstrap, connect_timeout=connect_timeout), **own)

        configure(log_format, log_level)
        exits.run(work)

    _, *theirs = inspect.signature(command).parameters.values()
    *ours, _ = inspect.signature(run).parameters.values()
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__signature__ = inspect.Signature([*theirs, *ours])  # type: ignore[attr-defined] # what typer looks at
    return run
