"""``--command-config`` and ``-X``: files in Java's format, and secrets that no output shows."""

import os
import re
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from ottla import TLS, Plain, ScramSha512
from ottla.cli.command_config import in_kafkas_terms, read
from ottla.errors import ConfigurationError
from ottla.properties import parse_properties

SECRET = "tell-nobody"


def config_in(folder: Path, text: str) -> Path:
    file = folder / "client.properties"
    file.write_text(text)
    return file


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", {}),
        ("# a=b\n  ! c=d\n\n \t\n", {}),
        ("a=b\nc = d\n e : f\n", {"a": "b", "c": "d", "e": "f"}),
        ("a b\nc\nd=\n", {"a": "b", "c": "", "d": ""}),
        ("a==b\nc=d=e : f", {"a": "=b", "c": "d=e : f"}),
        ("a=b \r\nc=d\re=f", {"a": "b ", "c": "d", "e": "f"}),
        ("a=b\na=c", {"a": "c"}),
        ("a=b\\\n   c\\\n# d\ne=f", {"a": "bc# d", "e": "f"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=b\\", {"a": "b"}),
        (r"a\ b\=c=\u00e9\t\z\\", {"a b=c": "é\tz\\"}),
        ("# comments do not go on \\\na=b", {"a": "b"}),
    ],
)
def test_a_file_is_read_as_java_reads_properties(text: str, names: dict[str, str]) -> None:
    assert parse_properties(text) == names


@given(st.text(alphabet="ab=: \\\n\ru0é#!\t", max_size=30))
def test_no_text_breaks_the_parser(text: str) -> None:
    try:
        parse_properties(text)
    except ValueError as error:
        assert "hexadecimal" in str(error)


def test_what_is_wrong_in_a_file_is_told_by_its_line_and_not_shown(tmp_path: Path) -> None:
    file = config_in(tmp_path, f"a=b\nsasl.password={SECRET}\\u00\n")
    with pytest.raises(typer.BadParameter, match=r"line 2: .* hexadecimal") as caught:
        read(file, [])
    assert SECRET not in str(caught.value)


def test_what_java_writes_as_two_escapes_is_one_character(tmp_path: Path) -> None:
    assert parse_properties(r"a=\ud83d\udd12") == {"a": "\N{LOCK}"}
    with pytest.raises(ValueError, match="line 1: half of a surrogate pair"):
        parse_properties(r"a=\ud83d")


JAAS = f"""\
security.protocol=SASL_PLAINTEXT
sasl.mechanism=SCRAM-SHA-512
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\
    username="alice" \\
    password="{SECRET}";
"""


def test_javas_names_say_how_to_connect(tmp_path: Path) -> None:
    assert read(config_in(tmp_path, JAAS), []) == {"sasl": ScramSha512("alice", SECRET)}


def test_librdkafkas_names_say_how_to_connect(tmp_path: Path) -> None:
    file = config_in(tmp_path, f"sasl.username=alice\nsasl.password={SECRET}\nmetadata.broker.list=b:1\n")
    made = read(file, ["security.protocol=sasl_ssl", "sasl.mechanisms=PLAIN", "client.id=me"])
    assert isinstance(made.pop("tls"), TLS)
    assert made == {"bootstrap": "b:1", "client_id": "me", "sasl": Plain("alice", SECRET)}


def test_a_setting_goes_before_the_file(tmp_path: Path) -> None:
    file = config_in(tmp_path, "client.id=file\nrequest.timeout.ms=5000\n")
    assert read(file, ["client.id=option"]) == {"client_id": "option", "request_timeout": 5.0}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1"])
def test_a_file_is_utf8_or_as_java_writes_it(tmp_path: Path, encoding: str) -> None:
    file = tmp_path / "client.properties"
    file.write_bytes(JAAS.replace(SECRET, "grün").encode(encoding))
    assert read(file, []) == {"sasl": ScramSha512("alice", "grün")}


def test_what_is_not_about_connections_is_left_out_of_a_file_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = config_in(tmp_path, "client.id=me\nacks=1\ngroup.id=g\nkey.deserializer=org.example.Any\n")
    assert read(file, []) == {"client_id": "me"}
    [warning] = caplog.records
    assert warning.getMessage() == f"settings ignored in {file}: acks, group.id, key.deserializer"
    caplog.clear()
    more = config_in(tmp_path, "bootstrap.servers=b:1\nclient.id=me\nacks=1\nsecurity.protocol=PLAINTEXT\n")
    assert read(more, [], only_security=True) == {}
    [warning] = caplog.records
    assert warning.getMessage() == f"settings ignored in {more}: bootstrap.servers, client.id, acks"


def test_a_name_that_nobody_knows_is_refused_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"did you mean 'bootstrap\.servers'"):
        read(config_in(tmp_path, "bootstrap.server=b:1"), [])
    with pytest.raises(ConfigurationError, match=r"'x\.y' is not a name that Kafka's clients know") as caught:
        read(config_in(tmp_path, "x.y=1"), [])
    file = tmp_path / "client.properties"
    assert in_kafkas_terms(str(caught.value)) == f"{file}: 'x.y' is not a name that Kafka's clients know"


@pytest.mark.parametrize("misspelt", ["sasl.passwort", "sasl.passwd", "sasl.pasword"])
def test_a_misspelt_name_is_told_before_what_it_leaves_missing(tmp_path: Path, misspelt: str) -> None:
    text = f"security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.username=billing\n{misspelt}={SECRET}\n"
    file = config_in(tmp_path, text)
    with pytest.raises(ConfigurationError) as caught:
        read(file, [])
    known = f"{misspelt!r} is not a name that Kafka's clients know"
    assert str(caught.value) == f"{file}: {known}: did you mean 'sasl.password'?"


