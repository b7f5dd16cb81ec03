"""Requests that need a right on the cluster: they pass as a whole, or are refused as a whole.

Source: KafkaApis.scala, ControllerApis.scala, AclApis.scala; the method `getErrorResponse` of each request.
"""

from collections.abc import Callable
from typing import Any

from ottla.acl.rights import (
    ALTER_CLUSTER,
    ALTER_CLUSTER_CONFIGS,
    DESCRIBE_CLUSTER,
    DESCRIBE_CLUSTER_CONFIGS,
    Right,
)
from ottla.codec.apis.alter_client_quotas import AlterClientQuotasResponse, EntryDataResponse
from ottla.codec.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from ottla.codec.apis.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from ottla.codec.apis.alter_user_scram_credentials import (
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from ottla.codec.apis.create_acls import AclCreationResult, CreateAclsResponse
from ottla.codec.apis.delete_acls import DeleteAclsFilterResult, DeleteAclsResponse
from ottla.codec.apis.describe_acls import DescribeAclsResponse
from ottla.codec.apis.describe_client_quotas import DescribeClientQuotasResponse
from ottla.codec.apis.describe_log_dirs import DescribeLogDirsResponse
from ottla.codec.apis.describe_quorum import DescribeQuorumResponse
from ottla.codec.apis.describe_user_scram_credentials import DescribeUserScramCredentialsResponse
from ottla.codec.apis.elect_leaders import ElectLeadersResponse, PartitionResult, ReplicaElectionResult
from ottla.codec.apis.list_config_resources import ListConfigResourcesResponse
from ottla.codec.apis.list_partition_reassignments import ListPartitionReassignmentsResponse
from ottla.errors import BrokerError
from ottla.proxy.clients.access.screening import PASS, Asked, Screen, Verdict


def _needing(right: Right, refused: Callable[[Any, BrokerError], Any]) -> Screen:
    """The screen for a request that needs a right on the cluster; ``refused``: returns the response with an error."""

    def screen(asked: Asked) -> Verdict:
        error = asked.refuses(right)
        return PASS if error is None else Verdict(answer=refused(asked.message, error))

    return screen


describe_acls = _needing(
    DESCRIBE_CLUSTER,
    lambda request, error: DescribeAclsResponse(error_code=error.code, error_message=error.detail, resources=()),
)
create_acls = _needing(
    ALTER_CLUSTER,
    lambda request, error: CreateAclsResponse(
        results=(AclCreationResult(error_code=error.code, error_message=error.detail),) * len(request.creations)
    ),
)
delete_acls = _needing(
    ALTER_CLUSTER,
    lambda request, error: DeleteAclsResponse(
        filter_results=(DeleteAclsFilterResult(error_code=error.code, error_message=error.detail, matching_acls=()),)
        * len(request.filters)
    ),
)


def _no_log_dirs(request: Any, error: BrokerError) -> AlterReplicaLogDirsResponse:
    topics: dict[str, dict[int, None]] = {}
    for each in request.dirs:
        for topic in each.topics:
            topics.setdefault(topic.name, {}).update(dict.fromkeys(topic.partitions))
    return AlterReplicaLogDirsResponse(
        results=tuple(
            AlterReplicaLogDirTopicResult(
                topic_name=name,
                partitions=tuple(
                    AlterReplicaLogDirPartitionResult(partition_index=index, error_code=error.code) for index in indexes
                ),
            )
            for name, indexes in topics.items()
        )
    )


alter_replica_log_dirs = _needing(ALTER_CLUSTER, _no_log_dirs)
describe_log_dirs = _needing(
    DESCRIBE_CLUSTER, lambda request, error: DescribeLogDirsResponse(error_code=error.code, results=())
)


_ERROR_SINCE = 1
"""The first version of ElectLeaders whose response has an error of its own."""


def elect_leaders(asked: Asked) -> Verdict:
    if (error := asked.refuses(ALTER_CLUSTER)) is None:
        return PASS
    answer = ElectLeadersResponse(
        error_code=error.code if asked.version >= _ERROR_SINCE else 0,
        replica_election_results=tuple(
            ReplicaElectionResult(
                topic=topic.topic,
                partition_result=tuple(
                    PartitionResult(partition_id=index, error_code=error.code, error_message=error.detail)
                    for index in topic.partitions
                ),
            )
            for topic in asked.message.topic_partitions or ()
        ),
    )
    return Verdict(answer=answer)


def _no_reassignments(request: Any, error: BrokerError) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(
        error_code=error.code,
        error_message=error.detail,
        responses=tuple(
            ReassignableTopicResponse(
                name=topic.name,
                partitions=tuple(
                    ReassignablePartitionResponse(
                        partition_index=each.partition_index, error_code=error.code, error_message=error.detail
                    )
                    for each in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )


alter_partition_reassignments = _needing(ALTER_CLUSTER, _no_reassignments)
list_partition_reassignments = _needing(
    DESCRIBE_CLUSTER,
    lambda request, error: ListPartitionReassignmentsResponse(
        error_code=error.code, error_message=error.detail, topics=()
    ),
)
describe_client_quotas = _needing(
    DESCRIBE_CLUSTER_CONFIGS,
    lambda request, error: DescribeClientQuotasResponse(
        error_code=error.code, error_message=error.detail, entries=None
    ),
)
alter_client_quotas = _needing(
    ALTER_CLUSTER_CONFIGS,
    lambda request, error: AlterClientQuotasResponse(
        entries=tuple(
            EntryDataResponse(error_code=error.code, error_message=error.detail, entity=each.entity)
            for each in request.entries
        )
    ),
)
describe_user_scram_credentials = _needing(
    DESCRIBE_CLUSTER,
    lambda request, error: DescribeUserScramCredentialsResponse(
        error_code=error.code, error_message=error.detail, results=()
    ),
)


def _no_credentials(request: Any, error: BrokerError) -> AlterUserScramCredentialsResponse:
    users = dict.fromkeys(each.name for each in (*request.deletions, *request.upsertions))
    return AlterUserScramCredentialsResponse(
        results=tuple(
            AlterUserScramCredentialsResult(user=name, error_code=error.code, error_message=error.detail)
            for name in users
        )
    )


alter_user_scram_credentials = _needing(ALTER_CLUSTER, _no_credentials)
describe_quorum = _needing(
    DESCRIBE_CLUSTER,
    lambda request, error: DescribeQuorumResponse(error_code=error.code, error_message=error.detail, topics=()),
)
list_config_resources = _needing(
    DESCRIBE_CLUSTER_CONFIGS,
    lambda request, error: ListConfigResourcesResponse(error_code=error.code, config_resources=()),
)
