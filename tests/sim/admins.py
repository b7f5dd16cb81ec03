"""A user who creates and deletes topics and cancels most calls. A cancelled call must not send a request any more."""

from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any

from ottla.codec.apis.create_topics import CreateTopicsRequest
from ottla.codec.apis.delete_topics import DeleteTopicsRequest
from ottla.codec.apis.metadata import MetadataRequest
from ottla.errors import OttlaError, TopicAlreadyExists
from ottla.sdk import calls
from ottla.sdk.connection.exchange import Exchange
from ottla.sdk.core import ClientCore
from ottla.sdk.events import GENERAL, Node
from ottla.sdk.outcome import Outcome
from ottla.sdk.steps import Steps, settled
from tests.sim.network import Link
from tests.sim.users import Cancelled, Process, Script, Violation


@dataclass(slots=True, eq=False)
class Administrating:
    """Calls create_topic and delete_topic, each for a topic of its own, and cancels most of these calls."""

    process: Process
    chance: Random
    features: Counter[str]
    seconds: float
    cancelled: set[str] = field(default_factory=set)
    """Topics of cancelled calls: no request may create, delete or look up these any more."""

    def script(self) -> Script:
        yield from self.process.connect()
        self._watch(self.process.core)
        for number in range(4):
            yield self.chance.uniform(0.0, self.seconds / 2)
            name = f"x{number}"
            if self.chance.random() < 0.5:
                yield from self._call(name, self._create(name), "create_topic")
            else:
                yield from self._call(name, self._delete(name), "delete_topic")
        yield 5.0
        self.process.close()

    def _create(self, name: str) -> Steps[object]:
        core = self.process.core
        return (yield from settled(calls.create_topic(core, name, 1, 1, {}, core.now)))

    def _delete(self, name: str) -> Steps[None]:
        core = self.process.core
        yield from settled(calls.delete_topic(core, name, core.now))

    def _call(self, name: str, steps: Steps[Any], what: str) -> Script:
        enough: Outcome[None] = Outcome()
        if self.chance.random() < 0.8:
            within = self.chance.choice((0.0, 0.001, 0.01, 0.3))
            self.process.clock.later(within, lambda: enough.succeed(None))
        try:
            yield from self.process.perform(steps, what, within=self.process.core.options.api_timeout, cancel=enough)
        except Cancelled:
            self.features[f"{what} is cancelled"] += 1
            self.cancelled.add(name)
        except TopicAlreadyExists as error:
            raise Violation(
                "create_topic fails because the topic exists, and no other client creates it", name
            ) from error
        except OttlaError as error:
            self.process.history.add("·", self.process.name, f"{what}: {error}")

    def _watch(self, core: ClientCore) -> None:
        """From now on, check the topics of each request for metadata."""
        submit = core.submit

        def submitted(node: Node, exchange: Exchange, now: float, channel: str = GENERAL) -> None:
            if isinstance(exchange.message, MetadataRequest):
                asked = self.cancelled & {each.name or "" for each in exchange.message.topics or ()}
                if asked:
                    raise Violation("a client asks for metadata that no call needs", ", ".join(sorted(asked)))
            submit(node, exchange, now, channel)

        core.submit = submitted  # type: ignore[method-assign]

    def sent(self, link: Link, message: Any) -> None:
        """The process sends a request. While ``link.writing``, it was handed over earlier, and is not checked."""
        if link.client is not self.process or link.writing:
            return
        names: list[str] = []
        if isinstance(message, CreateTopicsRequest):
            names = [each.name for each in message.topics]
        elif isinstance(message, DeleteTopicsRequest):
            names = [*message.topic_names, *(each.name or "" for each in message.topics)]
        for name in names:
            if name in self.cancelled:
                raise Violation("a cancelled call sends its request", f"{type(message).__name__} of {name}")
