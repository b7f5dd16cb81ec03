"""Implements the consumer's seek, pause, resume and position.

In a group, partitions may be lost at any moment. A call for a lost partition is dropped with a line in the log as long
as the listener was not notified of the loss; otherwise, a call for a partition that is not assigned is an error that
says what to do.

Source: KafkaConsumer.java, SubscriptionState.java.
"""

from collections.abc import Callable, Iterable, Mapping

from ottla.errors import LocalProtocolError
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.consume.assignment.committing import Committing
from ottla.sdk.consume.assignment.notices import Notices
from ottla.sdk.consume.reading.fetcher import Fetcher, Start
from ottla.sdk.core import ClientCore
from ottla.sdk.logs import logger, named
from ottla.sdk.steps import Steps, settled

log = logger("ottla.sdk.consumer")


class Navigation:
    """Runs these calls of one consumer.

    Args:
        member: a group assigns the partitions.
        refuse_closed: raises if the consumer is closed.
    """

    def __init__(
        self,
        core: ClientCore,
        fetcher: Fetcher,
        committing: Committing,
        notices: Notices,
        refuse_closed: Callable[[], None],
        *,
        member: bool,
    ) -> None:
        self._core, self._fetcher, self._committing, self._notices = core, fetcher, committing, notices
        self._refuse_closed, self._member = refuse_closed, member

    def position(self, place: TopicPartition) -> int:
        """The offset of the next record that is handed out from the partition.

        Raises:
            LocalProtocolError: the partition is not assigned to this consumer, or its position is being looked up.
        """
        self._refuse_closed()
        if place not in self._fetcher.places:
            raise self.not_assigned(place, "ask for its position")
        position = self._fetcher.position(place)
        if position is None:
            raise LocalProtocolError(f"the position of {place[0]}-{place[1]} is being looked up: await seek first")
        return position

    def seek(self, starts: Mapping[TopicPartition, Start]) -> Steps[None]:
        """Move the positions of partitions that are `owned`; afterwards commits may go backwards there."""
        self._refuse_closed()
        owned = self.owned(starts, "seek")
        for place in owned:
            self._committing.move(place)
        self._fetcher.assign({place: starts[place] for place in owned}, self._core.now)
        yield from settled(self._fetcher.resolve(self._core.now, starts))

    def pause(self, places: Iterable[TopicPartition]) -> None:
        self._refuse_closed()
        self._fetcher.pause(self.owned(places, "pause"))

    def resume(self, places: Iterable[TopicPartition]) -> None:
        self._refuse_closed()
        self._fetcher.resume(self.owned(places, "resume"))

    def owned(self, places: Iterable[TopicPartition], what: str) -> list[TopicPartition]:
        """The assigned partitions among ``places``; ``what`` names the call in messages.

        Lost partitions of which the listener was not notified yet are left out, with a line in the log.

        Raises:
            LocalProtocolError: a partition is not assigned to this consumer.
        """
        asked = list(places)
        gone = [place for place in asked if place not in self._fetcher.places]
        for place in gone:
            if not self._notices.believed(place):
                raise self.not_assigned(place, what)
        if gone:
            log.warning("call dropped: its partitions were lost", extra={"call": what, "partitions": named(gone)})
        return [place for place in asked if place not in gone]

    def not_assigned(self, place: TopicPartition, what: str) -> LocalProtocolError:
        if not self._member:
            advice = "name the partitions to read in client.consumer(...)"
        elif self._notices.believed(place):
            advice = "the group has revoked it, and the listener will be notified next"
        else:
            advice = f"in a group, {what} once `assigned` of a RebalanceListener has named it"
        has = f"which has {self._fetcher.assignment}"
        return LocalProtocolError(f"{place!r} is not assigned to this consumer, {has}: {advice}")
