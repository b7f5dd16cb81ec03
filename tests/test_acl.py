"""The authorizer decides as a plain reading of Kafka's rules does, and denials are logged and counted."""

import logging
from collections.abc import Callable, Hashable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.acl.access import Access, AclAccess
from ottla.acl.acls import Acl, AclFilter, is_principal
from ottla.acl.audit import Audit
from ottla.acl.authorizer import REMEMBERED, Authorizer
from ottla.acl.rights import (
    ALTER_CLUSTER,
    DESCRIBE_TOPIC,
    DESCRIBE_TOPIC_CONFIGS,
    OPERATIONS,
    READ_GROUP,
    READ_TOPIC,
    WRITE_TOPIC,
    Right,
)
from ottla.client_info import ClientInfo
from ottla.codec.apis.create_acls import AclOperation, AclPermissionType, PatternType, ResourceType
from ottla.errors import (
    ClusterAuthorizationFailed,
    GroupAuthorizationFailed,
    InvalidRequest,
    TopicAuthorizationFailed,
)

ALICE, BOB = "User:alice", "User:bob"
HERE, THERE = "127.0.0.1", "10.0.0.1"
INCLUDED = {
    AclOperation.DESCRIBE: {AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER},
    AclOperation.DESCRIBE_CONFIGS: {AclOperation.ALTER_CONFIGS},
}

names = st.text("ab", min_size=1, max_size=4)
acls = st.builds(
    Acl,
    st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP]),
    names | st.just("*"),
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    st.sampled_from([ALICE, BOB, "User:*"]),
    st.sampled_from(["*", HERE, THERE]),
    st.sampled_from([AclOperation.ALL, *(right.operation for right in OPERATIONS[ResourceType.TOPIC])]),
    st.sampled_from([AclPermissionType.ALLOW, AclPermissionType.DENY]),
)
rights = st.sampled_from([READ_TOPIC, WRITE_TOPIC, DESCRIBE_TOPIC, DESCRIBE_TOPIC_CONFIGS, READ_GROUP])


def allow(operation: AclOperation, name: str, principal: str = ALICE) -> Acl:
    topic, literal = ResourceType.TOPIC, PatternType.LITERAL
    return Acl(topic, name, literal, principal, "*", operation, AclPermissionType.ALLOW)


def plainly(every: list[Acl], principal: str, host: str, right: Right, name: str, allow_if_none: bool) -> bool:
    """Decide without an index."""
    applicable = [
        acl
        for acl in every
        if acl.resource_type is right.resource_type
        and (
            name.startswith(acl.resource_name)
            if acl.pattern_type is PatternType.PREFIXED
            else acl.resource_name in (name, "*")
        )
    ]
    own = [acl for acl in applicable if acl.principal in (principal, "User:*") and acl.host in (host, "*")]
    for acl in own:
        if acl.permission is AclPermissionType.DENY and acl.operation in (right.operation, AclOperation.ALL):
            return False
    including = {right.operation, AclOperation.ALL} | INCLUDED.get(right.operation, set())
    if any(acl.permission is AclPermissionType.ALLOW and acl.operation in including for acl in own):
        return True
    return not applicable and allow_if_none


@given(st.lists(acls, max_size=12), st.integers(0, 6), rights, names, st.booleans())
def test_an_index_and_a_memory_decide_as_a_plain_search_does(
    every: list[Acl], removed: int, right: Right, name: str, allow_if_none: bool
) -> None:
    authorizer = Authorizer(every, allow_if_none=allow_if_none)
    left = list(dict.fromkeys(every))
    for acl in left[:removed]:
        authorizer.authorize(ALICE, HERE, right, name)  # it must not be remembered
        authorizer.remove(acl)
    left = left[removed:]
    for principal in (ALICE, BOB, "User:carol"):
        for host in (HERE, THERE):
            for _ in range(2):
                decided = authorizer.authorize(principal, host, right, name)
                assert decided is plainly(left, principal, host, right, name, allow_if_none)


@given(st.lists(acls, max_size=8), rights, st.lists(names, max_size=5))
def test_who_has_a_right_by_an_acl_for_it_has_it_on_some_resource(
    every: list[Acl], right: Right, some: list[str]
) -> None:
    own = [acl for acl in every if acl.operation in (right.operation, AclOperation.ALL)]
    authorizer = Authorizer(own)
    if any(authorizer.authorize(ALICE, HERE, right, name) for name in some):
        literal = [acl.resource_name for acl in own if acl.permission is AclPermissionType.DENY]
        assert authorizer.authorize_any(ALICE, HERE, right) or "*" in literal
    if not any(acl.permission is AclPermissionType.ALLOW for acl in own):
        assert not authorizer.authorize_any(ALICE, HERE, right)


