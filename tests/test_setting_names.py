"""Errors about configurations quote no line of a key and no password that stands where a name or a path is expected."""

import base64
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from ottla import TLS, from_kafka_config
from ottla.addresses import parse_address
from ottla.brokerlite.config_file import read_config as read_broker
from ottla.cli.command_config import read
from ottla.config_file import ConfigFile
from ottla.errors import ConfigurationError
from ottla.properties import parse_properties
from ottla.proxy.config_file import read_config as read_proxy
from ottla.setting_names import is_shown, not_shown
from ottla.tls import ServerTLS
from tests import tls

KNOWN = ["acks", "bootstrap.servers", "group.id", "upstream-config"]
CA = trustme.CA()
KEY = tls.text(CA.issue_cert("service").private_key_pem).strip()
SECRETS = KEY.splitlines()[1:-1]
PASSWORD = "hunter2-Zx9"
BASE64 = base64.b64encode(bytes(range(48, 96))).decode()


def assert_hides(error: BaseException, secrets: list[str]) -> None:
    """No piece of a secret shows."""
    shown = [part for each in secrets for part in re.findall(r"[\w-]{8,}", each) if part in str(error)]
    assert shown == [], str(error)


@pytest.mark.parametrize("name", ["acks", "my.setting", "schema.registry.url", "ack", "GROUP_ID", "groupId", "a-b.c_d"])
def test_a_name_that_looks_like_a_setting_is_quoted(name: str) -> None:
    assert is_shown(name, KNOWN)


@pytest.mark.parametrize(
    "name", ["", "swordfish", PASSWORD, "correct-horse", "-----END", BASE64, "a.b.c9", "Abc.def", "acks=7", "a.b\n"]
)
def test_any_other_name_is_not_quoted(name: str) -> None:
    assert not is_shown(name, KNOWN)


@given(st.binary(min_size=12, max_size=96))
def test_a_line_of_a_key_is_never_quoted(data: bytes) -> None:
    line = base64.b64encode(data).decode()
    for config in ({line: ""}, parse_properties(line), {f"sasl.{line}": ""}):
        with pytest.raises(ConfigurationError) as caught:
            from_kafka_config(config, lenient=True)
        assert line.rstrip("=") not in str(caught.value)


@pytest.mark.parametrize(
    ("count", "says"),
    [
        (1, "line 2 is not a setting"),
        (2, "lines 2 and 3 are not settings"),
        (4, "lines 2, 3, 4 and 5 are not settings"),
        (9, "lines 2, 3, 4 and 6 more are not settings"),
    ],
)
def test_an_error_gives_the_lines_of_what_it_does_not_quote(count: int, says: str) -> None:
    names = [f"Secret{number}" for number in range(count)]
    assert not_shown(parse_properties("\n".join(["group.id=g", *names])), names).startswith(says)


def test_a_line_that_continues_counts_where_it_begins() -> None:
    config = parse_properties("# first\n\na=b\\\nc\nd=e\r\n\r\na=f")
    assert config.lines == {"a": 7, "d": 5}


@pytest.mark.parametrize(
    ("text", "secrets", "says"),
    [
        (
            f"security.protocol=SSL\nssl.keystore.key={KEY}\n",
            SECRETS,
            r"lines 3, 4,? .*needs \\ at the end of each line",
        ),
        (f"security.protocol=SSL\n\nssl.truststore.password=\\\n{KEY}\n", SECRETS, "lines 5, 6,? .* not settings"),
        (f"sasl.username=a\nsasl.password=\n  {PASSWORD}\n", [PASSWORD], "line 3 is not a setting"),
        (f"sasl.password=\n{PASSWORD} and more\n", [PASSWORD], "line 2 is not a setting"),
        (f"security.protocol=SASL_SSL\nsasl.mechanism={PASSWORD}\n", [PASSWORD], "'sasl.mechanism' is not a mechanism"),
        (f"bootstrap.servers=a:1,user:{PASSWORD}@host\n", [PASSWORD], "'…@host'"),
    ],
)
def test_a_file_for_clients_is_refused_without_its_secrets(
    tmp_path: Path, text: str, secrets: list[str], says: str
) -> None:
    file = tmp_path / "client.properties"
    file.write_text(text)
    with pytest.raises(ConfigurationError, match=says) as caught:
        read(file, [])
    assert_hides(caught.value, secrets)


def test_a_mapping_is_refused_without_its_secrets() -> None:
    with pytest.raises(ConfigurationError, match="name 2 is not a setting") as caught:
        from_kafka_config({"group.id": "g", BASE64: ""})
    assert_hides(caught.value, [BASE64])
    assert from_kafka_config({"group.id": "g", BASE64: ""}, ignore=[BASE64]).consumer == {"group": "g"}


@pytest.mark.parametrize("reader", [read_broker, read_proxy])
def test_a_properties_file_of_a_server_is_refused_without_its_secrets(
    tmp_path: Path, reader: Callable[[ConfigFile], object]
) -> None:
    file = tmp_path / "server.properties"
    for text, secrets, line in (
        (f"listeners=SSL://localhost:9093\nssl.keystore.key={KEY}\n", SECRETS, 3),
        (f"ssl.key.password=\n{PASSWORD}\n", [PASSWORD], 2),
    ):
        file.write_text(text)
        with pytest.raises(ConfigurationError, match=rf"server\.properties: line {line} is not a setting") as caught:
            reader(ConfigFile.read(file))
        assert_hides(caught.value, secrets)


@pytest.mark.parametrize("reader", [read_broker, read_proxy])
@pytest.mark.parametrize("key", [BASE64, PASSWORD, f"/{BASE64}", f"{BASE64}\n{BASE64}", "x" * 5000])
def test_a_key_without_its_first_line_is_not_shown_as_a_path(
    tmp_path: Path, reader: Callable[[ConfigFile], object], key: str
) -> None:
    file = tmp_path / "server.toml"
    escaped = key.replace("\n", "\\n")
    file.write_text(
        f'listeners="SSL://localhost:9093"\nssl.keystore.key="{escaped}"\nssl.keystore.certificate.chain="c.pem"\n'
    )
    with pytest.raises(
        ConfigurationError, match=r"the value of key .*without its -----BEGIN line.* cannot be read"
    ) as caught:
        reader(ConfigFile.read(file))
    assert_hides(caught.value, key.split())
    for make in (TLS, ServerTLS):
        with pytest.raises(ConfigurationError, match="the value of certificate") as caught:
            make(certificate=key)
        assert_hides(caught.value, key.split())


def test_a_path_that_cannot_be_read_is_shown(tmp_path: Path) -> None:
    for path in ("key.pem", "/no/such.key", str(tmp_path / "kafka_key"), tmp_path / "gone" / "key"):
        with pytest.raises(ConfigurationError, match=f"certificate '{re.escape(str(path))}' cannot be read"):
            TLS(certificate=path)


@pytest.mark.parametrize(
    "text", [f"user:{PASSWORD}@host", f"{PASSWORD}@host:99999", f"a:{PASSWORD}@[::1", f"{PASSWORD}@"]
)
def test_an_address_is_refused_without_its_password(text: str) -> None:
    with pytest.raises(ConfigurationError, match="address '…@") as caught:
        parse_address(text)
    assert_hides(caught.value, [PASSWORD])
