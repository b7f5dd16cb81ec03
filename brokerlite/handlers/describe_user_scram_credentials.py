"""DescribeUserScramCredentials v0: lists users and their mechanisms, without salts and hashes.

A user that is named twice is DUPLICATE_RESOURCE, an unknown one RESOURCE_NOT_FOUND.

Source: ScramImage.java (describe); KIP-554.
"""

from collections import Counter

from ottla.acl.rights import DESCRIBE_CLUSTER
from ottla.brokerlite.machines.core import BrokerCore, Call
from ottla.brokerlite.machines.users.user_log import MECHANISMS
from ottla.codec.apis.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from ottla.errors import BrokerError, DuplicateResource, ResourceNotFound


def handle(broker: BrokerCore, call: Call) -> DescribeUserScramCredentialsResponse:
    request: DescribeUserScramCredentialsRequest = call.message
    try:
        broker.access.require(call.session, DESCRIBE_CLUSTER)
    except BrokerError as error:
        return DescribeUserScramCredentialsResponse(
            error_code=error.code, error_message=error.detail or None, results=()
        )
    table = broker.users.table
    named = Counter(each.name for each in request.users) if request.users else Counter(dict.fromkeys(table, 1))
    return DescribeUserScramCredentialsResponse(
        error_code=0,
        error_message=None,
        results=tuple(_described(broker, user, count) for user, count in named.items()),
    )


def _described(broker: BrokerCore, user: str, count: int) -> DescribeUserScramCredentialsResult:
    credentials = broker.users.table.credentials(user)
    code, text = 0, None
    if count > 1:
        text = f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
        code, credentials = DuplicateResource.code, {}
    elif not credentials:
        code, text = ResourceNotFound.code, f"Attempt to describe a user credential that does not exist: {user}"
    return DescribeUserScramCredentialsResult(
        user=user,
        error_code=code,
        error_message=text,
        credential_infos=tuple(
            CredentialInfo(mechanism=number, iterations=credentials[name].iterations)
            for number, name in MECHANISMS.items()
            if name in credentials
        ),
    )