@given(st.lists(acls, max_size=8), st.lists(acls, max_size=3), rights, st.booleans())
def test_who_has_a_right_on_all_resources_has_it_on_each_name(
    every: list[Acl], added: list[Acl], right: Right, allow_if_none: bool
) -> None:
    authorizer = Authorizer(every, allow_if_none=allow_if_none)
    authorizer.authorize_all(ALICE, HERE, right)  # it must not be remembered
    for acl in added:
        authorizer.add(acl)
    every = [*every, *added]
    prefixes = {acl.resource_name for acl in every if acl.pattern_type is PatternType.PREFIXED}
    literal = {acl.resource_name for acl in every} - {"*"}
    tried = {"of nobody", *literal, *prefixes, *(f"{each} and more" for each in prefixes)}
    expected = all(plainly(every, ALICE, HERE, right, name, allow_if_none) for name in tried)
    for _ in range(2):
        assert authorizer.authorize_all(ALICE, HERE, right) is expected


class Counting(Authorizer):
    """Counts its decisions over single names."""

    decisions = 0

    def _decide(self, principal: str, host: str, right: Right, name: str) -> bool:
        self.decisions += 1
        return super()._decide(principal, host, right, name)


def test_rights_on_all_resources_cost_nothing_for_acls_of_others_nor_for_new_hosts() -> None:
    """With IPv6 a client chooses its host."""
    of_others = [allow(AclOperation.READ, f"topic-{number}", f"User:{number}") for number in range(1000)]
    denials = [each._replace(permission=AclPermissionType.DENY) for each in of_others]
    of_one_host = allow(AclOperation.READ, "*", BOB)._replace(host=HERE)
    everything = allow(AclOperation.READ, "*")
    authorizer = Counting([everything, of_one_host, *of_others, *denials], super_users=["User:admin"])
    for number in range(1000):
        assert authorizer.authorize_all(ALICE, f"fd00::{number}", DESCRIBE_TOPIC)
        assert not authorizer.authorize_all(BOB, f"fd00::{number}", DESCRIBE_TOPIC)
        assert authorizer.authorize_all("User:admin", f"fd00::{number}", DESCRIBE_TOPIC)
    assert authorizer.authorize_all(BOB, HERE, DESCRIBE_TOPIC)
    assert authorizer.decisions == 3
    authorizer.add(denied := allow(AclOperation.ALL, "topic-7")._replace(permission=AclPermissionType.DENY))
    assert not authorizer.authorize_all(ALICE, HERE, DESCRIBE_TOPIC)
    authorizer.remove(denied)
    assert authorizer.authorize_all(ALICE, HERE, DESCRIBE_TOPIC)


def test_where_names_without_acls_are_everyones_new_hosts_cost_nothing() -> None:
    every = [allow(AclOperation.READ, f"topic-{number}") for number in range(1000)]
    authorizer = Counting(every, allow_if_none=True)
    assert all(authorizer.authorize_all(ALICE, f"fd00::{number}", READ_TOPIC) for number in range(100))
    assert authorizer.decisions == 1001


def test_super_users_may_do_everything_and_nobody_else_if_acls_are_lost() -> None:
    deny = allow(AclOperation.ALL, "*", "User:*")._replace(permission=AclPermissionType.DENY)
    authorizer = Authorizer([deny], super_users=[ALICE], allow_if_none=True)
    assert authorizer.authorize(ALICE, HERE, READ_TOPIC, "t") and authorizer.authorize_any(ALICE, HERE, WRITE_TOPIC)
    authorizer.remove(deny)
    authorizer.add(allow(AclOperation.ALL, "*", BOB))
    assert authorizer.authorize(BOB, HERE, READ_TOPIC, "t") and authorizer.authorize(BOB, HERE, READ_GROUP, "g")
    authorizer.distrust()
    assert authorizer.authorize(ALICE, HERE, READ_TOPIC, "t") and authorizer.authorize_any(ALICE, HERE, WRITE_TOPIC)
    assert authorizer.authorize_all(ALICE, HERE, READ_TOPIC) and not authorizer.authorize_all(BOB, HERE, READ_TOPIC)
    assert not authorizer.authorize(BOB, HERE, READ_TOPIC, "t") and not authorizer.authorize_any(BOB, HERE, WRITE_TOPIC)


def test_memory_is_bounded_whatever_names_clients_ask_for() -> None:
    authorizer = Authorizer()
    for number in range(REMEMBERED + 10):
        authorizer.authorize(ALICE, HERE, READ_TOPIC, str(number))
    assert len(authorizer._decided) == 10


@pytest.mark.parametrize(
    ("principal", "valid"),
    [
        (ALICE, True),
        ("User:*", True),
        ("User:a:b", True),
        ("alice", False),
        ("User:", False),
        (":a", False),
        ("", False),
    ],
)
def test_a_principal_has_a_type_and_a_name(principal: str, valid: bool) -> None:
    assert is_principal(principal) is valid
    checked = (2, "t", 3, principal, "*", 3, 3)
    if valid:
        assert Acl.checked(*checked).principal == principal
    else:
        with pytest.raises(InvalidRequest, match="is not a principal, as in User:alice"):
            Acl.checked(*checked)


