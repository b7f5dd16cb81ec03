"""Explains a denial to the client that lacks the right: the right it needs, and the command that grants it.

Rules:
- Only an administrator can run the command, or read the ACLs: the denied client lacks the rights for that, too.
- The broker names the operation that it checked, which need not be the right that helps: FindCoordinator checks
  Describe, and a consumer needs Read on the group, which includes Describe.

Source: KafkaApis.scala (handleFindCoordinatorRequest, handleInitProducerIdRequest), KIP-679.
"""

import shlex

from ottla.errors import BrokerError, ClusterAuthorizationFailed

ADD = "ottla acls add User:NAME --operation"


def coordinator_denied(error: BrokerError, kind: str, key: str) -> BrokerError:
    """The error of FindCoordinator, with the right that members of a group or transactional producers need."""
    if kind == "group":
        needs, option = "to consume, it needs Read on the group", f"Read --group {shlex.quote(key)}"
    else:
        needs, option = "to produce, it needs Write on the id", f"Write --transactional-id {shlex.quote(key)}"
    return _explained(error, f"The principal may not use {kind} {key!r}: {needs}. {_granted(option)}")


def producer_id_denied(error: ClusterAuthorizationFailed, topics: list[str]) -> BrokerError:
    """The error of InitProducerId without a transactional id.

    Args:
        topics: with records that wait to be sent.
    """
    wanted = f" (it has records for {', '.join(map(repr, topics[:3]))}{', …' if topics[3:] else ''})" if topics else ""
    needs = f"it needs Write on a topic{wanted} or IdempotentWrite on the cluster (before Kafka 3.0 always this)"
    granted = _granted(f"Write --topic {shlex.quote(topics[0]) if topics else 'TOPIC'}")
    return _explained(error, f"The principal may not get a producer id: {needs}. {granted}")


def _granted(option: str) -> str:
    return f"An administrator grants it with `{ADD} {option}` (behind a proxy: in its [[acls]])."


def _explained(error: BrokerError, told: str) -> BrokerError:
    return type(error)(error.detail, told=told)
