"""Rules of the proxy's security that are broken on purpose: a test of theirs has to fail."""

from collections.abc import Callable
from typing import Any

import pytest

from ottla.errors import ShareSessionNotFound
from ottla.proxy import core
from ottla.proxy.clients.access import fetches, guard, metadata, shares, transactions
from ottla.proxy.clients.access.screening import PASS
from ottla.proxy.clients.client_connection import ClientConnection
from ottla.proxy.clients.client_link import ClientLink
from ottla.proxy.clients.offering import Offering
from ottla.proxy.clients.relay import RelayedLogin
from ottla.proxy.clients.request_line import RequestLine
from tests.proxy import test_acls as acls
from tests.proxy import test_acls_of_share_groups as of_shares
from tests.proxy import test_relay as relay

Broken = tuple[Any, str, Any]


def _refusal_if_never_opened(self: Any, request: Any) -> int:
    name = shares.ShareSessionName(self._node, request.group_id, request.member_id)
    if request.share_session_epoch == 0:
        self._open(name)
    return 0 if name in self._opened else ShareSessionNotFound.code


MUTATIONS: dict[str, tuple[Broken, Callable[[], None]]] = {
    "a session of another connection goes on": (
        (fetches.ConnectionFetchSessions, "_own", lambda self, session_id: session_id),
        acls.test_a_session_belongs_to_the_connection_on_which_it_began,
    ),
    "every fetch passes": (
        (fetches.ConnectionFetchSessions, "fetch", lambda self, asked: PASS),
        acls.test_a_fetch_with_a_denied_topic_gets_no_session,
    ),
    "a share session of another connection goes on": (
        (shares.ConnectionShareSessions, "_refusal", lambda self, request: 0),
        of_shares.test_a_share_session_goes_on_where_it_was_opened_and_nowhere_else,
    ),
    "a share session that was replaced goes on": (
        (shares.ConnectionShareSessions, "_refusal", _refusal_if_never_opened),
        of_shares.test_a_share_session_that_another_connection_replaced_does_not_go_on,
    ),
    "denied topics get into a share session": (
        (shares, "_refusal_to_fetch", lambda asked, topic: 0),
        of_shares.test_a_denied_topic_is_left_out_of_the_share_session,
    ),
    "records of every topic reach a share consumer": (
        (shares, "_readable", lambda asked, answer: answer),
        of_shares.test_records_that_a_client_may_not_read_never_reach_it,
    ),
    "share sessions are never forgotten": (
        (shares.ConnectionShareSessions, "left", lambda self: None),
        of_shares.test_a_client_that_disconnects_leaves_no_share_session_behind,
    ),
    "topic ids are not looked up": (
        (guard.Guard, "_unknown_ids", lambda self, request, message: ()),
        acls.test_a_topic_id_is_decided_by_its_name_which_is_asked_for_once,
    ),
    "the line is not released when upstream breaks off": (
        (RequestLine, "release", lambda self, now, first=None: None),
        acls.test_an_upstream_that_breaks_off_while_it_is_asked_for_names_leaves_nothing_waiting,
    ),
    "everyone creates topics by asking": (
        (metadata, "_not_to_create", lambda asked, topics: ()),
        acls.test_only_those_who_may_create_a_topic_create_it_by_asking,
    ),
    "lists are not filtered": (
        (metadata, "_listed", lambda asked, answer: answer),
        acls.test_a_list_has_only_topics_that_the_client_may_describe,
    ),
    "transactional records need no right to the id": (
        (transactions, "_is_transactional", lambda records: False),
        acls.test_transactional_records_need_the_right_to_the_id,
    ),
    "a change of the ACLs concerns nobody": (
        (core, "concerns", lambda old, new: lambda principal: False),
        acls.test_a_change_closes_the_connections_of_those_whom_it_concerns,
    ),
    "the deny list is not asked": (
        (Offering, "why_not", lambda self, key, version, with_names: None),
        acls.test_a_denied_api_is_neither_offered_nor_taken_without_acls_either,
    ),
    "a relayed client may send what it likes before its login": (
        (RelayedLogin, "check", lambda self, key, name: None),
        relay.test_scram_is_done_after_its_second_answer,
    ),
    "a relayed client outlives its upstream connection": (
        (ClientLink, "_lost", lambda self, error, now: None),
        relay.test_a_client_ends_with_its_upstream_connection,
    ),
    "a relayed client stays a newcomer": (
        (ClientConnection, "welcome", lambda self: None),
        relay.test_the_listener_learns_which_clients_have_logged_in,
    ),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_broken_rule_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (owner, attribute, broken), proof = MUTATIONS[name]
    monkeypatch.setattr(owner, attribute, broken)
    with pytest.raises((AssertionError, AttributeError, KeyError, ValueError)):
        proof()
