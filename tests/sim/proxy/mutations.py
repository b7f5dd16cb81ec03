"""Mutations of the proxy; see `tests.sim.mutations`. Most leave out one of its rules about sequences."""

import math
from dataclasses import replace
from itertools import count
from typing import Any, cast
from uuid import UUID

from ottla.codec.wire import NO_UUID
from ottla.errors import BY_CODE, NotLeaderOrFollower
from ottla.proxy.clients import address_handler, batches, judging, pending_produce
from ottla.proxy.clients.admission import Admission
from ottla.proxy.clients.batches import ClientBatch
from ottla.proxy.clients.client_connection import ClientConnection
from ottla.proxy.clients.client_link import ClientLink
from ottla.proxy.clients.one_partition_handler import OnePartitionHandler
from ottla.proxy.clients.produce_handler import ProduceHandler
from ottla.proxy.clients.producers import ClientProducers
from ottla.proxy.clients.producers_at_work import ProducersAtWork
from ottla.proxy.clients.refused_memory import RefusedMemory
from ottla.proxy.clients.refused_records import Fingerprint, RefusedRecords, RememberedRecords
from ottla.proxy.clients.rejecter import Rejecter
from ottla.proxy.clients.request_line import RequestLine
from ottla.proxy.clients.rewriter import Rewriter
from ottla.proxy.clients.routed_topics import RoutedTopics
from ottla.proxy.clients.unsettled import Unsettled
from ottla.proxy.clients.windows import ClientResult, Numbered, Window
from ottla.proxy.core import ProxyCore
from ottla.proxy.events import Store
from ottla.proxy.journal import restored as journal
from ottla.proxy.journal.journal import Journal
from ottla.proxy.routing import Destination, Routes
from ottla.proxy.upstream import cluster, connections, link, streams
from ottla.proxy.upstream.batches import Part, PartResult, UpstreamBatch
from ottla.proxy.upstream.cluster import UpstreamCluster
from ottla.proxy.upstream.delivery import Delivery
from ottla.proxy.upstream.lent import Lent
from ottla.proxy.upstream.link import UpstreamLink
from ottla.proxy.upstream.producer import UpstreamProducer
from ottla.proxy.upstream.producer_id_requests import ProducerIdRequests
from ottla.proxy.upstream.recognition import Recognition
from ottla.proxy.upstream.streams import Stream
from tests.sim.mutations import Mutations

OF_PROXY = Mutations("proxy", within=1000)
MUTATIONS, SEEDS, _mutation = OF_PROXY.known, OF_PROXY.seeds, OF_PROXY.add


def _no_records(window: Any) -> Any:
    return RefusedRecords()


# -- batches to upstream -----------------------------------------------------------------------------------------------


def _numbered_from_the_refused_on(start_over: Any) -> Any:
    def broken(self: Stream) -> Any:
        epoch, first = self.epoch, next(each.sequence for each in self.sent if not each.stored)
        withdrawn = start_over(self)
        self.epoch, self.next_sequence, self._known = epoch, first, True
        return withdrawn

    return broken


def _goes_on_behind_the_refused(start_over: Any) -> Any:
    def broken(self: Stream) -> Any:
        epoch, following = self.epoch, self.next_sequence
        withdrawn = start_over(self)
        self.epoch, self.next_sequence = epoch, following
        return withdrawn

    return broken


def _known_from_the_start(begin: Any) -> Any:
    def broken(self: Stream, epoch: int) -> None:
        begin(self, epoch)
        self._known = True

    return broken


def _nothing(original: Any) -> Any:
    return lambda *given, **named: None


def _certain(failed: Any) -> Any:
    def broken(self: Stream, batch: UpstreamBatch, code: int, *, maybe_stored: bool) -> None:
        failed(self, batch, code, maybe_stored=False)

    return broken


