"""Options that several commands share, and the decorator for commands that need a cluster."""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ottla.cli import command_config as command_configs
from ottla.cli import exits
from ottla.cli.logs import LogFormat, LogLevel, configure

if TYPE_CHECKING:
    from ottla.sdk.client import Client


BOOTSTRAP = "localhost:9092"
CONNECT_TIMEOUT = 10.0


class Partitioner(StrEnum):
    """The codec's partitioners; the codec itself is only imported when a command runs."""

    MURMUR2 = "murmur2"
    CRC32 = "crc32"
    FNV1A = "fnv1a"
    FNV1A_REFERENCE = "fnv1a_reference"


class CompressionName(StrEnum):
    """The codec's compressions."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class IsolationLevel(StrEnum):
    """Which records of transactions are read."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"

    @property
    def literal(self) -> Literal["read_uncommitted", "read_committed"]:
        """As an argument of `Client.consumer`."""
        return "read_committed" if self is IsolationLevel.READ_COMMITTED else "read_uncommitted"


Bootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        "-b",
        envvar="OTTLA_BOOTSTRAP",
        metavar="HOST:PORT",
        help="Brokers, or a proxy; several separated by commas; zeroconf:// or zeroconf://NAME finds announced ones.",
        show_default=BOOTSTRAP,
    ),
]
CommandConfig = Annotated[
    Path | None,
    typer.Option(
        "--command-config",
        envvar="OTTLA_COMMAND_CONFIG",
        metavar="FILE",
        help="How to connect: a properties file with the names of Java's client or librdkafka: security.protocol, "
        "ssl.ca.location, sasl.username, sasl.password, … Options take precedence over it.",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("-X", metavar="NAME=VALUE", help="A single setting of such a file; may be repeated. Not for secrets."),
]
ConnectTimeout = Annotated[
    float | None,
    typer.Option(
        "--connect-timeout",
        metavar="SECONDS",
        min=0.1,
        help="How long to try to reach a broker.",
        show_default=f"{CONNECT_TIMEOUT:g}",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Isolation = Annotated[
    IsolationLevel,
    typer.Option(help="With read_committed a partition ends where its first open transaction begins."),
]
Format = Annotated[LogFormat, typer.Option("--log-format", help="The format of log lines on stderr.")]
Level = Annotated[LogLevel, typer.Option("--log-level", help="The lowest level of log lines to print.")]

_BATCH_MEMORY = 2**31 - 1
"""Memory limit of one batch, in bytes: commands print any topic, and the user can end them."""
Connect = Callable[[], "AbstractAsyncContextManager[Client]"]
"""Calls `ottla.connect` with the cluster of the options."""


async def configured(file: Path | None, settings: list[str]) -> dict[str, Any]:
    """Turn ``--command-config`` and ``-X`` into arguments of `ottla.connect`."""
    import trio

    if file is None and not settings:
        return {}
    return await trio.to_thread.run_sync(command_configs.read, file, settings, abandon_on_cancel=True)


def at_cluster(command: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Turn ``command`` into a command line command with the options for connecting; it runs under trio.

    Args:
        command: called with a `Connect`, and its own options.
    """

    def run(
        *,
        bootstrap: Bootstrap = None,
        command_config: CommandConfig = None,
        settings: Settings = None,
        connect_timeout: ConnectTimeout = None,
        log_format: Format = LogFormat.TEXT,
        log_level: Level = LogLevel.WARNING,
        **own: Any,
    ) -> None:
        async def work() -> None:
            import ottla

            given = {"bootstrap": bootstrap, "connect_timeout": connect_timeout}
            arguments: dict[str, Any] = {"bootstrap": BOOTSTRAP, "connect_timeout": CONNECT_TIMEOUT}
            arguments["fetch_batch_memory"] = _BATCH_MEMORY
            arguments |= await configured(command_config, settings or [])
            arguments |= {name: value for name, value in given.items() if value is not None}
            await command(partial(ottla.connect, **arguments), **own)

        configure(log_format, log_level)
        exits.run(work)

    _, *theirs = inspect.signature(command).parameters.values()
    *ours, _ = inspect.signature(run).parameters.values()
    return as_command(run, command, [*theirs, *ours])


def as_command(
    run: Callable[..., None], like: Callable[..., object], parameters: Sequence[inspect.Parameter]
) -> Callable[..., None]:
    """Give ``run`` the name and docstring of another function, and the parameters in which typer finds its options."""
    run.__name__, run.__doc__ = like.__name__, like.__doc__
    # mypy does not know that a function may be given a signature.
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run