def test_a_name_that_nothing_is_near_to_is_told_with_what_is_missing(tmp_path: Path) -> None:
    text = f"security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.username=billing\nsasl.pw={SECRET}\n"
    with pytest.raises(ConfigurationError, match=r"password for PLAIN must be .*does not know it: 'sasl\.pw'\)$"):
        read(config_in(tmp_path, text), [])


def test_an_error_names_where_its_settings_come_from(tmp_path: Path) -> None:
    file = config_in(tmp_path, "request.timeout.ms=soon")
    for source, where in (((file, []), f"{file}: "), ((None, ["request.timeout.ms=soon"]), "-X: ")):
        with pytest.raises(ConfigurationError) as caught:
            read(*source)
        assert str(caught.value).startswith(f"{where}'request.timeout.ms'")
    with pytest.raises(ConfigurationError, match=r"client\.properties and -X: "):
        read(file, ["client.id=me"])


@pytest.mark.parametrize(
    "name",
    [
        "sasl.password",
        "sasl.jaas.config",
        "ssl.key.password",
        "ssl.key.pem",
        "ssl.keystore.key",
        "ssl.keystore.password",
    ],
)
def test_a_secret_is_not_taken_from_the_command_line(name: str) -> None:
    with pytest.raises(typer.BadParameter, match="--command-config") as caught:
        read(None, [f"{name}={SECRET}"])
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (f"sasl.password:{SECRET}", "number 1 is not NAME=VALUE"),
        (f"={SECRET}", "number 1 is not NAME=VALUE"),
        ("acks=1", "acks is not about connections"),
        ("transactional.id=1", "transactional.id is not about connections"),
        ("linger=5", "linger.ms is not about connections"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_and_not_shown(setting: str, message: str) -> None:
    with pytest.raises(typer.BadParameter, match=message) as caught:
        read(None, [setting])
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "wrong",
    [
        {"sasl.mechanism": "GSSAPI"},
        {"ssl.keystore.password": SECRET},
        {"ssl.key.pem": SECRET},
        {"ssl.certificate.pem": "/dev/null", "ssl.keystore.key": SECRET},
        {"ssl.certificate.location": "/dev/null", "ssl.keystore.key": SECRET},
        {"sasl.jaas.config": f"{SECRET} {SECRET}"},
        {"sasl.password": ""},
        {"request.timeout.ms": "soon"},
    ],
    ids=lambda wrong: " ".join(wrong),
)
def test_no_message_about_a_configuration_shows_a_secret(tmp_path: Path, wrong: dict[str, Any]) -> None:
    names = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "a", "sasl.password": SECRET}
    text = "".join(f"{name}={value}\n" for name, value in (names | wrong).items())
    with pytest.raises(ConfigurationError) as caught:
        read(config_in(tmp_path, text), [])
    assert SECRET not in str(caught.value)


def test_what_is_left_out_is_named_and_not_shown(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    text = f"security.protocol=SASL_SSL\nssl.crl.location={SECRET}\nssl.engine.factory.class={SECRET}\n"
    read(config_in(tmp_path, f"{JAAS}{text}"), [])
    assert "ssl.crl.location" in caplog.text
    assert SECRET not in caplog.text


def test_the_arguments_show_no_secret(tmp_path: Path) -> None:
    assert SECRET not in repr(read(config_in(tmp_path, JAAS), []))


def test_a_file_may_be_a_pipe() -> None:
    reads, writes = os.pipe()
    try:
        os.write(writes, JAAS.encode())
        os.close(writes)
        assert read(Path(f"/dev/fd/{reads}"), []) == {"sasl": ScramSha512("alice", SECRET)}
    finally:
        os.close(reads)


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ("give the CA that signed it as tls=TLS(ca=…)", "give the CA that signed it as ssl.ca.location"),
        (
            "got none: give TLS(certificate=…, key=…)",
            "got none: give ssl.certificate.location and ssl.key.location",
        ),
        ("a certificate: give TLS(certificate=…)", "a certificate: give ssl.certificate.location and ssl.key.location"),
        ("TLS(check_hostname=False) accepts", "ssl.endpoint.identification.algorithm=none accepts"),
        (
            "give sasl=ottla.Plain(…), or another mechanism, or security.protocol=SASL_SSL or SASL_PLAINTEXT, "
            "sasl.mechanism, sasl.username and sasl.password",
            "set security.protocol=SASL_SSL or SASL_PLAINTEXT, sasl.mechanism, sasl.username and sasl.password",
        ),
        ("give the CA that signed it as ServerTLS(ca=…)", "give the CA that signed it as ssl.truststore.location"),
        ("give the key as ServerTLS(key=…) if it is separate", "put both into one file"),
        ("leave out sasl=, or", "use security.protocol=PLAINTEXT or SSL, or"),
    ],
)
def test_advice_is_given_in_kafkas_names(said: str, advice: str) -> None:
    assert in_kafkas_terms(said) == advice
    sources = "".join(Path(each).read_text() for each in ("src/ottla/tls.py", "sdk/connection/handshake.py"))
    sources = re.sub(r'"\s+f?"', "", sources)
    assert said.partition("accepts")[0].rpartition(": ")[2].strip() in sources
