"""CreateAcls v1-3: creates ACLs; each is valid or not by itself, and the valid ones are stored together.

Source: AclApis.scala (handleCreateAcls), AclControlManager.java (createAcls).
"""

from ottla.acl.acls import Acl
from ottla.acl.rights import ALTER_CLUSTER
from ottla.brokerlite.machines.core import BrokerCore, Call
from ottla.codec.apis.create_acls import AclCreation, AclCreationResult, CreateAclsRequest, CreateAclsResponse
from ottla.errors import BrokerError


def handle(broker: BrokerCore, call: Call) -> CreateAclsResponse:
    request: CreateAclsRequest = call.message
    checked = [_checked(each) for each in request.creations]
    try:
        broker.access.require(call.session, ALTER_CLUSTER)
        broker.acls.create(each for each in checked if isinstance(each, Acl))
    except BrokerError as error:
        return CreateAclsResponse(results=(_result(error),) * len(checked))
    return CreateAclsResponse(results=tuple(map(_result, checked)))


def _checked(asked: AclCreation) -> Acl | BrokerError:
    try:
        return Acl.checked(
            asked.resource_type,
            asked.resource_name,
            asked.resource_pattern_type,
            asked.principal,
            asked.host,
            asked.operation,
            asked.permission_type,
        )
    except BrokerError as error:
        return error


def _result(checked: Acl | BrokerError) -> AclCreationResult:
    if isinstance(checked, Acl):
        return AclCreationResult(error_code=0, error_message=None)
    return AclCreationResult(error_code=checked.code, error_message=checked.detail or None)
