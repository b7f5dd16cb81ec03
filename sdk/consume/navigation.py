"""Where a consumer reads, as its user moves it: seek, pause, resume, and the position.

In a group partitions are lost at any moment. What is asked for one of which the user thinks, for want of news, that it
is here, is dropped with a line in the log; what is asked for one that never was is an error that says what to do.

Source: KafkaConsumer.java, SubscriptionState.java.
"""

from collections.abc import Callable, Iterable, Mapping

from ottla.errors import LocalProtocolError
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.consume.committing import Committing
from ottla.sdk.consume.fetcher import Fetcher, Start
from ottla.sdk.consume.notices import Notices
from ottla.sdk.core import ClientCore
from ottla.sdk.logs import logger
from ottla.sdk.steps import Steps, settled

log = logger("ottla.sdk.consumer")


class Navigation:
    """Of one consumer.

    Args:
        member: the partitions are a group's to give.
        refuse_closed: raises where the consumer is of no more use.
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
        """The offset of the next record that is handed out of the partition.

        Raises:
            LocalProtocolError: it is not assigned to this consumer, or is being looked up.
        """
        self._refuse_closed()
        if place not in self._fetcher.places:
            raise self.not_assigned(place, "ask for its position")
        position = self._fetcher.position(place)
        if position is None:
            raise LocalProtocolError(f"the position of {place[0]}-{place[1]} is being looked up: await seek first")
        return position

    def seek(self, starts: Mapping[TopicPartition, Start]) -> Steps[None]:
        """Go on elsewhere, in partitions that are `owned`; commits may go back there, too."""
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
        """Those of the partitions that are read, to do with them what is asked for.

        In a group partitions are lost at any moment: what is asked for one of which the user thinks, for want of news,
        that it is here, is dropped with a line in the log.

        Raises:
            LocalProtocolError: a partition is not assigned to this consumer.
        """
        asked = list(places)
        gone = [place for place in asked if place not in self._fetcher.places]
        for place in gone:
            if not self._notices.believed(place):
                raise self.not_assigned(place, what)
        if gone:
            log.warning("a call is dropped, as its partitions were lost", extra={"call": what, "partitions": gone})
        return [place for place in asked if place not in gone]

    def not_assigned(self, place: TopicPartition, what: str) -> LocalProtocolError:
        if not self._member:
            advice = "what it reads is said where it is made, in client.consumer(...)"
        elif self._notices.believed(place):
            advice = "the group has taken it, which the listener is notified of next"
        else:
            advice = f"in a group, {what} once `assigned` of a RebalanceListener has named it"
        has = f"which has {self._fetcher.assignment}"
        return LocalProtocolError(f"{place!r} is not assigned to this consumer, {has}: {advice}")
