"""AlterUserScramCredentials v0: gives users passwords, or takes them away.

Source: ScramControlManager.java; KIP-554.
"""

from collections.abc import Mapping

from ottla.acl.rights import ALTER_CLUSTER
from ottla.brokerlite.machines.core import BrokerCore, Call
from ottla.codec.apis.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from ottla.errors import BrokerError


def handle(broker: BrokerCore, call: Call) -> AlterUserScramCredentialsResponse:
    request: AlterUserScramCredentialsRequest = call.message
    results: Mapping[str, BrokerError | None]
    try:
        broker.access.require(call.session, ALTER_CLUSTER)
    except BrokerError as error:
        named = [*(each.name for each in request.deletions), *(each.name for each in request.upsertions)]
        results = dict.fromkeys(named, error)
    else:
        results = broker.users.alter(
            [(each.name, each.mechanism) for each in request.deletions],
            [
                (each.name, each.mechanism, each.iterations, each.salt, each.salted_password)
                for each in request.upsertions
            ],
        )
    return AlterUserScramCredentialsResponse(
        results=tuple(
            AlterUserScramCredentialsResult(
                user=user,
                error_code=0 if error is None else error.code,
                error_message=None if error is None else error.detail or None,
            )
            for user, error in results.items()
        )
    )
