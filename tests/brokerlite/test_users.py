"""The users of the broker: the requests that change and list them, and the log that keeps them."""

import os
from pathlib import Path
from typing import Any

import pytest

from ottla.brokerlite.config import BrokerConfig
from ottla.brokerlite.handlers import SERVED
from ottla.brokerlite.machines.topics.topics import USER_CREDENTIALS
from ottla.codec.apis.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.codec.apis.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.codec.apis.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from ottla.codec.apis.metadata import MetadataRequest, MetadataRequestTopic
from ottla.codec.apis.sasl_authenticate import SaslAuthenticateRequest
from ottla.codec.apis.sasl_handshake import SaslHandshakeRequest
from ottla.sasl_server.scram import SHA_256, SHA_512, salted_password
from ottla.testing import Broker
from tests.brokerlite.machine import Machine, fetching

SHA_256_NUMBER, SHA_512_NUMBER = 1, 2
SALT = b"salt of some bytes"


def upsertion(user: str, mechanism: int = SHA_256_NUMBER, **changed: Any) -> ScramCredentialUpsertion:
    name = SHA_512 if mechanism == SHA_512_NUMBER else SHA_256
    given = {
        "iterations": 4096,
        "salt": SALT,
        "salted_password": salted_password(name, "secret", SALT, 4096),
        **changed,
    }
    return ScramCredentialUpsertion(name=user, mechanism=mechanism, **given)


def deletion(user: str, mechanism: int = SHA_256_NUMBER) -> ScramCredentialDeletion:
    return ScramCredentialDeletion(name=user, mechanism=mechanism)


def altered(machine: Machine, *changes: Any) -> dict[str, tuple[int, str | None]]:
    request = AlterUserScramCredentialsRequest(
        deletions=tuple(each for each in changes if isinstance(each, ScramCredentialDeletion)),
        upsertions=tuple(each for each in changes if isinstance(each, ScramCredentialUpsertion)),
    )
    return {each.user: (each.error_code, each.error_message) for each in machine.ask(request).results}


def described(machine: Machine, *users: str) -> dict[str, tuple[int, dict[int, int]]]:
    names = tuple(UserName(name=each) for each in users) if users else None
    results = machine.ask(DescribeUserScramCredentialsRequest(users=names)).results
    return {
        each.user: (each.error_code, {info.mechanism: info.iterations for info in each.credential_infos})
        for each in results
    }


def test_users_come_change_and_go(machine: Machine) -> None:
    assert described(machine) == {}
    assert altered(machine, upsertion("b"), upsertion("a", SHA_512_NUMBER)) == {"b": (0, None), "a": (0, None)}
    assert altered(machine, upsertion("a", iterations=8192)) == {"a": (0, None)}
    assert described(machine) == {"a": (0, {1: 8192, 2: 4096}), "b": (0, {1: 4096})}
    assert described(machine, "b", "c", "b") == {"b": (92, {}), "c": (91, {})}
    assert altered(machine, deletion("a"), deletion("b")) == {"a": (0, None), "b": (0, None)}
    assert described(machine) == {"a": (0, {2: 4096})}


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ([deletion("a")], (91, "Attempt to delete a user credential that does not exist")),
        ([deletion("a", 3)], (33, "Unknown SCRAM mechanism")),
        ([upsertion("a", 0)], (33, "Unknown SCRAM mechanism")),
        ([upsertion("a", iterations=4095)], (93, "Too few iterations")),
        ([upsertion("a", iterations=16385)], (93, "Too many iterations")),
        ([upsertion("a", salted_password=b"x")], (93, "The salt or the salted password has a wrong length")),
        ([upsertion("a", salt=b"")], (93, "The salt or the salted password has a wrong length")),
        (
            [upsertion("a"), upsertion("a", SHA_512_NUMBER)],
            (92, "A user credential cannot be altered twice in the same request"),
        ),
        ([deletion("a"), upsertion("a")], (92, "A user credential cannot be altered twice in the same request")),
    ],
)
def test_a_change_that_cannot_be_made_is_refused_alone(
    machine: Machine, changes: list[Any], error: tuple[int, str]
) -> None:
    assert altered(machine, *changes, upsertion("good")) == {"a": error, "good": (0, None)}
    assert described(machine) == {"good": (0, {1: 4096})}


def test_the_empty_name_is_no_user(machine: Machine) -> None:
    assert altered(machine, upsertion("")) == {"": (93, "Username must not be empty")}
    assert altered(machine, upsertion("x" * 1001))["x" * 1001][0] == 93


