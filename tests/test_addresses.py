"""Addresses: one parser and one formatter."""

import re
from pathlib import Path
from typing import Any

import pytest

import ottla
from ottla.addresses import format_address, parse_address
from ottla.brokerlite.config import BrokerConfig
from ottla.errors import ConfigurationError
from ottla.proxy.config import ProxyConfig
from ottla.sdk.options import parse_bootstrap


@pytest.mark.parametrize(
    ("text", "default", "expected"),
    [
        ("a:1", None, ("a", 1)),
        (" a:1 ", None, ("a", 1)),
        ("a", 5, ("a", 5)),
        ("a.example", 5, ("a.example", 5)),
        ("127.0.0.1:65535", None, ("127.0.0.1", 65535)),
        ("[::1]:9", None, ("::1", 9)),
        ("[::1]", 5, ("::1", 5)),
        ("::1", 5, ("::1", 5)),
        ("::", 5, ("::", 5)),
        ("fe80::1%eth0", 5, ("fe80::1%eth0", 5)),
        ("[fe80::1%eth0]:9", None, ("fe80::1%eth0", 9)),
        ("2001:db8:0:0:0:0:0:1", 5, ("2001:db8:0:0:0:0:0:1", 5)),
        ("[::ffff:10.0.0.1]:9", None, ("::ffff:10.0.0.1", 9)),
    ],
)
def test_addresses_are_split_and_joined(text: str, default: int | None, expected: tuple[str, int]) -> None:
    assert parse_address(text, default_port=default) == expected
    assert parse_address(format_address(*expected)) == expected


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is not host:port"),
        (":1", "is not host:port"),
        ("a:", "is not host:port"),
        ("a:x", "is not host:port"),
        ("a:-1", "is not host:port"),
        ("a:٣", "is not host:port"),
        ("a b:1", "is not host:port"),
        ("a:1;b:2", "is not host:port"),
        ("http://a:1", "is not host:port"),
        ("a/b:1", "is not host:port"),
        ("9092", "is only a number, not host:port"),
        ("a:70000", "has no such port: ports are 1 to 65535"),
        ("a:0", "has no such port: ports are 1 to 65535"),
        ("[::1", "is not host:port"),
        ("[::1:9092", "is not host:port"),
        ("[::1]9092", "is not host:port"),
        ("[::1]:", "is not host:port"),
        ("[a]:1", "'a' is not an IPv6 address, and only those have brackets"),
        ("[]:1", "is not an IPv6 address"),
        ("[::1::2]:9", "is not an IPv6 address"),
        ("::1:9092", r"is ambiguous: write \[::1\]:9092, or \[::1:9092\]"),
        ("2001:db8:0:0:0:0:0:1:9092", r"needs brackets: write \[2001:db8:0:0:0:0:0:1\]:9092"),
        ("a:1:2", "is not host:port"),
    ],
)
@pytest.mark.parametrize("default", [None, 5])
def test_the_error_says_what_an_address_is(text: str, why: str, default: int | None) -> None:
    with pytest.raises(ConfigurationError, match=why.replace("not host:port", "not (host or )?host:port")):
        parse_address(text, default_port=default)
    if text:
        with pytest.raises(ConfigurationError, match=f"bootstrap address '{re.escape(text.split(',')[0])}'"):
            parse_bootstrap(text)


@pytest.mark.parametrize("port", ["9" * 5000, "0" * 5000, "70000"])
def test_a_port_of_any_length_is_refused_in_plain_words(port: str) -> None:
    with pytest.raises(ConfigurationError, match=r"has no such port: ports are 1 to 65535"):
        parse_address(f"a:{port}")


def test_a_port_has_to_be_there_where_none_is_usual() -> None:
    with pytest.raises(ConfigurationError, match="'a' has no port: write host:port, such as a:9092"):
        parse_address("a")
    with pytest.raises(ConfigurationError, match=r"'::1' has no port: write host:port, such as \[::1\]:9092"):
        parse_address("::1")
    assert parse_address("a:0", any_port=True) == ("a", 0)


def test_every_part_takes_ipv6_and_names_the_option() -> None:
    assert parse_bootstrap("[::1]:1, ::1,[::1]") == [("::1", 1), ("::1", 9092), ("::1", 9092)]
    for advertise in ("::1", "[::1]"):
        assert ProxyConfig(upstream="[::1]:1", listen="[::]:0", advertise=advertise).advertised == ("::1", None)
    assert ProxyConfig(upstream="a:1", advertise="[::1]:5").advertised == ("::1", 5)
    BrokerConfig(advertise="::1", health="[::1]:0")
    wrong: tuple[tuple[dict[str, Any], str], ...] = (({"advertise": "a:b"}, "advertise"), ({"health": "a"}, "health"))
    for options, named in wrong:
        with pytest.raises(ConfigurationError, match=f"^{named} "):
            BrokerConfig(**options)
        with pytest.raises(ConfigurationError, match=f"^{named} "):
            ProxyConfig(upstream="a:1", **options)


def test_nobody_else_joins_a_host_and_a_port() -> None:
    joins = re.compile(r"host\}:\{|\[0\]\}:\{[^}]*\[1\]\}")
    roots = [Path(ottla.__file__).parent, *(Path(ottla.__file__).parent / part for part in ("sdk", "proxy", "spark"))]
    roots += [Path(ottla.__file__).parent / part for part in ("brokerlite", "codec")]
    found = [
        f"{file}: {line.strip()}"
        for root in roots
        for file in root.rglob("*.py")
        if file.name != "addresses.py"
        for line in file.read_text().splitlines()
        if joins.search(line)
    ]
    assert not found, "use ottla.addresses.format_address"
