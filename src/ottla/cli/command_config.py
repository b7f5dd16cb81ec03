"""``--command-config FILE`` and ``-X NAME=VALUE``: how to connect, with Kafka's own names, Java's or librdkafka's.

Rules:
- A file is a Java properties file. It is read in a thread, because it may be a pipe, as in ``<(pass show kafka)``.
- Names about connections are used, by `ottla.from_kafka_config`. Other names that Kafka's clients know (for producers
  and consumers) are left out of a file with a warning, since it may be shared; from ``-X`` they are refused. Unknown
  names are refused.
- No message shows a value, or a line of the file; an unknown name may be a line of a value (`ottla.setting_names`).
  Possible secrets are refused in ``-X``, because every user of the machine can see the arguments of a command.

Source: CommandLineUtils.java.
"""

import logging
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import typer

from ottla.errors import ConfigurationError
from ottla.kafka_names import in_kafkas_names
from ottla.properties import parse_properties

log = logging.getLogger("ottla.cli")

_SECRET = re.compile(r"password|secret|jaas|token|credential|key\.pem|keystore\.key")
_IN_KAFKAS_TERMS = {
    r"; if it is another program's, ignore=\('[^']*',\)": "",
    r"`force`": "`--force`",
}
"""Advice in errors for programs, and its counterpart for ``--command-config`` and options."""


def read(
    file: Path | None, settings: Iterable[str] = (), *, option: str = "--command-config", only_security: bool = False
) -> dict[str, Any]:
    """Turn a file, and settings that take precedence over it, into arguments of `ottla.connect`.

    Args:
        option: the option that names the file.
        only_security: take only the names about TLS and SASL from the file.

    Raises:
        BadParameter: the file cannot be read, or a setting cannot be given this way.
        ConfigurationError: a name or a value is invalid.
    """
    from ottla.sdk.kafka_config import from_kafka_config

    settings = tuple(settings)
    names = _from_file(file, option, only_security) if file is not None else {}
    names |= _from_settings(settings)
    try:
        return dict(from_kafka_config(names, lenient=True))
    except ConfigurationError as error:
        where = " and ".join([*([str(file)] if file is not None else []), *(["-X"] if settings else [])])
        raise ConfigurationError(f"{where}: {error}") from None


def in_kafkas_terms(message: str) -> str:
    """Adapt the advice in an error to the command line."""
    message = in_kafkas_names(message)
    for python, name in _IN_KAFKAS_TERMS.items():
        message = re.sub(python, name, message)
    return message


def _from_file(file: Path, option: str, only_security: bool) -> dict[str, str]:
    from ottla.sdk.kafka_meanings import is_about_connections
    from ottla.sdk.kafka_security import is_security

    try:
        data = file.read_bytes()
    except OSError as error:
        raise typer.BadParameter(f"cannot read {file}: {error.strerror}", param_hint=option) from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")  # Java's encoding of properties
    try:
        names = parse_properties(text)
    except ValueError as error:
        raise typer.BadParameter(f"{file}, {error}", param_hint=option) from None
    known = {name: is_about_connections(name) and (is_security(name) or not only_security) for name in names}
    if others := [name for name, used in known.items() if used is False]:
        log.warning("settings ignored in %s: %s", file, ", ".join(others))
    for name in others:
        del names[name]
    return names


def _from_settings(settings: Iterable[str]) -> dict[str, str]:
    from ottla.sdk.kafka_config import is_shown_name, near_name
    from ottla.sdk.kafka_meanings import is_about_connections

    names: dict[str, str] = {}
    for number, setting in enumerate(settings, 1):
        name, equals, value = setting.partition("=")
        name = name.strip()
        if not equals or not name:
            raise typer.BadParameter(f"number {number} is not NAME=VALUE", param_hint="-X")
        if _SECRET.search(name):
            where = "where every user of this machine can see it: put it in a file for --command-config"
            raise typer.BadParameter(f"{name} is not accepted on the command line, {where}", param_hint="-X")
        if not is_shown_name(name):
            raise typer.BadParameter(f"number {number} is not a name that Kafka's clients know", param_hint="-X")
        known = name if is_about_connections(name) is not None else near_name(name)
        if is_about_connections(known) is False:
            raise typer.BadParameter(f"{known} is not about connections: use this command's options", param_hint="-X")
        names[name] = value
    return names
