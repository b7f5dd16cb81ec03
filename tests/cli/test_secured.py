"""Commands over TLS and with SASL: they follow the file of ``--command-config``, and report a failure in one line."""

import os
import ssl
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from typer.testing import CliRunner

import ottla
from ottla.cli import exits
from ottla.cli.commands import app
from ottla.codec.apis.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.codec.apis.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.errors import SaslAuthenticationFailed
from tests.cli.test_help import COMMANDS
from tests.sdk import scripted as scripts
from tests.sdk.scripted import Scripted, scripted
from tests.sim.world import ModelBroker

SECRET = "tell-nobody"


class Guarded(ModelBroker):
    """A broker that requires SASL PLAIN from its only user, alice."""

    def __init__(self, topics: dict[str, int]) -> None:
        super().__init__(topics)
        self.versions.update({17: (0, 1), 36: (0, 2)})

    def _answer(self, node: int, message: Any) -> Any:
        match message:
            case SaslHandshakeRequest():
                return SaslHandshakeResponse(error_code=0, mechanisms=("PLAIN",))
            case SaslAuthenticateRequest(auth_bytes=token) if token == f"\0alice\0{SECRET}".encode():
                return SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=b"")
            case SaslAuthenticateRequest():
                code, says = SaslAuthenticationFailed.code, "Authentication failed"
                return SaslAuthenticateResponse(error_code=code, error_message=says, auth_bytes=b"")
        return super()._answer(node, message)


@pytest.fixture(scope="module")
def ca() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def listener(ca: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("127.0.0.1").configure_cert(context)
    return context


@pytest.fixture
def guarded(listener: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Scripted]]:
    """A broker with TLS and SASL."""
    monkeypatch.setattr(scripts, "ModelBroker", Guarded)
    with scripted(tls=listener) as found:
        yield found


def config_in(folder: Path, ca: trustme.CA | None, **changed: str) -> Path:
    """A configuration file for TLS and SASL."""
    names = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'…plain.PlainLoginModule required username="alice" password="{SECRET}";',
    } | {name.replace("_", "."): value for name, value in changed.items()}
    if ca is not None:
        (folder / "ca.pem").write_bytes(ca.cert_pem.bytes())
        names["ssl.ca.location"] = str(folder / "ca.pem")
    file = folder / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in names.items()).replace("…", "org.example."))
    return file


def run(*arguments: str | Path, given: str | None = None, **environment: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, [*map(str, arguments)], input=given, env={"COLUMNS": "300", **environment})
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.slow
def test_every_command_that_connects_takes_a_configuration() -> None:
    without = {("broker",), ("proxy",), ("dump",), ("demo",)}
    for command in COMMANDS:
        told = CliRunner().invoke(app, [*command, "--help"], env={"COLUMNS": "200", "TERM": "dumb"}).output
        assert ("--command-config" in told and "-X" in told) == (tuple(command) not in without), command


def test_a_command_connects_as_its_file_says(guarded: tuple[str, Scripted], ca: trustme.CA, tmp_path: Path) -> None:
    address, broker = guarded
    file = config_in(tmp_path, ca)
    assert run("topics", "list", "--bootstrap", address, "--command-config", file) == (0, "t\n", "")
    assert any(isinstance(each, SaslAuthenticateRequest) for each in broker.seen)


def test_the_file_may_be_in_the_environment_and_name_the_brokers(
    guarded: tuple[str, Scripted], ca: trustme.CA, tmp_path: Path
) -> None:
    file = config_in(tmp_path, ca, bootstrap_servers=guarded[0])
    assert run("topics", "list", OTTLA_COMMAND_CONFIG=str(file)) == (0, "t\n", "")


def test_an_option_goes_before_the_file(guarded: tuple[str, Scripted], ca: trustme.CA, tmp_path: Path) -> None:
    address, _ = guarded
    file = config_in(tmp_path, ca, bootstrap_servers="127.0.0.1:1", sasl_mechanism="SCRAM-SHA-512")
    arguments = ("--bootstrap", address, "--command-config", file, "-X", "sasl.mechanism=PLAIN")
    assert run("topics", "list", *arguments) == (0, "t\n", "")


def test_tls_alone_is_said_without_a_file(ca: trustme.CA, listener: ssl.SSLContext, tmp_path: Path) -> None:
    config_in(tmp_path, ca)
    settings = ("-X", "security.protocol=ssl", "-X", f"ssl.ca.location={tmp_path / 'ca.pem'}")
    with scripted(tls=listener) as (address, _):
        assert run("topics", "list", "-b", address, *settings) == (0, "t\n", "")


def test_a_wrong_password_is_one_line_without_it(guarded: tuple[str, Scripted], ca: trustme.CA, tmp_path: Path) -> None:
    file = config_in(tmp_path, ca)
    file.write_text(file.read_text().replace(SECRET, "another-secret"))
    code, out, err = run("topics", "list", "-b", guarded[0], "--command-config", file)
    assert (code, out, err.count("\n")) == (exits.FAILED, "", 1)
    assert err.startswith(f"ottla: {guarded[0]}: user 'alice' by PLAIN is refused: Authentication failed")