def test_users_and_the_secret_behind_unknown_ones_survive_a_kill(machine: Machine) -> None:
    altered(machine, upsertion("a"), upsertion("b"))
    altered(machine, deletion("b"))
    before, unknown = machine.core.users.table, machine.core.users.table.credential(SHA_256, "nobody")
    machine = machine.restart(clean=False)
    after = machine.core.users.table
    assert list(after) == ["a"]
    assert after.credentials("a") == before.credentials("a")
    assert after.credential(SHA_256, "nobody") == unknown
    assert after.any_credential("a").accepts("secret")
    machine.folder.abandon()


@pytest.mark.parametrize("lost", ["a deletion", "a change", "a record that cannot be parsed"])
def test_after_damage_credentials_from_before_it_are_worth_nothing(
    machine: Machine, lost: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A user who was deleted would be there again, or an old password."""
    altered(machine, upsertion("fired"), upsertion("admin", SHA_512_NUMBER))
    altered(machine, deletion("fired"))
    altered(machine, upsertion("admin", SHA_512_NUMBER, salt=b"another"))
    unknown = machine.core.users.table.credential(SHA_256, "nobody")
    if lost == "a record that cannot be parsed":
        machine.core.users._log._log.write([(b"key", b"\0\0rubbish")])
    altered(machine, upsertion("later"))
    machine.folder.close()
    (path,) = (machine.folder.path / f"{USER_CREDENTIALS}-0").glob("*.log")
    data, at = bytearray(path.read_bytes()), 0
    if lost != "a record that cannot be parsed":
        for _ in range(1 if lost == "a deletion" else 2):
            at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
        data[at + 70] ^= 1
        path.write_bytes(data)
    again = Machine(machine.folder.path)
    assert list(again.core.users.table) == (["admin", "later"] if lost == "a deletion" else ["later"])
    assert again.core.users.table.any_credential("later").accepts("secret")
    [record] = [each for each in caplog.records if "stored credentials are damaged" in each.message]
    assert record.__dict__["users"] == ("fired" if lost == "a deletion" else "admin")
    assert again.core.users.table.credential(SHA_256, "nobody").stored_key == unknown.stored_key
    altered(again, upsertion("admin"))
    third = again.restart()
    assert list(third.core.users.table) == ["admin", "later"]
    third.folder.abandon()


def test_the_log_of_users_is_hidden_from_clients(machine: Machine) -> None:
    altered(machine, upsertion("a"))
    metadata = machine.ask(MetadataRequest(topics=None))
    assert [each.name for each in metadata.topics] == ["t"]
    [named] = machine.ask(MetadataRequest(topics=(MetadataRequestTopic(name=USER_CREDENTIALS),))).topics
    assert named.error_code == 17
    [answer] = machine.ask(fetching(topic=USER_CREDENTIALS, wait=0.0)).responses
    assert (answer.partitions[0].error_code, answer.partitions[0].records or b"") == (3, b"")
    asked = CreatableTopic(name=USER_CREDENTIALS, num_partitions=1, replication_factor=1, assignments=(), configs=())
    [created] = machine.ask(CreateTopicsRequest(topics=(asked,), timeout_ms=1000)).topics
    assert created.error_code == 17
    assert machine.core.topics.by_id.keys() == {machine.core.topics.by_name["t"].topic_id}


def test_other_users_of_the_machine_cannot_read_the_log_of_users(tmp_path: Path) -> None:
    with Broker(BrokerConfig(port=0, data=tmp_path / "data"), users={"alice": "secret"}) as broker:
        broker.create_topic("t")
    modes = {each.name: each.stat().st_mode & 0o077 for each in (tmp_path / "data").iterdir() if each.is_dir()}
    assert modes[f"{USER_CREDENTIALS}-0"] == 0
    assert modes["t-0"] == 0o777 & ~umask() & 0o077


def umask() -> int:
    os.umask(current := os.umask(0))
    return current


def test_the_log_of_users_is_compacted_like_others(machine: Machine) -> None:
    altered(machine, upsertion("a"))
    assert USER_CREDENTIALS in machine.core.topics.hidden
    assert machine.core.topics.hidden[USER_CREDENTIALS] in list(machine.core.topics.all())


def test_sasl_where_there_is_none_is_an_illegal_state(machine: Machine) -> None:
    assert machine.ask(SaslHandshakeRequest(mechanism="PLAIN")).error_code == 34
    assert machine.ask(SaslAuthenticateRequest(auth_bytes=b"")).error_code == 34
    assert [SERVED[key].highest for key in (17, 36, 50, 51)] == [1, 2, 0, 0]
