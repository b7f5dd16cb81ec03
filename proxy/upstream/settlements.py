"""Settles the parts of streams: the journal gets the stream's new state, and then each sender its outcome."""

from typing import TYPE_CHECKING

from ottla.proxy.contained import contained
from ottla.proxy.routing import Destination
from ottla.proxy.upstream.producer import UpstreamProducer
from ottla.proxy.upstream.streams import Settled, Stream

if TYPE_CHECKING:
    from ottla.proxy.journal.journal import Journal


class Settlements:
    """Records changed streams in the journal, and passes the outcomes of their parts on."""

    def __init__(self, journal: "Journal | None") -> None:
        self._journal = journal

    def note(self, producer: UpstreamProducer, stream: Stream) -> None:
        """Record a stream in the journal, because it has changed."""
        if self._journal is not None and not producer.own:
            assert producer.producer_id is not None, "clients' producers have an id"
            self._journal.stream(producer.producer_id, stream)

    def put_off(self, stream: Stream, now: float) -> None:
        """Tell the senders of a stream's parts that its partition accepts no records for now."""
        destination = Destination(stream.topic, stream.partition)
        for sender in stream.senders:
            with contained("records of a client are refused for now"):
                sender.put_off(stream.refusal, destination, now)

    def settle(self, producer: UpstreamProducer, stream: Stream, settled: Settled, now: float) -> None:
        """Record a stream in the journal, and pass the outcomes of its parts to their senders."""
        self.note(producer, stream)
        for part, result in settled:
            with contained("records of a client are settled"):
                part.sender.settled(part, result, now)