@pytest.mark.parametrize(
    ("position", "code", "says"),
    [
        (0, 0, "0 is not the code of a resource type"),
        (0, 99, "99 is not the code of a resource type"),
        (0, 1, "ANY is only for filters"),
        (1, "", "the name of the resource is empty"),
        (2, 2, "MATCH is only for filters"),
        (5, -1, "-1 is not the code of a operation"),
        (6, 1, "ANY is only for filters"),
    ],
)
def test_acls_with_invalid_codes_are_refused(position: int, code: object, says: str) -> None:
    fields: list[object] = [2, "t", 3, ALICE, "*", 3, 3]
    fields[position] = code
    with pytest.raises(InvalidRequest, match=says):
        Acl.checked(*fields)  # type: ignore[arg-type]
    if position != 1 and code in (0, 99, -1):
        with pytest.raises(InvalidRequest, match=says):
            AclFilter.checked(*fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("written", "seen", "same"),
    [
        ("10.0.0.1", "::ffff:10.0.0.1", True),
        ("::1", "0:0:0:0:0:0:0:1", True),
        ("0:0:0:0:0:0:0:1", "::1", True),
        ("FE80::A", "fe80::a", True),
        ("10.0.0.1", "10.0.0.10", False),
        ("localhost", "127.0.0.1", False),
        ("", "127.0.0.1", False),
    ],
)
def test_an_address_has_several_forms(written: str, seen: str, same: bool) -> None:
    deny = allow(AclOperation.READ, "t")._replace(host=written, permission=AclPermissionType.DENY)
    authorizer = Authorizer([allow(AclOperation.READ, "t"), deny])
    assert authorizer.authorize(ALICE, seen, READ_TOPIC, "t") is not same
    assert authorizer.authorize_any(ALICE, seen, READ_TOPIC) is not same


def test_long_names_are_not_remembered() -> None:
    authorizer = Authorizer([allow(AclOperation.READ, "*")])
    for _ in range(2):
        assert authorizer.authorize(ALICE, HERE, READ_TOPIC, "x" * 30_000)
    assert not authorizer._decided


# -- access and audit


class Alarms:
    """Timers that the test expires."""

    def __init__(self) -> None:
        self.due: dict[Hashable, tuple[float, Callable[[float], None]]] = {}

    def set(self, name: Hashable, deadline: float, action: Callable[[float], None]) -> None:
        self.due[name] = (deadline, action)

    def is_set(self, name: Hashable) -> bool:
        return name in self.due

    def expire(self) -> float:
        (_, (deadline, action)) = self.due.popitem()
        action(deadline)
        return deadline


def client(principal: str = ALICE) -> ClientInfo:
    return ClientInfo(local_host="h", local_port=1, peer_host=HERE, peer_port=2, principal=principal)


def test_each_type_of_resource_has_its_error() -> None:
    access = AclAccess(Authorizer(), Audit(lambda: 0.0, Alarms()))
    for right, error in (
        (READ_TOPIC, TopicAuthorizationFailed),
        (READ_GROUP, GroupAuthorizationFailed),
        (ALTER_CLUSTER, ClusterAuthorizationFailed),
    ):
        with pytest.raises(error):
            access.require(client(), right, "x")
    with pytest.raises(TopicAuthorizationFailed, match="User:alice may not Read Topic x"):
        access.require(client(), READ_TOPIC, "x")


def test_the_bits_of_operations_are_those_that_are_allowed() -> None:
    authorizer = Authorizer([allow(AclOperation.READ, "t"), allow(AclOperation.ALTER_CONFIGS, "t")])
    access = AclAccess(authorizer, Audit(lambda: 0.0, Alarms()))
    bits = (AclOperation.READ, AclOperation.DESCRIBE, AclOperation.ALTER_CONFIGS, AclOperation.DESCRIBE_CONFIGS)
    assert access.operations(client(), ResourceType.TOPIC, "t") == sum(1 << bit for bit in bits)
    assert Access().operations(client(), ResourceType.GROUP, "g") == 3400


def test_denials_have_a_line_a_minute_and_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "ottla.acl")
    alarms = Alarms()
    audit = Audit(lambda: 5.0, alarms)
    access = AclAccess(Authorizer(), audit)
    for _ in range(1000):
        assert not access.allows(client(), READ_TOPIC, "orders\n" + "x" * 1000)
        assert not access.shows(client(), WRITE_TOPIC, "orders")
    (line,) = caplog.records
    said = vars(line)
    assert (line.getMessage(), said["principal"], said["operation"], said["host"]) == (
        "access denied",
        ALICE,
        "Read",
        HERE,
    )
    assert said["resource"].startswith("Topic:orders\nx") and len(said["resource"]) < 300
    assert audit.denials == {READ_TOPIC: 1000}
    assert alarms.expire() == 65.0
    assert "999 more from 127.0.0.1 in 60 s" in caplog.records[-1].getMessage()
    alarms.expire()
    assert not alarms.due and len(caplog.records) == 2, "nothing is repeated, and no timer is left"