def _certain_where_refused(answered: Any) -> Any:
    def broken(self: Stream, batch: UpstreamBatch, code: int, *rest: Any, **named: Any) -> Any:
        batch.maybe_stored = batch.maybe_stored and (code == 0 or BY_CODE[code].retriable)
        return answered(self, batch, code, *rest, **named)

    return broken


def _the_same(described: Any) -> Any:
    def broken(self: Stream, topic_id: UUID) -> Any:
        self.topic_id = topic_id
        return []

    return broken


def _renumbered_each_time(mend: Any) -> Any:
    def broken(self: Stream) -> Any:
        settled = mend(self)
        return settled + self.start_over()

    return broken


def _not_withdrawn(withdraw: Any) -> Any:
    return lambda self: []


def _swapped(halves: Any) -> Any:
    def broken(self: Part) -> tuple[Part, Part]:
        first, second = halves(self)
        return second, first

    return broken


_mutation("what follows a refused batch gets its sequence", (Stream, "start_over", _numbered_from_the_refused_on))
_mutation("what follows a refused batch leaves a gap", (Stream, "start_over", _goes_on_behind_the_refused))


def _only_of_a_first_answer(lower: Any) -> Any:
    def broken(self: Stream, batch: UpstreamBatch) -> None:
        if not batch.maybe_stored:
            lower(self, batch)

    return broken


_mutation("what was too large is tried again each time", (Stream, "_lower_most", _nothing))
_mutation(
    "what was too large after a lost answer is tried again each time", (Stream, "_lower_most", _only_of_a_first_answer)
)
_mutation("six batches are unsettled", (streams, "UNSETTLED", lambda _: 6), (connections, "REQUESTS", lambda _: 6))
_mutation("the first batch of an epoch does not travel alone", (Stream, "_begin", _known_from_the_start))
_mutation("a long rest changes nothing", (Stream, "rested", _nothing))
_mutation("what may be stored counts as not stored", (Stream, "_failed", _certain))
_mutation("what is sent again is renumbered", (Stream, "mend", _renumbered_each_time))
_mutation(
    "NOT_LEADER_OR_FOLLOWER says that nothing is stored",
    (streams, "SURELY_NOT_STORED", lambda codes: codes | {NotLeaderOrFollower.code}),
)
_mutation(
    "a refusal of the content says that nothing was stored before",
    (Stream, "answered", _certain_where_refused),
)
_mutation("a topic that is created again is taken for the one before it", (Stream, "described", _the_same))
_mutation("the halves of a part change places", (Part, "halves", _swapped))
_mutation("what follows a refused batch of its key is not withdrawn", (Stream, "withdraw", _not_withdrawn))


def _as_any(crc: Any) -> Any:
    return lambda data: b""


def _never_stored(may_store: Any) -> Any:
    return lambda self, sender: False


def _waits(puts_off: Any) -> Any:
    return property(lambda self: False)


def _nothing_wrong(found: Any) -> Any:
    return lambda *given: []


_mutation("records without a key go to a compacted topic", (judging, "_without_key", _nothing_wrong))
_mutation("what is too large goes after the parts before it", (judging, "_too_large", _nothing_wrong))
_mutation("what upstream refuses for now waits in the proxy", (Stream, "puts_off", _waits))
_mutation("a sequence that was refused for now is given to other records", (streams, "_crc", _as_any))
_mutation("what may be stored goes back to its client", (Stream, "may_store", _never_stored))


def _for_all_who_wait(identified: Any) -> Any:
    def broken(self: ProducerIdRequests, answer: Any, now: float) -> None:
        waiting = list(self._waiting.values())[1:]
        identified(self, answer, now)
        for then in waiting:
            then((answer.producer_id, answer.producer_epoch), now)

    return broken


def _but_none(forget: Any) -> Any:
    return lambda self, named, now: forget(self, frozenset(), now)


def _never(wrote: Any) -> Any:
    return lambda self, producer, host: False


