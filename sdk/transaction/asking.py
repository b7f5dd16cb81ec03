"""Sends requests to the coordinator of a transactional id or group, and retries them until the outcome is definite.

Rules:
- CONCURRENT_TRANSACTIONS only means that the markers of the previous transaction are being written, which takes one to
  ten milliseconds. The first retries follow at once, the others after short, growing pauses.
- UNKNOWN_SERVER_ERROR leaves the outcome of the request unknown, so it is retried as if there had been no answer. Kafka
  4.3 sends it for the EndTxn of a producer that is being fenced by a newer one.
- A topic that neither the coordinator nor other brokers know ends the attempts: it was deleted.
- Other retriable errors are retried as in all calls, and if the coordinator may have moved, it is looked up again.
"""

from collections.abc import Callable, Iterable
from typing import Any

from ottla.errors import ConcurrentTransactions, OttlaError, UnknownServerError, UnknownTopicOrPartition
from ottla.sdk.calls.task import UNSURE, Task
from ottla.sdk.cluster.coordinators import Coordinators
from ottla.sdk.cluster.metadata import KNOWN_TOPIC_GRACE
from ottla.sdk.connection.versions import Range
from ottla.sdk.flow import sleep
from ottla.sdk.outcome import all_of
from ottla.sdk.steps import Steps, settled

_AT_ONCE = 3
"""Attempts before the first pause: an attempt takes some time itself, so that an early retry often succeeds."""
_SHORTEST_PAUSE = 0.001
_LONGEST_PAUSE = 0.2
"""Maximum seconds between two attempts while markers are being written."""


def ask_coordinator(
    task: Task[Any],
    coordinators: Coordinators,
    key: str,
    request: Any,
    judge: Callable[[Any], OttlaError | None],
    versions: Range,
    topics: Iterable[str] = (),
) -> Steps[Any]:
    """Send ``request`` to the coordinator of ``key`` until its response has no error; return the response.

    Afterwards, ``task.repeated`` says whether an earlier attempt may have been carried out, or may still be.

    Args:
        judge: returns the error in a response, if there is one.
        topics: the topics in the request.

    Raises:
        OttlaError: an error is not retriable.
    """
    early, pause = 0, _SHORTEST_PAUSE
    while True:
        error: OttlaError | None
        try:
            node = yield from settled(coordinators.find(key, task.now))
            answer, _ = yield from settled(task.request(node, request, versions=versions))
        except OttlaError as lost:
            error = lost
        else:
            error = judge(answer)
            if error is None:
                return answer
        coordinators.heard(key, error)
        if isinstance(error, ConcurrentTransactions | UnknownServerError):
            task.attempt_failed(error, (UnknownServerError,))
            early += 1
            if early < _AT_ONCE and isinstance(error, ConcurrentTransactions):
                continue
            yield from sleep(task.core, pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
            continue
        if isinstance(error, UnknownTopicOrPartition):
            ask = task.core.metadata.topic
            found = [ask(name, task.now, fresh=True, grace=KNOWN_TOPIC_GRACE) for name in topics]
            yield from settled(all_of(found))  # all lookups at once, because there may be thousands of topics
        task.attempt_failed(error, UNSURE)
        yield from task.pause(error)
