"""DeleteAcls v1-3: deletes the ACLs that filters match, and returns them; an invalid filter has an error of its own.

Source: AclApis.scala (handleDeleteAcls), AclControlManager.java (deleteAcls).
"""

from collections.abc import Iterable

from ottla.acl.acls import Acl, AclFilter
from ottla.acl.rights import ALTER_CLUSTER
from ottla.brokerlite.machines.core import BrokerCore, Call
from ottla.codec.apis.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from ottla.errors import BrokerError


def handle(broker: BrokerCore, call: Call) -> DeleteAclsResponse:
    request: DeleteAclsRequest = call.message
    checked = [_checked(each) for each in request.filters]
    try:
        broker.access.require(call.session, ALTER_CLUSTER)
        deleted = iter(broker.acls.delete([each for each in checked if isinstance(each, AclFilter)]))
    except BrokerError as error:
        return DeleteAclsResponse(filter_results=(_failed(error),) * len(checked))
    return DeleteAclsResponse(
        filter_results=tuple(
            _result(next(deleted)) if isinstance(each, AclFilter) else _failed(each) for each in checked
        )
    )


def _checked(asked: DeleteAclsFilter) -> AclFilter | BrokerError:
    try:
        return AclFilter.checked(
            asked.resource_type_filter,
            asked.resource_name_filter,
            asked.pattern_type_filter,
            asked.principal_filter,
            asked.host_filter,
            asked.operation,
            asked.permission_type,
        )
    except BrokerError as error:
        return error


def _failed(error: BrokerError) -> DeleteAclsFilterResult:
    return DeleteAclsFilterResult(error_code=error.code, error_message=error.detail or None, matching_acls=())


def _result(acls: Iterable[Acl]) -> DeleteAclsFilterResult:
    return DeleteAclsFilterResult(
        error_code=0,
        error_message=None,
        matching_acls=tuple(
            DeleteAclsMatchingAcl(
                error_code=0,
                error_message=None,
                resource_type=acl.resource_type,
                resource_name=acl.resource_name,
                pattern_type=acl.pattern_type,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl in acls
        ),
    )
