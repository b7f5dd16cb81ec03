"""`ottla users`, `ottla broker users` and `ottla proxy users` as processes."""

import json
from pathlib import Path

import pytest

from ottla.brokerlite.config import BrokerConfig
from ottla.listeners import ListenerConfig, SecurityProtocol
from ottla.sasl_server.settings import SaslSettings
from ottla.testing import Broker
from tests.cli import program

pytestmark = pytest.mark.slow  # a process or two for each test

ADMIN, SECRET = "admin", "of-the-admin"


def ottla(*arguments: str | Path, given: bytes = b"") -> tuple[int, str, str]:
    done = program.run(*arguments, given=given)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def test_the_first_user_adds_the_others(tmp_path: Path) -> None:
    data = tmp_path / "data"
    first = ottla("broker", "users", "add", ADMIN, "--data", data, given=SECRET.encode() + b"\n")
    assert first == (0, "added admin\n", "")
    sasl = SaslSettings(mechanisms=("SCRAM-SHA-512", "PLAIN"))
    listener = ListenerConfig(protocol=SecurityProtocol.SASL_PLAINTEXT, port=0, sasl=sasl)
    with Broker(BrokerConfig(listeners=(listener,), data=data)) as broker:

        def config(user: str, password: str) -> Path:
            path = tmp_path / f"{user}.properties"
            path.write_text(
                f"bootstrap.servers={broker.bootstrap}\nsecurity.protocol=SASL_PLAINTEXT\n"
                f"sasl.mechanism=SCRAM-SHA-512\nsasl.username={user}\nsasl.password={password}\n"
            )
            return path

        admin = ("--command-config", config(ADMIN, SECRET))
        (tmp_path / "password").write_text("of-alice\nanother line\n")
        assert ottla("users", "add", "alice", "--password-file", tmp_path / "password", *admin)[:2] == (
            0,
            "added alice\n",
        )
        code, out, _ = ottla("users", "list", "--json", *admin)
        assert (code, [each["name"] for each in json.loads(out)]) == (0, [ADMIN, "alice"])
        assert json.loads(out)[1]["mechanisms"] == {"SCRAM-SHA-256": 4096, "SCRAM-SHA-512": 4096}
        alice = ("--command-config", config("alice", "of-alice"))
        assert ottla("topics", "create", "t", *alice)[0] == 0
        assert ottla("users", "delete", ADMIN, *alice)[:2] == (0, "deleted admin\n")
        code, _, err = ottla("users", "list", *admin)
        assert code == 1 and "user 'admin' by SCRAM-SHA-512 is refused" in err
        code, _, err = ottla("users", "delete", "nobody", *alice)
        assert code == 1 and "RESOURCE_NOT_FOUND" in err
        code, _, err = ottla("broker", "users", "list", "--data", data)
        assert code == 2 and "in use by another broker" in err
    assert ottla("broker", "users", "list", "--data", data) == (0, "alice: SCRAM-SHA-256, SCRAM-SHA-512\n", "")
    assert ottla("broker", "users", "delete", "alice", "--data", data)[:2] == (0, "deleted alice\n")
    assert ottla("broker", "users", "list", "--data", data, "--json")[1] == "[]\n"


@pytest.mark.parametrize(
    ("given", "says"),
    [(b"", "must have 1 to 1024 characters"), (b"\xff\n", "is not UTF-8"), (b"a\0b\n", "no zero character")],
)
def test_a_password_that_cannot_be_one_is_refused(tmp_path: Path, given: bytes, says: str) -> None:
    code, out, err = ottla("broker", "users", "add", "alice", "--data", tmp_path / "data", given=given)
    assert (code, out) == (1, "") and says in err
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    "command",
    [
        ("users", "add", "alice"),
        ("broker", "users", "add", "alice", "--data", "data"),
        ("proxy", "users", "add", "alice", "--users", "users.json"),
    ],
)
def test_a_password_given_as_an_argument_is_refused_and_not_repeated(command: tuple[str, ...]) -> None:
    code, out, err = ottla(*command, "Tr0ub4dor")
    assert (code, out) == (2, "") and "--password-file" in err
    assert "Tr0ub4dor" not in err


def test_the_users_of_a_proxy_come_change_and_go(tmp_path: Path) -> None:
    users = ("--users", tmp_path / "users.json")
    code, _, err = ottla("proxy", "users", "list", *users)
    assert code == 2 and "add the first user with ottla proxy users add" in err
    for name in ("bob", "alice", "alice"):
        assert ottla("proxy", "users", "add", name, *users, given=b"secret-of-it\n") == (0, f"added {name}\n", "")
    assert ottla("proxy", "users", "list", *users)[1] == (
        "alice: SCRAM-SHA-256, SCRAM-SHA-512\nbob: SCRAM-SHA-256, SCRAM-SHA-512\n"
    )
    content = (tmp_path / "users.json").read_text()
    assert "secret-of-it" not in content and (tmp_path / "users.json").stat().st_mode & 0o077 == 0
    assert ottla("proxy", "users", "delete", "bob", *users)[:2] == (0, "deleted bob\n")
    code, _, err = ottla("proxy", "user", "remove", "bob", *users)  # the names before
    assert code == 2 and "has no user bob" in err
    assert [each["name"] for each in json.loads(ottla("proxy", "users", "list", "--json", *users)[1])] == ["alice"]
    assert [each.name for each in tmp_path.iterdir()] == ["users.json"], "nothing is left beside the file"
