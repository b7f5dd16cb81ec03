"""A `ClientCore` and its connections in virtual time, without sockets.

Rules:
- A connection keeps the order of its bytes. A node answers its requests one by one, as Kafka does.
- Delays are the same for all bytes, and nothing breaks; a subclass may change both.
"""

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ottla.codec import frames
from ottla.sdk.core import ClientCore
from ottla.sdk.events import Close, Connect, Connected, Event, Key, Lost, Received, Run, RunInThread, Send, Written
from ottla.sdk.options import Options
from ottla.sdk.outcome import Outcome
from tests.sim.clock import Clock
from tests.sim.network import PORT


@dataclass(eq=False)
class Link:
    """One connection.

    Attributes:
        peer: the other end, for subclasses.
        sent_clear: when the last bytes for the node arrive.
        clear: when the last bytes for the client arrive.
    """

    address: tuple[str, int]
    peer: Any = None
    reader: frames.FrameReader = field(default_factory=frames.FrameReader)
    waiting: deque[bytes] = field(default_factory=deque)
    serving: bool = False
    sent_clear: float = 0.0
    clear: float = 0.0

    @property
    def node(self) -> int:
        return self.address[1] - PORT


class Wire:
    """Node ``n`` listens at `PORT` + ``n``; `serve` answers."""

    def __init__(self, options: Options | None = None, seed: int = 1, core: ClientCore | None = None) -> None:
        self.clock = Clock()
        self.core = core or ClientCore([("n1", PORT + 1)], options or Options(), random.Random(seed))
        self.links: dict[Key, Link] = {}

    @property
    def now(self) -> float:
        return self.clock.now

    @now.setter
    def now(self, now: float) -> None:
        self.clock.now = now

    # -- for subclasses ----------------------------------------------------------------------------------------------

    def delay(self) -> float:
        """Seconds for bytes in one direction."""
        return 0.001

    def accepts(self, link: Link) -> bool | None:
        """Whether the node accepts the connection; ``None``: neither accepts nor refuses."""
        return True

    def serve(self, key: Key, link: Link, frame: bytes, reply: Callable[[bytes | None], None]) -> None:
        """Answer a request by calling ``reply`` once."""
        raise NotImplementedError

    # -- time --------------------------------------------------------------------------------------------------------

    def run(self, until: Outcome[Any] | Callable[[], bool] | float = 0.0, limit: float = 600.0) -> None:
        """Let time pass until the outcome is settled or the condition holds, or for so many seconds.

        It fails after ``limit`` seconds. Without arguments, it does everything that is due now.
        """
        end = self.now + limit
        if isinstance(until, float):
            until = self.now + until
            self.clock.at(until, lambda: None)

        def done() -> bool:
            if isinstance(until, float):
                return self.now >= until and (self.clock.due is None or self.clock.due > until)
            return until.done if isinstance(until, Outcome) else until()

        while True:
            self.act()
            if done():
                return
            due = [each for each in (self.core.deadline, self.clock.due) if each is not None]
            assert due, f"no event is left at {self.now:.3f} s"
            assert min(due) <= end, f"not done after {limit} s: {list(self.core.explain(self.now))}"
            if self.clock.due is not None and self.clock.due <= min(due):
                self.clock.step()
            else:
                self.now = max(self.now, min(due))

    def call(self, start: Callable[[float], Outcome[Any]], limit: float = 600.0) -> Any:
        outcome = start(self.now)
        self.run(outcome, limit)
        return outcome.result()

    # -- connections -------------------------------------------------------------------------------------------------

    def act(self) -> None:
        """Carry out the core's actions; users' calls run last."""
        runs: list[Callable[[], object]] = []
        while actions := self.core.poll(self.now):
            for action in actions:
                match action:
                    case Connect(key=key):
                        link = self.links[key] = Link((action.host, action.port))
                        self.clock.later(self.delay(), partial(self._open, key, link))
                    case Send(key=key, parts=parts) if key in self.links:
                        link = self.links[key]
                        link.sent_clear = max(self.now + self.delay(), link.sent_clear)
                        self.clock.at(link.sent_clear, partial(self._arrive, key, link, b"".join(parts)))
                        self.core.handle(Written(key), self.now)
                    case Close(key=key):
                        self.ended(key)
                    case Run(call=call):
                        runs.append(call)
                    case RunInThread(call=call):
                        self.clock.later(self.delay(), partial(self._work, call))
        for call in runs:
            call()

    def cut(self, key: Key | None = None, why: str = "the wire broke") -> None:
        """Break a connection, or all."""
        for each in list(self.links) if key is None else [key]:
            self.ended(each)
            self.core.handle(Lost(each, why), self.now)

    def ended(self, key: Key) -> None:
        """A connection has ended."""
        self.links.pop(key, None)

    def _open(self, key: Key, link: Link) -> None:
        self.connected(key, link)

    def connected(self, key: Key, link: Link) -> None:
        """The node gets the connection."""
        if self.links.get(key) is link and (accepts := self.accepts(link)) is not None:
            if not accepts:
                self.ended(key)
            self.core.handle(Connected(key) if accepts else Lost(key, "connection refused"), self.now)

    def _arrive(self, key: Key, link: Link, data: bytes) -> None:
        if self.links.get(key) is link:
            link.waiting.extend(map(bytes, link.reader.feed(data)))
            self._serve(key, link)

    def _serve(self, key: Key, link: Link) -> None:
        if self.links.get(key) is not link or link.serving or not link.waiting:
            return

        def reply(data: bytes | None) -> None:
            link.serving = False
            if data is not None:
                self.deliver(key, link, data)
            self.clock.later(0.0, partial(self._serve, key, link))

        link.serving = True
        self.serve(key, link, link.waiting.popleft(), reply)

    def deliver(self, key: Key, link: Link, data: bytes, after: float = 0.0) -> None:
        """Let bytes arrive at the client, in order."""
        link.clear = max(self.now + after + self.delay(), link.clear)
        self.clock.at(link.clear, partial(self._hear, key, link, Received(key, data)))

    def _work(self, call: Callable[[], Event]) -> None:
        self.core.handle(call(), self.now)

    def _hear(self, key: Key, link: Link, event: Event) -> None:
        if self.links.get(key) is link:
            self.core.handle(event, self.now)
