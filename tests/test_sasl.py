"""SASL mechanisms against the other side of each: which proofs they accept, and which they refuse."""

from typing import Any

import pytest
from scramp import ScramMechanism

import ottla
from ottla.errors import AuthenticationFailed, ConfigurationError
from ottla.sasl import Plain, ScramSha256, ScramSha512

SCRAM = [ScramSha256, ScramSha512]


def test_plain_is_one_token_with_name_and_password() -> None:
    exchange = Plain("alice", "wörd").exchange()
    assert exchange.begin() == b"\0alice\0w\xc3\xb6rd"
    assert exchange.answered(b"") is None


def authenticate(sasl: ScramSha256, password: str, iterations: int = 4096) -> None:
    """Carry tokens between a client and a server that knows ``password``."""
    mechanism = ScramMechanism(sasl.mechanism)
    known = mechanism.make_auth_info(password, iteration_count=iterations)
    server = mechanism.make_server({sasl.username: known}.__getitem__)
    exchange = sasl.exchange()
    server.set_client_first(exchange.begin().decode())
    final = exchange.answered(server.get_server_first().encode())
    assert final is not None
    server.set_client_final(final.decode())
    assert exchange.answered(server.get_server_final().encode()) is None


@pytest.mark.parametrize("kind", SCRAM)
@pytest.mark.parametrize(("name", "password"), [("alice", "secret"), ("a=b,c", "p,w=d"), ("ünï", "pässwörd")])
def test_scram_proves_the_password_of_both_sides(kind: type[ScramSha256], name: str, password: str) -> None:
    authenticate(kind(name, password), password)


@pytest.mark.parametrize("kind", SCRAM)
def test_a_server_that_does_not_know_the_password_is_refused(kind: type[ScramSha256]) -> None:
    mechanism = ScramMechanism(kind.mechanism)
    exchange = kind("alice", "secret").exchange()
    server = mechanism.make_server(lambda _: mechanism.make_auth_info("other"))
    server.set_client_first(exchange.begin().decode())
    exchange.answered(server.get_server_first().encode())
    for answer in (b"v=" + b"A" * 43 + b"=", b"e=invalid-proof", b"nonsense", b"\xff", b""):
        exchange = kind("alice", "secret").exchange()
        server = mechanism.make_server(lambda _: mechanism.make_auth_info("other"))
        server.set_client_first(exchange.begin().decode())
        exchange.answered(server.get_server_first().encode())
        with pytest.raises(AuthenticationFailed, match="the broker did not prove that it knows the password"):
            exchange.answered(answer)


@pytest.mark.parametrize(
    "first", [b"", b"\xff", b"r=x,s=AAAA,i=4096", b"r=,s=,i=", b"r=x,s=AAAA,i=0", b"e=no", b"m=ext,r=x"]
)
def test_a_server_that_does_not_keep_to_scram_is_refused(first: bytes) -> None:
    exchange = ScramSha256("alice", "secret").exchange()
    exchange.begin()
    with pytest.raises(AuthenticationFailed):
        exchange.answered(first)


def test_a_server_cannot_keep_the_client_busy_with_hashes() -> None:
    exchange = ScramSha256("alice", "secret").exchange()
    nonce = exchange.begin().decode().rpartition("r=")[2]
    with pytest.raises(
        AuthenticationFailed, match="it asks for 2000000000 iterations, but ottla computes at most 100000"
    ):
        exchange.answered(f"r={nonce}more,s=AAAA,i=2000000000".encode())


@pytest.mark.parametrize("kind", [Plain, *SCRAM])
def test_a_password_is_shown_nowhere(kind: Any) -> None:
    assert "secret" not in repr(kind("alice", "secret"))


@pytest.mark.parametrize(
    ("name", "password", "says"),
    [
        ("", "p", "the username for PLAIN"),
        ("a", "", "the password for PLAIN"),
        ("a", None, "the password for PLAIN"),
        ("a\0b", "p", "zero"),
    ],
)
def test_names_and_passwords_that_cannot_be_are_refused(name: Any, password: Any, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        Plain(name, password)


@pytest.mark.parametrize(
    ("kind", "password"),
    [(Plain, "half\udcff"), (ScramSha512, "pass\N{LOCK}word"), (ScramSha256, "tab\tword"), (ScramSha512, "half\udcff")],
)
def test_a_password_that_a_mechanism_cannot_carry_is_refused_as_it_is_given(kind: Any, password: str) -> None:
    with pytest.raises(ConfigurationError, match=f"a character that {kind.mechanism} cannot carry") as raised:
        kind("alice", password)
    assert "word" not in str(raised.value).replace("password", "")


@pytest.mark.parametrize("kind", SCRAM)
@pytest.mark.parametrize(("username", "password"), [("alice", "no\xa0break"), ("alice", "\u2168"), ("a\xadlice", "p")])
def test_what_saslprep_would_change_is_refused(kind: Any, username: str, password: str) -> None:
    with pytest.raises(ConfigurationError, match="replaces by another") as raised:
        kind(username, password)
    assert password not in str(raised.value) or password == "p"
    kind("älice", "pässwörd €")


def test_the_option_takes_a_mechanism_and_never_shows_what_it_was_given() -> None:
    with pytest.raises(ConfigurationError, match=r"sasl must be ottla.Plain\(…\).*, not a tuple") as raised:
        ottla.connect("b:1", sasl=("alice", "secret"))  # type: ignore[arg-type]
    assert "secret" not in str(raised.value)
