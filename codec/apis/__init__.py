"""One file per API, each with its request and response; `APIS` finds them by key."""

from typing import Any, NamedTuple

from ottla.codec.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.codec.apis.create_topics import CreateTopicsRequest, CreateTopicsResponse
from ottla.codec.apis.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from ottla.codec.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from ottla.codec.apis.fetch import FetchRequest, FetchResponse
from ottla.codec.apis.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.codec.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.codec.apis.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from ottla.codec.apis.metadata import MetadataRequest, MetadataResponse
from ottla.codec.apis.produce import ProduceRequest, ProduceResponse
from ottla.codec.wire import api


class ApiMessages(NamedTuple):
    """The two messages of one API."""

    name: str
    request: type[Any]
    response: type[Any]


APIS: dict[int, ApiMessages] = {
    api(request).key: ApiMessages(request.__name__.removesuffix("Request"), request, response)
    for request, response in (
        (ProduceRequest, ProduceResponse),
        (FetchRequest, FetchResponse),
        (ListOffsetsRequest, ListOffsetsResponse),
        (MetadataRequest, MetadataResponse),
        (FindCoordinatorRequest, FindCoordinatorResponse),
        (ApiVersionsRequest, ApiVersionsResponse),
        (CreateTopicsRequest, CreateTopicsResponse),
        (DeleteTopicsRequest, DeleteTopicsResponse),
        (InitProducerIdRequest, InitProducerIdResponse),
        (DescribeConfigsRequest, DescribeConfigsResponse),
    )
}