def _as_the_proxy(connect: Any) -> Any:
    def broken(self: Any, *given: Any, **named: Any) -> Any:
        return connect(self, *given, **(named | {"principal": None}))

    return broken


def _of_nobody(restored: Any) -> Any:
    return lambda self, *given, **named: restored(self, *given, **(named | {"principal": None}))


def _to_anybody(to: Any) -> Any:
    def broken(self: Lent, client: int, principal: Any = None) -> UpstreamProducer:
        idle = next((each for each in self._free if each.idle), None)
        found: UpstreamProducer = to(self, client, principal if client in self._of or idle is None else idle.principal)
        return found

    return broken


_mutation("rewritten records come as the proxy", (link.UpstreamLinks, "connect", _as_the_proxy))
_mutation("a restart forgets to whom a producer belongs", (Admission, "restored", _of_nobody))
_mutation("a lent producer goes to a client of another user", (Lent, "to", _to_anybody))
_mutation("producer ids that nobody writes with push out others", (ClientProducers, "wrote", _never))
_mutation("all clients are one for upstream", (UpstreamProducer, "serve", _nothing))
_mutation(
    "clients that wait for a producer id together get the same", (ProducerIdRequests, "_answered", _for_all_who_wait)
)
_mutation(
    "brokers that upstream names are forgotten",
    (UpstreamCluster, "_forget_all_but", _but_none),
    (cluster, "_UNNAMED", lambda _: 0.0),
)


# -- answers to clients ------------------------------------------------------------------------------------------------


def _alone(failed: Any) -> Any:
    def broken(self: Window[Any], batch: Any, result: Any) -> list[Any]:
        batch.refused = True
        return [batch]

    return broken


def _not_known(stored_already: Any) -> Any:
    return lambda self, fingerprints: set()


def _forgotten(judged: Any) -> Any:
    def broken(self: Window[Any], batch: Any) -> ClientResult:
        outcome: ClientResult = judged(self, batch)
        self.done = []
        return outcome

    return broken


def _without_time(outcome: Any) -> Any:
    return lambda self: replace(outcome(self), append_time=-1)


_mutation("a client gets the time of its record where brokers have set another", (Numbered, "outcome", _without_time))


def _told_at_once(over: Any) -> Any:
    def broken(self: Window[Any]) -> Any:
        for batch in self.under_way:
            if batch.begun and batch.open_parts == 0:
                self.under_way.remove(batch)
                return batch
        return None

    return broken


def _with_the_first_part(settled: Any) -> Any:
    def broken(self: ClientBatch, part: Any, result: Any, now: float) -> None:
        if self.window is None or result.error_code:
            settled(self, part, result, now)
        elif self.open_parts > 0:
            self.open_parts = 1
            settled(self, part, result, now)

    return broken


def _success_all_the_same(fail: Any) -> Any:
    def broken(self: Rewriter, batch: ClientBatch, result: Any, now: float) -> None:
        if batch.window is None or result.unknown:
            fail(self, batch, result, now)

    return broken


def _as_upstream_gave_it(replaced: Any) -> Any:
    return lambda self, message, listener: message


_mutation("Metadata names the addresses of upstream", (UpstreamCluster, "pointing_here", _as_upstream_gave_it))
_mutation("what follows a refused batch is told as stored", (Window, "failed", _alone))
_mutation("remembered records of refused batches do not count as memory", (RefusedMemory, "changed", _nothing))
_mutation("records that are stored of a refused batch are not known", (Window, "stored_already", _not_known))
_mutation("a retry of what is stored in part is not known if it has new times", (RememberedRecords, "number", _nothing))
_mutation("a retry of what is stored is not known", (Window, "judged", _forgotten))
_mutation(
    "a late batch that is stored is not known in the next epoch",
    (ClientBatch, "is_told", lambda _: property(lambda self: True)),
)
_mutation("batches are told of as they come", (Window, "pop_settled", _told_at_once))
_mutation("a batch is told as stored with its first part", (ClientBatch, "settled", _with_the_first_part))
_mutation("a refusal is told as a success", (Rewriter, "_fail", _success_all_the_same))


