"""Requests to a coordinator, of a transactional id or a group, repeated until they are answered for good.

Rules:
- CONCURRENT_TRANSACTIONS only says that the markers of the transaction before are being written, which takes a
  millisecond or ten: the next attempts come at once, then after pauses that begin short, and grow.
- UNKNOWN_SERVER_ERROR says nothing of what has become of the request: it is repeated, as if it had not been answered.
  Kafka 4.3 answers so to the EndTxn of a producer that is being fenced by a newer one.
- A topic that the coordinator does not know and other brokers deny, too, ends the attempts: it was deleted.
- Other errors that may pass wait as all calls do, and have the coordinator looked for again where it may have moved.
"""

from collections.abc import Callable, Iterable
from typing import Any

from ottla.errors import ConcurrentTransactions, OttlaError, UnknownServerError, UnknownTopicOrPartition
from ottla.sdk.calls.call import UNSURE, Task
from ottla.sdk.cluster.coordinators import Coordinators
from ottla.sdk.cluster.metadata import KNOWN_TOPIC_GRACE
from ottla.sdk.connection.versions import Range
from ottla.sdk.outcome import all_of
from ottla.sdk.steps import Steps, settled

_AT_ONCE = 3
"""Attempts, each of which takes a while by itself, before the first pause: the next is often answered."""
_SHORTEST_PAUSE = 0.001
_LONGEST_PAUSE = 0.2
"""Seconds between two attempts while markers are being written."""


def ask_coordinator(
    task: Task[Any],
    coordinators: Coordinators,
    key: str,
    request: Any,
    judge: Callable[[Any], OttlaError | None],
    versions: Range,
    topics: Iterable[str] = (),
) -> Steps[Any]:
    """The answer of the coordinator of ``key`` of which ``judge`` finds no error; raises one that no repetition mends.

    Args:
        topics: the topics in the request.

    ``task.repeated`` then says whether an earlier attempt may have been carried out, or may yet be.
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
            task.repeated |= isinstance(error, UnknownServerError)
            task.trouble = str(error)
            early += 1
            if early < _AT_ONCE and isinstance(error, ConcurrentTransactions):
                continue
            yield from task.rest(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
            continue
        if isinstance(error, UnknownTopicOrPartition):
            ask = task.core.metadata.topic
            found = [ask(name, task.now, fresh=True, grace=KNOWN_TOPIC_GRACE) for name in topics]
            yield from settled(all_of(found))  # asked for together: they may be thousands
        task.repeated |= isinstance(error, UNSURE)
        yield from task.pause(error)
