"""DescribeAcls v1-3: returns the ACLs that a filter matches, by resource.

Source: AclApis.scala (handleDescribeAcls), DescribeAclsResponse.java (aclsResources).
"""

from ottla.acl.acls import Acl, AclFilter
from ottla.acl.rights import DESCRIBE_CLUSTER
from ottla.brokerlite.machines.core import BrokerCore, Call
from ottla.codec.apis.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from ottla.errors import BrokerError


def handle(broker: BrokerCore, call: Call) -> DescribeAclsResponse:
    request: DescribeAclsRequest = call.message
    try:
        broker.access.require(call.session, DESCRIBE_CLUSTER)
        wanted = AclFilter.checked(
            request.resource_type_filter,
            request.resource_name_filter,
            request.pattern_type_filter,
            request.principal_filter,
            request.host_filter,
            request.operation,
            request.permission_type,
        )
        found = broker.acls.find(wanted)
    except BrokerError as error:
        return DescribeAclsResponse(error_code=error.code, error_message=error.detail or None, resources=())
    by_resource: dict[tuple[int, str, int], list[Acl]] = {}
    for acl in found:
        by_resource.setdefault((acl.resource_type, acl.resource_name, acl.pattern_type), []).append(acl)
    return DescribeAclsResponse(
        error_code=0,
        error_message=None,
        resources=tuple(
            DescribeAclsResource(
                resource_type=resource_type,
                resource_name=name,
                pattern_type=pattern_type,
                acls=tuple(
                    AclDescription(
                        principal=acl.principal,
                        host=acl.host,
                        operation=acl.operation,
                        permission_type=acl.permission,
                    )
                    for acl in acls
                ),
            )
            for (resource_type, name, pattern_type), acls in by_resource.items()
        ),
    )
