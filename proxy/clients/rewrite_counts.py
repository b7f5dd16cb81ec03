"""Counts the records and the refusals of each rewritten topic, and logs the refusals."""

import logging

from ottla.complaints import Complaints
from ottla.errors import BrokerError, broker_error
from ottla.proxy.clients.batches import ClientBatch, Offer
from ottla.proxy.clients.observer import Tallies
from ottla.proxy.clients.routed_topics import RoutedTopics
from ottla.proxy.upstream.batches import PartResult
from ottla.proxy.upstream.streams import CLIENT_GONE

log = logging.getLogger("ottla.proxy")


class RewriteCounts:
    """Counts records and refusals by topic, and logs each kind of refusal: its first one, and later the number."""

    def __init__(self, tallies: Tallies, topics: RoutedTopics) -> None:
        self._tallies, self._topics = tallies, topics
        self._complaints = Complaints()

    @property
    def deadline(self) -> float | None:
        return self._complaints.deadline

    def log_counted(self, now: float) -> None:
        """Log the number of refusals without a line of their own."""
        for line in self._complaints.counted(now):
            log.warning("%s", line)

    def delivered(self, batch: ClientBatch) -> None:
        """Count the records of a batch that are handed to delivery; those left out were counted with another batch."""
        records = batch.count - len(batch.left_out)
        misplaced = records - len(batch.parts.get(batch.partition, ()))
        keyless = batch.records.keyless
        if batch.left_out:
            keyless = sum(each.key is None for part in batch.parts.values() for each in part)
        client_id = batch.origin.client_id
        self._tallies.count(batch.topic, client_id, records=records, keyless=keyless, misplaced=misplaced)

    def offer_refused(self, offer: Offer, error: BrokerError, now: float) -> None:
        """Count a record set that is refused, and log it if nothing else tells its client."""
        if offer.topic in self._tallies or self._topics.is_described(offer.topic):  # clients may send any name
            self._tallies[offer.topic].count_refused()
        if offer.awaited:  # otherwise no answer tells the client, which may have gone
            return
        if self._complaints.is_new(now, "", f"records with acks=0 were refused: {error.name}, {offer.topic}"):
            told = {"partition": f"{offer.topic}-{offer.partition}", "error": error.name, "why": error.detail}
            facts = told | {"bytes": len(offer.data)} | offer.origin.facts
            log.warning("records with acks=0 were refused", extra=facts)

    def batch_refused(self, batch: ClientBatch, result: PartResult, now: float) -> None:
        """Count and log a batch that failed, at least in part."""
        tally = self._tallies[batch.topic]
        if result is CLIENT_GONE:
            tally.count_dropped()
        elif result.unknown:
            tally.count_unknown()
        else:
            tally.count_refused()
        what = (
            f"requests of a disconnected client dropped: {result.message}"
            if result is CLIENT_GONE
            else ("outcome unknown: records may or may not be stored" if result.unknown else "records were refused")
        )
        error = broker_error(result.error_code).name
        if self._complaints.is_new(now, "", f"{what}: {error}, {batch.topic}"):
            place = f"{batch.topic}-{batch.partition}"
            told = {"partition": place, "records": batch.count, "error": error, "why": result.message}
            log.warning(what, extra=told | {"producer_id": batch.producer.producer_id} | batch.origin.facts)