@pytest.mark.parametrize("right", [True, False], ids=["right", "wrong"])
def test_no_secret_is_in_an_output_or_log(
    guarded: tuple[str, Scripted], ca: trustme.CA, tmp_path: Path, right: bool
) -> None:
    file = config_in(tmp_path, ca)
    secret = SECRET if right else "another-secret"
    file.write_text(file.read_text().replace(SECRET, secret))
    for form in ("text", "json"):
        options = ("--command-config", file, "--log-level", "debug", "--log-format", form)
        code, out, err = run("topics", "describe", "t", "-b", guarded[0], *options)
        assert code == (0 if right else exits.FAILED)
        assert "connected" in err or not right
        assert secret not in out + err


def test_a_bug_shows_no_secret_in_its_traceback(
    guarded: tuple[str, Scripted], ca: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Any) -> Any:
        raise RuntimeError("a bug")

    monkeypatch.setattr(ottla.Client, "list_topics", broken)
    result = CliRunner().invoke(
        app, ["topics", "list", "-b", guarded[0], "--command-config", str(config_in(tmp_path, ca))]
    )
    assert result.exc_info is not None
    told = "".join(traceback.format_exception(*result.exc_info))
    assert "a bug" in told
    assert SECRET not in told + result.output
    assert not app.pretty_exceptions_enable, "pretty exceptions would show local variables"


def test_a_broker_that_is_not_trusted_is_one_line_that_says_what_to_give(
    guarded: tuple[str, Scripted], tmp_path: Path
) -> None:
    file = config_in(tmp_path, trustme.CA())
    code, out, err = run("topics", "list", "-b", guarded[0], "--command-config", file)
    assert (code, out, err.count("\n")) == (exits.FAILED, "", 1)
    assert err.endswith("unable to get local issuer certificate; give the CA that signed it as ssl.ca.location\n")


def test_tls_to_a_listener_without_it_is_one_line(ca: trustme.CA, tmp_path: Path) -> None:
    file = config_in(tmp_path, ca)
    with scripted() as (address, _):
        options = ("-b", address, "--command-config", file, "--connect-timeout", "0.5")
        code, out, err = run("topics", "list", *options)
    assert (code, out, err.count("\n")) == (exits.UNREACHABLE, "", 1)
    does = "during the TLS handshake; listeners without TLS do that: set security.protocol=PLAINTEXT or SASL_PLAINTEXT"
    assert does in err and "tls=" not in err


def test_a_listener_with_tls_is_one_line_without_it(guarded: tuple[str, Scripted]) -> None:
    code, out, err = run("topics", "list", "-b", guarded[0], "--connect-timeout", "0.5")
    assert (code, out, err.count("\n")) == (exits.UNREACHABLE, "", 1)
    assert "listeners with TLS do that (for TLS, set security.protocol=SSL or SASL_SSL)" in err and "tls=" not in err


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "No such file"),
        ("sasl.password=\\u12", "line 1: "),
        ("security.protocol=SASL_SSL\n", "'sasl.mechanism' is GSSAPI by default"),
        ("security.protocol=SSL\nssl.ca.location=/nowhere/ca.pem\n", "'/nowhere/ca.pem' cannot be read"),
        ("security.protocl=SSL\n", "did you mean 'security.protocol'"),
        ("request.timeout.ms=soon\n", "'request.timeout.ms': 'soon' is not a number"),
    ],
)
def test_a_file_that_cannot_be_used_is_wrong_use(tmp_path: Path, text: str | None, says: str) -> None:
    file = tmp_path / "client.properties"
    if text is not None:
        file.write_text(text)
    code, out, err = run("topics", "list", "--command-config", file)
    assert (code, out) == (exits.WRONG_USE, "")
    assert says in err


def test_what_is_not_about_connections_is_left_out_with_a_warning(
    guarded: tuple[str, Scripted], ca: trustme.CA, tmp_path: Path
) -> None:
    file = config_in(tmp_path, ca, group_id="g", acks="0")
    code, out, err = run("topics", "list", "-b", guarded[0], "--command-config", file)
    assert (code, out, err.count("\n")) == (0, "t\n", 1)
    assert "WARNING ottla.cli  settings ignored in " in err and "acks, group.id" in err.replace(
        "group.id, acks", "acks, group.id"
    )


def test_a_file_that_comes_late_through_a_pipe_is_waited_for(
    guarded: tuple[str, Scripted], ca: trustme.CA, tmp_path: Path
) -> None:
    reads, writes = os.pipe()
    try:
        os.write(writes, config_in(tmp_path, ca).read_bytes())
        os.close(writes)
        found = run("topics", "list", "-b", guarded[0], "--command-config", f"/dev/fd/{reads}")
        assert found == (0, "t\n", "")
    finally:
        os.close(reads)


def test_records_go_and_come(guarded: tuple[str, Scripted], ca: trustme.CA, tmp_path: Path) -> None:
    address, broker = guarded
    options = ("-b", address, "--command-config", config_in(tmp_path, ca))
    lines = tmp_path / "lines"
    lines.write_text("a\nb\n")
    code, _, err = run("produce", "t", "--file", lines, *options)
    assert (code, err) == (0, "2 records are stored in t\n")
    assert sum(log.end for log in broker.model.logs.values()) == 2
