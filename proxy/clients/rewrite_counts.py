"""Counts the records and the refusals of each rewritten topic, and logs the refusals."""

import logging
from collections.abc import Sequence
from itertools import islice

from ottla.codec.partitioners import PARTITIONERS
from ottla.codec.records import Record
from ottla.complaints import Complaints
from ottla.errors import BrokerError, broker_error
from ottla.proxy.clients.batches import ClientBatch, Offer, Origin
from ottla.proxy.clients.key_scan import LONGEST_KEY, LOOKED_THROUGH, LOOKS, Example, FoundKeys
from ottla.proxy.clients.observer import KeyCounts, Tallies
from ottla.proxy.clients.routed_topics import RoutedTopics
from ottla.proxy.clients.windows import ClientResult
from ottla.proxy.topic_rule import Mode
from ottla.proxy.upstream.batches import PartResult
from ottla.proxy.upstream.streams import CLIENT_GONE

log = logging.getLogger("ottla.proxy")


class RewriteCounts:
    """Counts records and refusals by topic, and logs each kind of refusal: its first one, and later the number."""

    def __init__(self, tallies: Tallies, keys: KeyCounts, topics: RoutedTopics) -> None:
        self._tallies, self._keys, self._topics = tallies, keys, topics
        self._complaints = Complaints()

    @property
    def deadline(self) -> float | None:
        return self._complaints.deadline

    def log_counted(self, now: float) -> None:
        """Log the number of refusals without a line of their own."""
        for line in self._complaints.counted(now):
            log.warning("%s", line)

    def delivered(self, batch: ClientBatch, now: float) -> None:
        """Count the records of a batch that are handed to delivery; those left out were counted with another batch."""
        (topic, partition), own = batch.place, batch.own_parts
        records, chosen = sum(map(len, own.values())), not batch.routes.fans_out
        misplaced = records - len(own.get(batch.place, ())) if chosen else 0
        keyless = batch.records.keyless
        if batch.left_out:
            keyless = sum(each.key is None for part in own.values() for each in part)
        most, looks = self._keys.wanted(topic, batch.routes, batch.origin, now)
        found = FoundKeys(
            records,
            keyless,
            misplaced,
            _examples(batch, most) if most and chosen else (),
            _looked(batch) if looks else (),
        )
        mode = Mode.COPY if batch.copies else Mode.FAN_OUT if batch.routes.fans_out else Mode.REWRITE
        for destination, part in batch.parts.items():
            if destination not in own:
                self._tallies[topic].count_copied(destination.topic, len(part))
        self._keys.count(topic, mode, batch.routes, partition, batch.origin, found)

    def offer_refused(self, offer: Offer, error: BrokerError, now: float) -> None:
        """Count a record set that is refused, and log it if nothing else tells its client."""
        if offer.topic in self._tallies or self._topics.is_described(offer.topic):  # clients may send any name
            self._tallies[offer.topic].count_refused()
        self._tell_of_missing(offer, error, now)
        if offer.awaited:  # otherwise no answer tells the client, which may have gone
            return
        if self._complaints.is_new(now, "", f"records with acks=0 were refused: {error.name}, {offer.topic}"):
            told = {"partition": str(offer.place), "error": error.name, "why": error.detail}
            facts = told | {"bytes": len(offer.data)} | offer.origin.facts
            log.warning("records with acks=0 were refused", extra=facts)

    def _tell_of_missing(self, offer: Offer, error: BrokerError, now: float) -> None:
        """Log that records are refused because another topic, of the operator's rules, cannot get copies of them."""
        missing = self._topics.undescribed(offer.topic)
        if missing is None or missing == offer.topic:
            return
        if self._complaints.is_new(now, "", f"records cannot be copied and were refused: {offer.topic}, {missing}"):
            told = {"topic": offer.topic, "copy": missing, "error": error.name, "why": error.detail}
            log.warning("records cannot be copied and were refused", extra=told | offer.origin.facts)

    def rejected(self, topic: str, partition: int, refusal: ClientResult, origin: Origin, now: float) -> None:
        """Count and log a record set that mode `reject` refuses."""
        if topic in self._tallies or self._topics.is_described(topic):  # clients may send any name
            self._tallies[topic].count_refused()
        error = broker_error(refusal.error_code).name
        if self._complaints.is_new(now, origin.client_id or "", f"records were refused: {error}, {topic}"):
            told = {"partition": f"{topic}-{partition}", "error": error, "why": refusal.error_message}
            log.warning("records were refused", extra=told | origin.facts)

    def batch_refused(self, batch: ClientBatch, result: PartResult, now: float) -> None:
        """Count and log a batch that failed, at least in part."""
        tally = self._tallies[batch.place.topic]
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
        if self._complaints.is_new(now, "", f"{what}: {error}, {batch.place.topic}"):
            told = {"partition": str(batch.place), "records": batch.count, "error": error, "why": result.message}
            log.warning(what, extra=told | {"producer_id": batch.producer.producer_id} | batch.origin.facts)


def _examples(batch: ClientBatch, most: int) -> Sequence[Example]:
    """Some of a batch's records that move."""
    moving = (
        (each, destination)
        for destination, part in batch.own_parts.items()
        if destination != batch.place
        for each in part
    )
    return [
        (each.offset, bytes(each.key or b""), destination.partition)
        for each, destination in islice(moving, most)
        if _short(each)
    ]


def _looked(batch: ClientBatch) -> Sequence[Example]:
    """Some of a batch's records with a key, as `key_scan` chooses them."""
    among = min(batch.count, LOOKED_THROUGH)
    place, partitions = PARTITIONERS[batch.routes.partitioner], batch.routes.partitions
    chosen = ((row, batch.records[row]) for row in range(0, among, max(among // LOOKS, 1)))
    found: list[Example] = [
        (row, bytes(each.key), place(each.key, partitions))
        for row, each in chosen
        if each.key is not None and _short(each)
    ]
    return found[:LOOKS]


def _short(record: Record) -> bool:
    """Whether the key of a record is short enough for the report."""
    return len(record.key or b"") <= LONGEST_KEY
