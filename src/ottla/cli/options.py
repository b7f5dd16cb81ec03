"""Options that several commands share."""

from enum import StrEnum
from typing import Annotated

import typer

from ottla.cli.logs import LogFormat, LogLevel


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

DEFAULT_BOOTSTRAP = "localhost:9092"
DEFAULT_CONNECT_TIMEOUT = 10.0