# -- clients that leave ------------------------------------------------------------------------------------------------


def _drops_what_waits(_: Any) -> Any:
    def broken(self: ClientLink, now: float) -> None:
        self._client.left(lambda: None)
        self._client.closed = True
        self._take_waiting()
        if self._link is not None:
            self._link.finish(now)

    return broken


def _closed_at_once(_: Any) -> Any:
    return lambda self, now: self.close()


_mutation("requests wait for upstream in vain whose client has left", (ClientLink, "left", _drops_what_waits))
_mutation("upstream is hung up on before it has taken everything", (UpstreamLink, "finish", _closed_at_once))


# -- mode `reject` -----------------------------------------------------------------------------------------------------


def _by_the_first_record(judge: Any) -> Any:
    def broken(self: Rejecter, judged: Any, found: Any, origin: Any) -> Any:
        refusal = judge(self, judged, found, origin)
        rows = [row for row, _, _ in getattr(found, "examples", ())]
        return refusal if not rows or rows[0] == 0 else None

    return broken


def _the_next(error: Any) -> Any:
    def broken(*, batch_index: int, **rest: Any) -> Any:
        return error(batch_index=batch_index + 1, **rest)

    return broken


def _whole(without: Any) -> Any:
    def broken(self: ProduceHandler, message: Any, *rest: Any) -> Any:
        without(self, message, *rest)
        return message

    return broken


def _at_once(must_go_first: Any) -> Any:
    return property(lambda self: False)


def _forgotten_at_once(original: Any) -> Any:
    def broken(self: ProduceHandler, *given: Any, **named: Any) -> None:
        original(self, *given, **named)
        self._unsettled._numbers.clear()

    return broken


_mutation("records overtake others when the rule of their topic changes", (Unsettled, "must_go_first", _at_once))
_mutation(
    "records that pass overtake others that are rewritten when a rule changes",
    (ProduceHandler, "_rewrite", _forgotten_at_once),
)
_mutation(
    "records that are rewritten overtake others that pass when a rule changes",
    (ProduceHandler, "_forward", _forgotten_at_once),
)
_mutation("the first key decides whether a batch passes", (Rejecter, "_judge", _by_the_first_record))
_mutation(
    "a refused batch names the records behind the misplaced ones",
    (pending_produce, "BatchIndexAndErrorMessage", _the_next),
)
_mutation("a refused record set is passed all the same", (ProduceHandler, "_without", _whole))
_mutation("requests overtake one whose records are being read", (RequestLine, "hold", _nothing))


# -- mode `fan-out` ----------------------------------------------------------------------------------------------------


def _all_partitions(_: Any) -> Any:
    return lambda topics, fans_out: tuple(topics)


def _where_the_client_put_them(_: Any) -> Any:
    return lambda self, partition, checksum: partition


def _without_its_mode(restored: Any) -> Any:
    def broken(self: Rewriter, producer: Any, place: Any, window: Any, noted: Any, *, begun: bool) -> Any:
        return restored(self, producer, place, window, replace(noted, fans_out=False), begun=begun)

    return broken


def _unread(_: Any) -> Any:
    return lambda self, key: False


_mutation("Metadata names all partitions of a topic in mode fan-out", (address_handler, "narrowed", _all_partitions))
_mutation(
    "records without a key stay in partition 0 in mode fan-out", (Routes, "of_keyless", _where_the_client_put_them)
)
_mutation("a restart leads records without a key elsewhere", (Rewriter, "restored", _without_its_mode))
_mutation("a topic in mode fan-out can be read", (OnePartitionHandler, "handles", _unread))


# -- mode `copy` -------------------------------------------------------------------------------------------------------


