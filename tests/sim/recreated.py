"""A reader that follows the recreated topic from log to log, with a fetcher."""

from dataclasses import dataclass, field

from ottla.codec.apis.list_offsets import EARLIEST
from ottla.errors import OttlaError
from ottla.sdk.consume.reading.fetcher import Fetcher, Time
from tests.sim.data import RECREATED, Place
from tests.sim.ledger import FALSE, GAP, Ledger, brief
from tests.sim.users import Process, Script, Violation, Wait


@dataclass(slots=True, eq=False)
class Following:
    """Reads each log of the topic from its beginning; without topic ids, maybe only from the end of the old log on.

    Records that are deleted before they are read are gone, so only the last logs have to be read to their end.
    """

    process: Process
    ledger: Ledger
    places: list[Place]
    ids: bool
    """Topics have ids."""
    fetcher: Fetcher | None = None
    _expected: dict[Place, int] = field(default_factory=dict)
    _got: set[tuple[Place, int, bytes]] = field(default_factory=set)

    def script(self) -> Script:
        process, clock = self.process, self.process.clock
        yield from process.connect()
        fetcher = self.fetcher = process.do(lambda: Fetcher(process.core, reset=Time(EARLIEST)))
        process.do(lambda: process.core.metadata.hold(RECREATED))
        process.do(lambda: fetcher.assign(dict.fromkeys(self.places, Time(EARLIEST)), clock.now))
        process.do(lambda: fetcher.let_go([RECREATED]))
        while True:
            try:
                fetched = process.do(fetcher.take)
            except OttlaError as error:
                raise Violation("a reader is stopped by a transient error", f"{process.name}: {error!r}") from error
            if fetched is None:
                yield Wait(process.do(fetcher.wait), "records")
                continue
            place = (fetched.topic, fetched.partition)
            for record in fetched.records():
                self._read(place, record.offset, record.value or b"")

    def _read(self, place: Place, offset: int, value: bytes) -> None:
        where = f"{self.process.name} at {place[0]}-{place[1]}"
        if value not in self.ledger.sent:
            raise Violation(FALSE, f"{where} gets {brief(value)} at offset {offset}, which no producer sent")
        expected = self._expected.get(place, 0)
        if offset not in (expected, 0):
            raise Violation(GAP, f"{where} gets offset {offset} where {expected} is next ({brief(value)})")
        self._expected[place] = offset + 1
        self._got.add((place, offset, value))

    def behind(self) -> str:
        """The partitions that are not read to their end, for people; empty if there are none."""
        left = [f"{place[0]}-{place[1]}" for place in self.places if not self._has_read(place)]
        return f"{self.process.name} has not read {', '.join(left)}" if left else ""

    def _has_read(self, place: Place) -> bool:
        log = self.ledger.cluster.logs.get(place)
        if log is None or self.fetcher is None or place not in self.fetcher.places:
            return False
        if self.fetcher.position(place) != log.high_watermark:
            return False
        return not self.ids or all((place, *each) in self._got for each in self.ledger.contents(place))
