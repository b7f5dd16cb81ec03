"""Kafka's rules from the subject of a certificate to a principal."""

import pytest

from ottla.client_info import ANONYMOUS, ClientInfo
from ottla.errors import AuthenticationFailed, ConfigurationError
from ottla.subject_mapping import SubjectMapping

SUBJECT = "CN=Duke,OU=ServiceUsers,O=Org,C=US"


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        ("", SUBJECT),
        ("DEFAULT", SUBJECT),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", "Duke"),
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L", "duke"),
        ("RULE:^CN=(.*?),OU=(.*?),O=(.*?),C=(.*?)$/$1@$2/U, DEFAULT", "DUKE@SERVICEUSERS"),
        ("RULE:^CN=other$/other/, RULE:^.*[Cc]N=([a-zA-Z0-9.]*).*$/$1-at-$1/L", "duke-at-duke"),
        ("RULE:^CN=other$/other/,DEFAULT", SUBJECT),
        (r"RULE:^CN=(.*?),.*$/\$1\/$1/", "$1/Duke"),
    ],
)
def test_the_first_rule_that_fits_counts(rules: str, name: str) -> None:
    assert SubjectMapping.parse(rules).name(SUBJECT) == name


def test_a_rule_has_to_match_the_whole_subject() -> None:
    with pytest.raises(AuthenticationFailed, match=r"no rule of ssl\.principal\.mapping\.rules fits"):
        SubjectMapping.parse("RULE:CN=Duke/admin/").name(SUBJECT)


def test_a_rule_that_leaves_no_name_lets_nobody_in() -> None:
    with pytest.raises(AuthenticationFailed):
        SubjectMapping.parse("RULE:^.*?(X?)$/$1/,DEFAULT").name(SUBJECT)


@pytest.mark.parametrize("rules", ["", "DEFAULT", "RULE:^CN=(.*?),.*$/$1/,DEFAULT", "RULE:.*/app/"])
def test_an_empty_subject_names_nobody(rules: str) -> None:
    client = ClientInfo(local_host="h", local_port=1, peer_host="h", peer_port=2, subjects=SubjectMapping.parse(rules))
    with pytest.raises(AuthenticationFailed, match="the client's certificate has an empty subject"):
        client.presents("")
    client.presents(None)  # there is no certificate
    assert client.principal == ANONYMOUS


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        ("RULE:^CN=(.*)$/$1", "is not a rule"),
        ("default", "is not a rule"),
        ("DEFAULT DEFAULT", "is not a rule"),
        ("RULE:(/$1/", "is not a regular expression"),
        ("RULE:^CN=.*$/$1/", "refers to a group that"),
    ],
)
def test_a_mistake_is_named(rules: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        SubjectMapping.parse(rules)
