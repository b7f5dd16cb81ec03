"""DeleteTopics v1-6: deletes topics and all their records.

v6: topics by name or by id. An unknown name is UNKNOWN_TOPIC_OR_PARTITION, an unknown id UNKNOWN_TOPIC_ID. A topic that
the request lists twice, even once by name and once by id, is not deleted, and gets one INVALID_REQUEST. If a client may
not describe a topic, the response does not show whether the topic exists, or which id belongs to which name.

Source: ControllerApis.scala (deleteTopics).
"""

from collections import Counter
from collections.abc import Hashable

from ottla.acl.rights import DELETE_ON_CLUSTER, DELETE_TOPIC, DESCRIBE_TOPIC, Right
from ottla.brokerlite.machines.core import BrokerCore, Call
from ottla.codec.apis.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ottla.codec.wire import NO_UUID
from ottla.errors import BrokerError, InvalidRequest, TopicAuthorizationFailed, UnknownTopicId

BY_STATE = 6
"""The version from which topics are named by name or by id."""


def handle(broker: BrokerCore, call: Call) -> DeleteTopicsResponse:
    request: DeleteTopicsRequest = call.message
    asked = (
        request.topics
        if call.header.api_version >= BY_STATE
        else tuple(DeleteTopicState(name=name, topic_id=NO_UUID) for name in request.topic_names)
    )
    named = Counter(_topic(broker, call, each) for each in asked)
    once = {_topic(broker, call, each): each for each in asked}
    return DeleteTopicsResponse(
        responses=tuple(_delete(broker, call, each, named[key] > 1) for key, each in once.items())
    )


def _topic(broker: BrokerCore, call: Call, asked: DeleteTopicState) -> Hashable:
    """Return a key of the topic that is the same whether the request has its name or its id, if the client may know."""
    if not _is_named(asked):
        return asked.name, asked.topic_id
    if asked.name is None:
        return asked.topic_id
    topic = broker.topics.by_name.get(asked.name)
    return asked.name if topic is None or not _may(broker, call, DELETE_TOPIC, asked.name) else topic.topic_id


def _is_named(asked: DeleteTopicState) -> bool:
    return (asked.name is None) != (asked.topic_id == NO_UUID)


def _may(broker: BrokerCore, call: Call, right: Right, name: str) -> bool:
    return broker.access.shows(call.session, DELETE_ON_CLUSTER) or broker.access.shows(call.session, right, name)


def _check_access(broker: BrokerCore, call: Call, right: Right, name: str) -> None:
    if not broker.access.shows(call.session, DELETE_ON_CLUSTER):
        broker.access.require(call.session, right, name)


def _delete(broker: BrokerCore, call: Call, asked: DeleteTopicState, twice: bool) -> DeletableTopicResult:
    name, topic_id = asked.name, asked.topic_id
    try:
        if not _is_named(asked):
            raise InvalidRequest("give a topic's name or its id, not both")
        if twice:
            raise InvalidRequest("the topic is listed twice")
        if name is None:
            if (topic := broker.topics.by_id.get(topic_id)) is None:
                raise UnknownTopicId
            if _may(broker, call, DESCRIBE_TOPIC, topic.name):
                name = topic.name
        else:
            _check_access(broker, call, DESCRIBE_TOPIC, name)
            if (topic := broker.topics.by_name.get(name)) is None:
                raise broker.topics.missing(name)
        _check_access(broker, call, DELETE_TOPIC, topic.name)
        name, topic_id = topic.name, topic.topic_id
        broker.delete_topic(topic)
    except BrokerError as error:
        is_hidden = name is None and isinstance(error, TopicAuthorizationFailed)  # its text shows which name the id has
        message = None if is_hidden else error.detail or None
        return DeletableTopicResult(name=name, topic_id=topic_id, error_code=error.code, error_message=message)
    return DeletableTopicResult(name=name, topic_id=topic_id, error_code=0)