def _is_copy(part: Part) -> bool:
    return part.destination.topic != cast("ClientBatch", part.sender).place.topic


def _without_copies(begin: Any) -> Any:
    def broken(self: ClientBatch, now: float) -> list[Part]:
        parts: list[Part] = begin(self, now)
        self.open_parts = sum(not _is_copy(part) for part in parts)
        return parts

    return broken


def _but_those_of_copies(settled: Any) -> Any:
    def broken(self: ClientBatch, part: Part, result: Any, now: float) -> None:
        if not _is_copy(part):
            settled(self, part, result, now)

    return broken


def _success_of_copies(settled: Any) -> Any:
    def broken(self: ClientBatch, part: Part, result: Any, now: float) -> None:
        settled(self, part, PartResult(0) if _is_copy(part) else result, now)

    return broken


def _at_its_copy(settled: Any) -> Any:
    def broken(self: ClientBatch, part: Part, result: Any, now: float) -> None:
        if _is_copy(part) and self.in_place and not result.error_code:
            self.offset = result.offset
        settled(self, part, result, now)

    return broken


def _but_copies(leave_out: Any) -> Any:
    return lambda self, places: leave_out(self, {place for place in places if place < self.count})


def _with_their_records(mark: Any) -> Any:
    return lambda self, topic: 0


def _with_all(gone_with: Any) -> Any:
    return lambda self, topics: gone_with(self, self.topics)


def _newest_copy_first(put: Any) -> Any:
    def broken(self: Delivery, producer: UpstreamProducer, part: Part, now: float) -> None:
        put(self, producer, part, now)
        stream = producer.streams[part.destination]
        if _is_copy(part) and len(stream.waiting) > 1 and stream.waiting[-1] is part:
            stream.waiting.pop()
            stream.waiting.insert(len(stream.waiting) - 1, part)

    return broken


def _where_their_records_go(_: Any) -> Any:
    def broken(records: Any, place: Destination, checksum: int, routes: Routes, copies: Any) -> Any:
        own = routes.split(records, routes.of_keyless(place.partition, checksum))
        return {
            Destination(topic, partition % there.partitions if topic != place.topic else partition): part
            for topic, there in ((place.topic, routes), *copies)
            for partition, part in own.items()
        }

    return broken


def _as_the_first_rules_say(copies: Any) -> Any:
    def broken(self: RoutedTopics, topic: str) -> Any:
        found = copies(self, topic)
        if found:
            self.first_copies = found  # type: ignore[attr-defined]
        return getattr(self, "first_copies", found) if topic == "a" else found

    return broken


def _where_clients_see_them(original: Any) -> Any:
    def broken(records: Any, place: Destination, checksum: int, routes: Routes, copies: Any) -> Any:
        hidden = {topic for topic, there in copies if there.fans_out}
        found = original(records, place, checksum, routes, [each for each in copies if each[0] not in hidden])
        return found | {Destination(topic, 0): records for topic in hidden}

    return broken


_mutation("copies are made after the rule has changed", (RoutedTopics, "copies", _as_the_first_rules_say))
_mutation("copies go to the one partition that clients see", (batches, "divided", _where_clients_see_them))
_mutation(
    "a copy is acknowledged before it is stored",
    (ClientBatch, "begin", _without_copies),
    (ClientBatch, "settled", _but_those_of_copies),
)
_mutation("the failure of a copy is told as a success", (ClientBatch, "settled", _success_of_copies))
_mutation("a batch is told at the offset of its copy", (ClientBatch, "settled", _at_its_copy))
_mutation("a retry stores a copy twice", (ClientBatch, "leave_out", _but_copies))
_mutation("the copy of a stored record counts as stored", (ClientBatch, "_mark", _with_their_records))
_mutation("what is stored is forgotten if a copy is created again", (ClientBatch, "gone_with", _with_all))
_mutation("a copy overtakes an earlier one of its key", (Delivery, "put", _newest_copy_first))
_mutation("copies go to the partitions of their records", (batches, "divided", _where_their_records_go))


