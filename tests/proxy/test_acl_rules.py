"""The ACLs of a proxy's file, and what a change of them concerns."""

import tomllib
from pathlib import Path

import pytest

from ottla.acl.acls import Acl
from ottla.acl.rights import ALTER_CLUSTER, READ_TOPIC
from ottla.codec.apis.create_acls import AclOperation, AclPermissionType, PatternType, ResourceType
from ottla.config_file import ConfigFile
from ottla.errors import ConfigurationError
from ottla.proxy.acl_rules import AclRules, read_acl_rules
from ottla.proxy.clients.offering import OF_LOGINS, RELAYED, Offering
from ottla.proxy.config_file import read_config
from ottla.proxy.denied_apis import parse_denied_apis
from ottla.proxy.rights import concerns
from tests.proxy.secured import rules

FILE = ConfigFile(Path("proxy.toml"), {})


def read(text: str) -> AclRules | None:
    values = tomllib.loads(text)
    return read_acl_rules(FILE, values.get("acls"), values.get("super-users"), values.get("allow-if-no-acl"))


def test_a_table_is_an_acl_for_each_operation() -> None:
    found = read(
        """
        super-users = ["User:admin"]
        [[acls]]
        principal = "User:billing"
        allow = ["Read", "DescribeConfigs"]
        topic = "orders"
        pattern = "prefixed"
        host = "10.0.0.7"
        [[acls]]
        principal = "User:*"
        deny = ["All"]
        cluster = true
        """
    )
    assert found is not None and found.super_users == ("User:admin",) and not found.allow_if_none
    assert found.acls == (
        *(
            Acl(
                ResourceType.TOPIC,
                "orders",
                PatternType.PREFIXED,
                "User:billing",
                "10.0.0.7",
                operation,
                AclPermissionType.ALLOW,
            )
            for operation in (AclOperation.READ, AclOperation.DESCRIBE_CONFIGS)
        ),
        Acl(
            ResourceType.CLUSTER,
            "kafka-cluster",
            PatternType.LITERAL,
            "User:*",
            "*",
            AclOperation.ALL,
            AclPermissionType.DENY,
        ),
    )
    authorizer = found.authorizer()
    assert authorizer.authorize("User:billing", "10.0.0.7", READ_TOPIC, "orders-eu")
    assert not authorizer.authorize("User:billing", "10.0.0.8", READ_TOPIC, "orders-eu")
    assert authorizer.authorize("User:admin", "10.0.0.8", ALTER_CLUSTER, "kafka-cluster")


def test_without_a_setting_there_are_no_acls() -> None:
    assert read("") is None


