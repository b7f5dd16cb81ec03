"""Users that log in by SCRAM: list them, give them passwords, and take them away.

Rules:
- A password is never sent: the client salts and hashes it.
- A retry may meet its own effect: a credential that is gone then counts as deleted.

Source: KafkaAdminClient.java (describeUserScramCredentials, alterUserScramCredentials); KIP-554.
"""

from collections.abc import Sequence

from ottla.codec.apis.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla.codec.apis.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)
from ottla.errors import OttlaError, RemoteProtocolError, ResourceNotFound, broker_error
from ottla.sdk.admin import SCRAM_MECHANISMS, ScramCredentialHash, UserDescription
from ottla.sdk.calls.task import Task
from ottla.sdk.core import ClientCore
from ottla.sdk.outcome import Outcome
from ottla.sdk.steps import Steps

_NAMES = {number: name for name, number in SCRAM_MECHANISMS.items()}


def describe_users(core: ClientCore, users: Sequence[str], now: float) -> Outcome[tuple[UserDescription, ...]]:
    """All users with a credential, or some of them, sorted by name."""
    asked = tuple(UserName(name=each) for each in dict.fromkeys(users)) if users else None

    def judge(answer: DescribeUserScramCredentialsResponse) -> OttlaError | None:
        if answer.error_code:
            return broker_error(answer.error_code, answer.error_message or "describing users")
        for each in answer.results:
            if each.error_code:
                return broker_error(each.error_code, each.error_message or f"user {each.user!r}")
        return None

    def work(task: Task[tuple[UserDescription, ...]]) -> Steps[tuple[UserDescription, ...]]:
        answer = yield from task.ask(core.controller, DescribeUserScramCredentialsRequest(users=asked), judge)
        return tuple(
            UserDescription(
                each.user,
                {_NAMES.get(info.mechanism, str(info.mechanism)): info.iterations for info in each.credential_infos},
            )
            for each in sorted(answer.results, key=lambda each: each.user)
        )

    return Task(core, "describing users", now, work).outcome


def set_credential(core: ClientCore, user: str, hashed: ScramCredentialHash, now: float) -> Outcome[None]:
    """Give a user a password for one mechanism."""
    upsertion = ScramCredentialUpsertion(
        name=user,
        mechanism=SCRAM_MECHANISMS[hashed.mechanism],
        iterations=hashed.iterations,
        salt=hashed.salt,
        salted_password=hashed.salted_password,
    )
    return _alter(core, user, AlterUserScramCredentialsRequest(deletions=(), upsertions=(upsertion,)), now)


def delete_credential(core: ClientCore, user: str, mechanism: str, now: float) -> Outcome[None]:
    """Take the password for one mechanism away."""
    deletion = ScramCredentialDeletion(name=user, mechanism=SCRAM_MECHANISMS[mechanism])
    return _alter(core, user, AlterUserScramCredentialsRequest(deletions=(deletion,), upsertions=()), now)


def _alter(core: ClientCore, user: str, request: AlterUserScramCredentialsRequest, now: float) -> Outcome[None]:
    def judge(answer: AlterUserScramCredentialsResponse) -> OttlaError | None:
        if not answer.results:
            return RemoteProtocolError("the response to AlterUserScramCredentials lacks the user")
        result = answer.results[0]
        return broker_error(result.error_code, result.error_message or f"user {user!r}") if result.error_code else None

    def work(task: Task[None]) -> Steps[None]:
        try:
            yield from task.ask(core.controller, request, judge)
        except ResourceNotFound:
            if not task.repeated:
                raise

    return Task(core, f"changing user {user!r}", now, work).outcome