# -- frames that are passed on in pieces -------------------------------------------------------------------------------


def _with_the_proxys_id(_: Any) -> Any:
    return lambda self, request, piece, left, now: self.answer(
        request.ticket, *((piece[0], bytes(4), *piece[2:]) if len(piece) > 1 else piece), left=left
    )


def _but_the_last(_: Any) -> Any:
    def broken(self: UpstreamLink, piece: Any, deadline: float) -> None:
        assert self._sending is not None
        left, expected = self._sending
        left -= len(piece)
        self._sending = (left, expected) if left else None
        if left:
            self._write(piece, left=left)
        else:
            self._send_held()

    return broken


def _kept_in_silence(end: Any) -> Any:
    def broken(self: UpstreamLink, error: Any, now: float) -> None:
        if self.passing and self._expected:
            self._expected.popleft()
        end(self, error, now)

    return broken


_mutation("pieces of a response are given to another request", (ClientConnection, "stream_back", _with_the_proxys_id))
_mutation("a client waits in vain for the rest of a response", (UpstreamLink, "end", _kept_in_silence))
_mutation("a response that stops has no deadline", (link, "STALLED", lambda _: math.inf))
_mutation("a connection waits behind the half of a request", (UpstreamLink, "break_off", _nothing))
_mutation("the last piece of a request is not sent", (UpstreamLink, "go_on", _but_the_last))


# -- producers at work -------------------------------------------------------------------------------------------------


def _any_number(_: Any) -> Any:
    return lambda self, producer, host: None


def _with_the_answer(answer_late: Any) -> Any:
    def broken(self: ClientBatch, outcome: ClientResult, now: float) -> None:
        answer_late(self, outcome, now)
        if not self.waiting and isinstance(self.owner, Rewriter):
            batches = self.owner._at_work._batches.get(self.origin.host)
            if batches is not None:
                batches.pop(self.producer, None)

    return broken


def _if_counted(settled: Any) -> Any:
    def broken(self: ProducersAtWork, producer: UpstreamProducer, host: str) -> None:
        if producer in self._batches.get(host, {}):
            settled(self, producer, host)

    return broken


_mutation("a host has any number of producers at work", (ProducersAtWork, "check", _any_number))
_mutation("a producer stays at work for ever", (ProducersAtWork, "settled", _nothing))
_mutation("connections of clients that have left count", (ProducersAtWork, "left", _nothing))
_mutation(
    "a producer is at work only until its client is answered",
    (ClientBatch, "answer_late", _with_the_answer),
    (ProducersAtWork, "settled", _if_counted),
)


# -- whose brokers -----------------------------------------------------------------------------------------------------


def _anyone(_: Any) -> Any:
    return lambda self, link, address, now: link.connect(now)


_mutation("the brokers of another cluster are taken for upstream's", (Recognition, "admit", _anyone))


# -- threads -----------------------------------------------------------------------------------------------------------


def _passed(due: Any) -> Any:
    def broken(self: Window[Any]) -> Any:
        for batch in self.under_way:
            if batch.refused or batch.epoch != self.under_way[0].epoch:
                return None
            if not batch.begun and not batch.opening:
                return batch
        return None

    return broken


_mutation("a batch passes one that is being opened", (Window, "due", _passed))


# -- the state across restarts -----------------------------------------------------------------------------------------


def _behind(poll: Any) -> Any:
    def broken(self: ProxyCore, now: float) -> list[Any]:
        actions: list[Any] = poll(self, now)
        return sorted(actions, key=lambda each: isinstance(each, Store))

    return broken


def _not_sent(resume: Any) -> Any:
    def broken(self: Stream, next_sequence: int, last_offset: int, sent: Any, waiting: Any, *, lost: bool) -> None:
        parts = [part for batch in sent if not batch.stored for part in batch.parts]
        resume(self, next_sequence, last_offset, (), [*parts, *waiting], lost=lost)

    return broken


