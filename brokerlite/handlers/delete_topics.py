"""DeleteTopics v1-6: remove topics and all their records.

v6: topics by name or by id. An unknown name is UNKNOWN_TOPIC_OR_PARTITION, an unknown id UNKNOWN_TOPIC_ID.
"""

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
    return DeleteTopicsResponse(responses=tuple(_delete(broker, each) for each in asked))


def _delete(broker: BrokerCore, asked: DeleteTopicState) -> DeletableTopicResult:
    name, topic_id = asked.name, asked.topic_id
    try:
        if name is not None and topic_id != NO_UUID:
            raise InvalidRequest("a topic is named by its name or by its id, not by both")
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
