"""The proxy has the same options, with the same defaults, in `ProxyConfig`, in `ottla proxy --help` and in the docs."""

import inspect
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

from ottla.cli import servers
from ottla.proxy.config import ProxyConfig

PAGE = Path(__file__).parents[2] / "docs/proxy.md"
CONFIGURED = {field.name.replace("_", "-"): field.default for field in fields(ProxyConfig)}
OF_ITS_OWN = {"config", "announce", "name", "as-json", "log-format", "log-level"}
"""Options of the command that are not options of the proxy."""
OF_UPSTREAM = {"tls", "sasl"}
"""Options that `upstream-config` contains."""
NOT_ON_THE_COMMAND_LINE = OF_UPSTREAM | {"listeners", "acls", "users", "deny-apis"}
"""The others are about clients' rights, and only in a file."""
UNITS = {"": 1, "KiB": 2**10, "MiB": 2**20}


def numbers(configured: dict[str, Any]) -> dict[str, float]:
    """The options whose default is a number."""
    return {name: value for name, value in configured.items() if type(value) in (int, float)}


def test_the_page_has_every_option_with_its_default() -> None:
    rows = re.findall(r"^\| `([a-z-]+)`(?: \(`--topic`\))? \| (.*?) \|", PAGE.read_text(), re.MULTILINE)
    said = dict(rows[[name for name, _ in rows].index("upstream") :])
    assert said.keys() == CONFIGURED.keys() - OF_UPSTREAM
    found = {name: said[name].split() for name in numbers(CONFIGURED)}
    assert {name: float(number) * UNITS[unit[0] if unit else ""] for name, (number, *unit) in found.items()} == numbers(
        CONFIGURED
    )
    assert said["listen"] == f"`{CONFIGURED['listen']}`"


def test_the_command_takes_every_option_and_says_its_default() -> None:
    said = {
        name.replace("_", "-"): parameter.annotation.__metadata__[0].help or ""
        for name, parameter in inspect.signature(servers.proxy).parameters.items()
    }
    options = {"topics" if name == "topic" else name for name in said.keys() - OF_ITS_OWN}
    assert options == CONFIGURED.keys() - NOT_ON_THE_COMMAND_LINE
    for name, value in numbers(CONFIGURED).items():
        assert re.search(rf"default: ({value:g}|{value})\.$", said[name])
    assert f"default: {CONFIGURED['listen']}." in said["listen"]
