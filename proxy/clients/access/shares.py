"""Requests of members of share groups: heartbeats, and share sessions (KIP-932).

Rules:
- A share session remembers partitions at the broker, and later requests do not name them. The broker knows a session by
  its group and member alone, and all clients of the proxy are one user to it. So a connection may only use the session
  that it opened. If another connection opens one for the same member, that replaces it, as at the broker.
- A connection has a limited number of sessions. The proxy refuses further ones. It closes no session in use:
  its client would open it again, and the records locked in it would be delivered twice.
- A denied partition is left out of the session, and the response has its error.
- A response has no records of a topic that the client may not read: through another proxy, another client may have
  replaced the session.
- A request passes even if no partition is left: the client and the broker count the epochs of a session together.
- A client with Read on a group can disturb its members, for example leave under their ids, as with Kafka.

Source: KafkaApis.scala (handleShareGroupHeartbeat, handleShareFetchRequest, handleShareAcknowledgeRequest),
SharePartitionManager.java (newContext); KIP-932.
"""

from dataclasses import replace
from typing import NamedTuple

from ottla.acl.rights import READ_GROUP, READ_TOPIC
from ottla.codec.apis import share_acknowledge, share_fetch
from ottla.codec.apis.share_acknowledge import (
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from ottla.codec.apis.share_fetch import (
    FetchTopic,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from ottla.codec.apis.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from ottla.errors import ShareSessionLimitReached, ShareSessionNotFound, UnknownTopicId
from ottla.proxy.clients.access.groups import refusal_of_member
from ottla.proxy.clients.access.screening import PASS, Asked, Verdict, adding, sorted_out

_OPEN, _CLOSE = 0, -1
"""The epochs of requests that open and close a session."""
_NO_SESSION = {ShareSessionNotFound.code, ShareSessionLimitReached.code}
"""The errors after which the broker has no session for the member."""
MOST_SESSIONS = 10
"""The most sessions of one connection; known clients have one connection for each share consumer."""


def share_group_heartbeat(asked: Asked) -> Verdict:
    """Check Read on the group, and Describe on the topics."""
    request: ShareGroupHeartbeatRequest = asked.message
    error = refusal_of_member(asked, request.group_id, request.subscribed_topic_names)
    if error is None:
        return PASS
    return Verdict(
        answer=ShareGroupHeartbeatResponse(
            error_code=error.code, error_message=error.detail, member_epoch=0, heartbeat_interval_ms=0
        )
    )


class ShareSessionName(NamedTuple):
    """Names a share session, as brokers do: ``node`` has it."""

    node: int
    group_id: str | None
    member_id: str | None


ShareSessionOpeners = dict[ShareSessionName, "ConnectionShareSessions"]
"""Session -> the connection that opened it last; all connections of the proxy have the same one."""


class ConnectionShareSessions:
    """The share sessions of one connection, and the screens that need them.

    Args:
        node: the broker to which the connection goes.
    """

    def __init__(self, node: int, openers: ShareSessionOpeners) -> None:
        self._node, self._openers = node, openers
        self._opened: set[ShareSessionName] = set()
        """Another connection may have replaced some of them."""

    def left(self) -> None:
        """Forget the sessions, because the client has disconnected."""
        while self._opened:
            self._forget(next(iter(self._opened)))

    def fetch(self, asked: Asked) -> Verdict:
        """The screen for ShareFetch."""
        request: ShareFetchRequest = asked.message
        if code := asked.refusal(READ_GROUP, request.group_id or "") or self._refusal(request):
            refused = ShareFetchResponse(
                error_code=code, acquisition_lock_timeout_ms=0, responses=(), node_endpoints=()
            )
            return Verdict(answer=refused)
        kept, denied = sorted_out(request.topics, lambda each: _refusal_to_fetch(asked, each))
        results = tuple(_not_fetched(*each) for each in denied)
        add = adding("responses", results)

        def changed(answer: ShareFetchResponse) -> ShareFetchResponse:
            if answer.error_code in _NO_SESSION:
                self._forget(self._name(request))
            readable = _readable(asked, answer)
            return add(readable) if results else readable

        return Verdict(request=replace(request, topics=kept) if denied else None, change=changed)

    def acknowledge(self, asked: Asked) -> Verdict:
        """The screen for ShareAcknowledge."""
        request: ShareAcknowledgeRequest = asked.message
        if code := asked.refusal(READ_GROUP, request.group_id or "") or self._refusal(request):
            return Verdict(answer=ShareAcknowledgeResponse(error_code=code, responses=(), node_endpoints=()))
        kept, denied = sorted_out(request.topics, lambda each: asked.refusal_of_topic(READ_TOPIC, None, each.topic_id))
        if not denied:
            return PASS
        results = tuple(_not_acknowledged(*each) for each in denied)
        return Verdict(request=replace(request, topics=kept), change=adding("responses", results))

    def _refusal(self, request: ShareFetchRequest | ShareAcknowledgeRequest) -> int:
        """The error code if the request belongs to a session of another connection, or opens one too many; notes which
        one it opens.
        """
        name = self._name(request)
        if request.share_session_epoch == _OPEN and isinstance(request, ShareFetchRequest):
            return self._open(name)
        if self._openers.get(name) is not self:
            return ShareSessionNotFound.code
        if request.share_session_epoch == _CLOSE:
            self._forget(name)
        return 0

    def _name(self, request: ShareFetchRequest | ShareAcknowledgeRequest) -> ShareSessionName:
        return ShareSessionName(self._node, request.group_id, request.member_id)

    def _open(self, name: ShareSessionName) -> int:
        """Note a session that the client opens; returns the error code if it has too many."""
        if name not in self._opened and len(self._opened) >= MOST_SESSIONS:
            self._opened = {each for each in self._opened if self._openers.get(each) is self}
            if len(self._opened) >= MOST_SESSIONS:
                return ShareSessionLimitReached.code
        self._opened.add(name)
        self._openers[name] = self
        return 0

    def _forget(self, name: ShareSessionName) -> None:
        self._opened.discard(name)
        if self._openers.get(name) is self:
            del self._openers[name]


def _refusal_to_fetch(asked: Asked, topic: FetchTopic) -> int:
    """The error code for a topic that a client would like to add to its session, or whose records it acknowledges."""
    code = asked.refusal_of_topic(READ_TOPIC, None, topic.topic_id)
    if code == UnknownTopicId.code and not any(each.acknowledgement_batches for each in topic.partitions):
        # The leader may not know a new topic yet. The client does not name the partition again, so the session has it.
        return 0
    return code


def _readable(asked: Asked, answer: ShareFetchResponse) -> ShareFetchResponse:
    """The response without records that the client may not read; the same one, if it may read all."""
    codes = {each.topic_id: asked.refusal_of_topic(READ_TOPIC, None, each.topic_id) for each in answer.responses}
    if not any(codes.values()):
        return answer
    topics = (_without_records(each, code) if (code := codes[each.topic_id]) else each for each in answer.responses)
    return replace(answer, responses=tuple(topics))


def _without_records(topic: ShareFetchableTopicResponse, code: int) -> ShareFetchableTopicResponse:
    partitions = (
        replace(each, error_code=code, error_message=None, records=b"", acquired_records=())
        for each in topic.partitions
    )
    return replace(topic, partitions=tuple(partitions))


def _not_fetched(topic: FetchTopic, code: int) -> ShareFetchableTopicResponse:
    partitions = (
        share_fetch.PartitionData(
            partition_index=each.partition_index,
            error_code=code,
            acknowledge_error_code=code if each.acknowledgement_batches else 0,
            current_leader=share_fetch.LeaderIdAndEpoch(leader_id=0, leader_epoch=0),
            records=b"",
            acquired_records=(),
        )
        for each in topic.partitions
    )
    return ShareFetchableTopicResponse(topic_id=topic.topic_id, partitions=tuple(partitions))


def _not_acknowledged(topic: AcknowledgeTopic, code: int) -> ShareAcknowledgeTopicResponse:
    partitions = (
        share_acknowledge.PartitionData(
            partition_index=each.partition_index,
            error_code=code,
            current_leader=share_acknowledge.LeaderIdAndEpoch(leader_id=0, leader_epoch=0),
        )
        for each in topic.partitions
    )
    return ShareAcknowledgeTopicResponse(topic_id=topic.topic_id, partitions=tuple(partitions))