def _copied_from_nobody(begin_copying: Any) -> Any:
    def broken(self: Journal) -> None:
        begin_copying(self)
        if self._outage.lasts:
            self._copying = iter(())

    return broken


def _whole_at_once(take: Any) -> Any:
    def broken(self: Journal) -> Any:
        rebuilt, stored = self._outage.lasts, take(self)
        return replace(stored, obsolete=stored.segment) if stored and rebuilt else stored

    return broken


_mutation("a journal that was abandoned gets new changes only", (Journal, "_begin_copying", _copied_from_nobody))
_mutation("an abandoned journal is trusted before it is whole", (Journal, "_take", _whole_at_once))
_mutation("the journal is written behind what it is about", (ProxyCore, "poll", _behind))
_mutation("what was numbered before a restart is renumbered", (Stream, "resume", _not_sent))
_mutation("a window is not noted", (Journal, "window", _nothing))
_mutation("a stream is not noted", (Journal, "stream", _nothing))
_mutation("records of refused batches are forgotten by a restart", (Window, "refused_records", lambda _: _no_records))


# -- mutations by an engineer who had not seen these tests -------------------------------------------------------------


def _counted_from_the_last(restored: Any) -> Any:
    def broken(self: Rewriter, producer: Any, place: Any, window: Any, noted: Any, *rest: Any, begun: bool) -> Any:
        batch = restored(self, producer, place, window, noted, *rest, begun=begun)
        self._numbers = count(noted.number + 1)
        return batch

    return broken


def _without_its_id(stream: Any) -> Any:
    def broken(*given: Any) -> Stream:
        made: Stream = stream(*given)
        made.topic_id = NO_UUID
        return made

    return broken


def _counted_from_the_half(halves: Any) -> Any:
    def broken(self: Part) -> tuple[Part, Part]:
        first, second = halves(self)
        first.first -= self.first
        second.first -= self.first
        return first, second

    return broken


def _keys_and_values(batch: ClientBatch) -> list[Fingerprint]:
    contents = [(t, bytes(each.key or b""), bytes(each.value or b"")) for t in batch.topics for each in batch.records]
    return [Fingerprint(each, ~each) for each in map(hash, contents)]


def _known_by_key_and_value(fingerprints: Any) -> Any:
    def broken(self: ClientBatch) -> Any:
        return zip(_keys_and_values(self), [stored for _, stored in fingerprints(self)], strict=True)

    return broken


def _sifted_by_key_and_value(sift: Any) -> Any:
    def broken(self: Rewriter, batch: ClientBatch) -> None:
        if batch.window is not None and batch.window.remembers:
            batch.leave_out(batch.window.stored_already(_keys_and_values(batch)))
        else:
            sift(self, batch)

    return broken


def _at_its_last_part(settled: Any) -> Any:
    def broken(self: ClientBatch, part: Any, result: Any, now: float) -> None:
        if self.in_place and not result.error_code:
            self.offset = result.offset
        settled(self, part, result, now)

    return broken


_mutation(
    "batches get numbers again that others have since before a restart",
    (Rewriter, "restored", _counted_from_the_last),
)
_mutation("a restart forgets which topic it was", (journal, "_stream", _without_its_id))
_mutation(
    "records that differ in a header only are taken for one another",
    (ClientBatch, "fingerprints", _known_by_key_and_value),
    (Rewriter, "_sift", _sifted_by_key_and_value),
)
_mutation(
    "a batch that was sent in halves is told at the offset of one",
    (ClientBatch, "settled", _at_its_last_part),
)
_mutation("where keys go is forgotten by a restart", (RoutedTopics, "pin", _nothing))
_mutation("halves of a half are noted as halves of the whole", (Part, "halves", _counted_from_the_half))
