"""Fetch, with its sessions.

Rules:
- A fetch session remembers partitions at the broker, and later requests do not name them. So a request with a denied
  partition gets no session: the client names all partitions in its next request, and each is decided again. Within a
  session, a request that names a denied partition gets the error that the session does not exist.
- All clients of the proxy are one user to the broker, which would let one continue the session of another. So a
  connection may only use the sessions that began on it.
- A change of the ACLs that concerns a principal closes its connections, and with them its sessions.
- Requests of followers, which may change the replicas of a partition, need ClusterAction.

Source: KafkaApis.scala (handleFetchRequest), FetchSession.scala; KIP-227, KIP-516.
"""

from dataclasses import replace

from ottla.acl.rights import CLUSTER_ACTION, READ_TOPIC
from ottla.codec.apis.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, FetchTopic, PartitionData
from ottla.codec.wire import Buffer
from ottla.errors import FetchSessionIdNotFound, TopicAuthorizationFailed
from ottla.proxy.clients.access.screening import PASS, Asked, Verdict, adding, sorted_out

_FULL, _NONE = 0, -1
"""The epochs of requests for a new session and for no session."""
_NO_SESSION = 0
_SESSIONS_SINCE, _FLEXIBLE_SINCE, _REPLICA_STATE_SINCE = 7, 12, 15
_MOST_SESSIONS = 1000
"""Sessions of one connection that are remembered; a client has one for each broker."""


class ConnectionFetchSessions:
    """The sessions of one connection, and the screens that need them."""

    def __init__(self) -> None:
        self._sessions: dict[int, None] = {}
        """The newest last."""

    # -- Fetch

    def fetch(self, asked: Asked) -> Verdict:
        """The screen for Fetch."""
        request: FetchRequest = asked.message
        if request.session_epoch not in (_FULL, _NONE) and request.session_id not in self._sessions:
            return Verdict(answer=FetchResponse(error_code=FetchSessionIdNotFound.code, responses=()))
        replica = request.replica_state.replica_id if asked.version >= _REPLICA_STATE_SINCE else request.replica_id
        whole = TopicAuthorizationFailed.code if replica >= 0 and asked.refusal(CLUSTER_ACTION) else 0
        kept, denied = sorted_out(
            request.topics,
            lambda each: (
                whole or (0 if replica >= 0 else asked.refusal_of_topic(READ_TOPIC, each.topic, each.topic_id))
            ),
        )
        if not denied:
            return self._passing(request)
        if request.session_epoch not in (_FULL, _NONE):
            return Verdict(answer=FetchResponse(error_code=FetchSessionIdNotFound.code, responses=()))
        results = tuple(_not_fetched(*each) for each in denied)
        if not kept:
            return Verdict(answer=FetchResponse(responses=results))
        sessionless = replace(
            request,
            topics=kept,
            session_id=self._own(request.session_id),
            session_epoch=_NONE,
            forgotten_topics_data=(),
            max_wait_ms=0,  # Kafka answers at once if a partition has an error
        )
        return Verdict(request=sessionless, change=adding("responses", results))

    def _passing(self, request: FetchRequest) -> Verdict:
        own = self._own(request.session_id)
        return PASS if own == request.session_id else Verdict(request=replace(request, session_id=own))

    def _own(self, session_id: int) -> int:
        """The id, if it is one of this connection: another one's session must not be ended, either."""
        return session_id if session_id in self._sessions else _NO_SESSION

    def notice(self, version: int, start: Buffer) -> None:
        """Take the session id from the beginning of a response to Fetch, without its length.

        Args:
            start: 14 bytes at least, or 15 from version 12 on, if the response is valid.
        """
        at = 4 + (version >= _FLEXIBLE_SINCE) + 4 + 2
        if version < _SESSIONS_SINCE or len(start) < at + 4:
            return
        session_id = int.from_bytes(start[at : at + 4], "big", signed=True)
        if session_id != _NO_SESSION:
            self._sessions.pop(session_id, None)
            self._sessions[session_id] = None
            if len(self._sessions) > _MOST_SESSIONS:
                del self._sessions[next(iter(self._sessions))]


def _not_fetched(topic: FetchTopic, code: int) -> FetchableTopicResponse:
    partitions = (
        PartitionData(
            partition_index=each.partition,
            error_code=code,
            high_watermark=-1,
            aborted_transactions=None,
            records=b"",
        )
        for each in topic.partitions
    )
    return FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=tuple(partitions))
