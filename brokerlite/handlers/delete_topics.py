"""DeleteTopics v1-6: deletes topics and all their records.

v6: topics by name or by id. An unknown name is UNKNOWN_TOPIC_OR_PARTITION, an unknown id UNKNOWN_TOPIC_ID. A topic that
the request lists twice, even once by name and once by id, is not deleted, and gets one INVALID_REQUEST.

Source: ControllerApis.scala (deleteTopics).
"""

from collections import Counter
from collections.abc import Hashable

from ottla.brokerlite.machines.core import BrokerCore, Call
from ottla.codec.apis.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ottla.codec.wire import NO_UUID
from ottla.errors import BrokerError, InvalidRequest, UnknownTopicId

BY_STATE = 6
"""The version from which topics are named by name or by id."""


def handle(broker: BrokerCore, call: Call) -> DeleteTopicsResponse:
    request: DeleteTopicsRequest = call.message
    asked = (
        request.topics
        if call.header.api_version >= BY_STATE
        else tuple(DeleteTopicState(name=name, topic_id=NO_UUID) for name in request.topic_names)
    )
    named = Counter(_topic(broker, each) for each in asked)
    once = {_topic(broker, each): each for each in asked}
    return DeleteTopicsResponse(responses=tuple(_delete(broker, each, named[key] > 1) for key, each in once.items()))


def _topic(broker: BrokerCore, asked: DeleteTopicState) -> Hashable:
    """Return a key of the topic that is the same whether the request has its name or its id."""
    if not _is_named(asked):
        return asked.name, asked.topic_id
    if asked.name is None:
        return asked.topic_id
    topic = broker.topics.by_name.get(asked.name)
    return asked.name if topic is None else topic.topic_id


def _is_named(asked: DeleteTopicState) -> bool:
    return (asked.name is None) != (asked.topic_id == NO_UUID)


def _delete(broker: BrokerCore, asked: DeleteTopicState, twice: bool) -> DeletableTopicResult:
    name, topic_id = asked.name, asked.topic_id
    try:
        if not _is_named(asked):
            raise InvalidRequest("give a topic's name or its id, not both")
        if twice:
            raise InvalidRequest("the topic is listed twice")
        topic = broker.topics.by_id.get(topic_id) if name is None else broker.topics.by_name.get(name)
        if topic is None:
            raise UnknownTopicId if name is None else broker.topics.missing(name)
        name, topic_id = topic.name, topic.topic_id
        broker.delete_topic(topic)
    except BrokerError as error:
        return DeletableTopicResult(
            name=name, topic_id=topic_id, error_code=error.code, error_message=error.detail or None
        )
    return DeletableTopicResult(name=name, topic_id=topic_id, error_code=0)