ALICE = 'principal = "User:alice"\n'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("super-users = []", "acls has no rule, so all requests would be denied"),
        ('super-users = ["admin"]', "super-users has 'admin'; a principal has a type, as in User:admin"),
        ('super-users = "User:admin"', "super-users is a list"),
        ('allow-if-no-acl = "yes"', "it must be true or false"),
        ("acls = 7", "acls are tables: write [[acls]]"),
        (
            "[[acls]]\n" + ALICE + 'allow = ["Read"]',
            "[[acls]] number 1 must have one of topic, group",
        ),
        ("[[acls]]\n" + ALICE + 'allow = ["Read"]\ntopic = "a"\ngroup = "b"', "and has 2"),
        ("[[acls]]\n" + ALICE + 'topic = "a"', "must have either allow or deny"),
        ("[[acls]]\n" + ALICE + 'topic = "a"\nallow = "Read"', "allow is a list of operations"),
        (
            "[[acls]]\n" + ALICE + 'topic = "a"\nallow = ["read"]',
            "'read' is not an operation on a Topic; there are",
        ),
        ("[[acls]]\n" + ALICE + 'group = "a"\nallow = ["Write"]', "'Write' is not an operation on a Group"),
        ("[[acls]]\n" + ALICE + 'topics = "a"\nallow = ["Read"]', "has topics: do you mean topic?"),
        ("[[acls]]\n" + ALICE + 'topic = "a"\nallow = ["Read"]\npattern = "glob"', "it must be literal or prefixed"),
        ("[[acls]]\n" + ALICE + 'topic = ""\nallow = ["Read"]', "must have a topic that is a text"),
        ("[[acls]]\n" + ALICE + 'cluster = "x"\nallow = ["Alter"]', "cluster must be true"),
        (
            '[[acls]]\nprincipal = "alice"\ntopic = "a"\nallow = ["Read"]',
            "'alice' is not a principal, as in User:",
        ),
        ('[[acls]]\ntopic = "a"\nallow = ["Read"]', "must have a principal that is a text"),
    ],
)
def test_a_rule_that_cannot_be_used_says_what_would_do(text: str, says: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        read(text)
    assert says in str(raised.value) and str(raised.value).startswith("proxy.toml: ")


def test_a_file_may_have_rules_for_topics_and_acls(tmp_path: Path) -> None:
    path = tmp_path / "proxy.toml"
    path.write_text(
        'upstream = "kafka:1"\ndeny-apis = ["AlterConfigs"]\n[topics]\norders = "rewrite"\n'
        '[[acls]]\nprincipal = "User:alice"\nallow = ["Read"]\ntopic = "orders"\n'
    )
    config = read_config(ConfigFile.read(path))
    assert config.acls is not None and len(config.acls.acls) == 1
    assert len(config.topics) == 1 and config.deny_apis.versions(33) == range(0)


# -- changes


@pytest.mark.parametrize(
    ("old", "new", "concerned"),
    [
        (rules("allow a Read Topic t"), rules("allow a Read Topic t"), ""),
        (rules("allow a Read Topic t"), rules(), "a"),
        (rules("allow a Read Topic t"), rules("allow a Read Topic t", "deny b Read Topic t"), "b"),
        (rules("allow a Read Topic t"), rules("allow a Read Topic u", "allow b Read Topic u"), "ab"),
        (rules(), rules("deny * Read Topic t"), "abc"),
        (rules("allow a Read Topic t", allow_if_none=True), rules("allow a Read Topic u", allow_if_none=True), "abc"),
        (rules(allow_if_none=True), rules(), "abc"),
        (rules(), rules(super_users=("User:admin", "User:c")), "c"),
        (None, rules(), "abc"),
    ],
)
def test_a_change_concerns_those_whose_rights_it_may_change(
    old: AclRules | None, new: AclRules | None, concerned: str
) -> None:
    concerns_ = concerns(old, new)
    assert "".join(name for name in "abc" if concerns_(f"User:{name}")) == concerned


# -- what is offered


def test_versions_are_what_upstream_and_the_operator_and_the_screens_leave() -> None:
    offering = Offering(denied=parse_denied_apis(("Metadata:0-5", "Fetch:13-15")), screened=True, logins=OF_LOGINS)
    offered = offering.of({1: (4, 17), 3: (0, 9), 9: (1, 10), 75: (0, 0), 33: (0, 9)}, with_names=False)
    assert offered == {1: (4, 12), 3: (6, 9), 9: (1, 9), 17: (0, 1), 18: (0, 4), 33: (0, 2), 36: (0, 2)}
    assert offering.why_not(3, 5, with_names=False) == "the operator of the proxy denies it"
    assert offering.why_not(17, 1, with_names=False) is None and offering.why_not(17, 2, with_names=False)


def test_a_relay_offers_upstreams_logins_only() -> None:
    offering = Offering(logins=RELAYED, relayed=("PLAIN",))
    assert 17 not in offering.of({3: (0, 9)}, with_names=False)
    offered = offering.of({3: (0, 9), 17: (0, 1), 36: (0, 1)}, with_names=False)
    assert (offered[17], offered[36]) == ((1, 1), (0, 1))
