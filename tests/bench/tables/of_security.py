"""Tables of what security costs: TLS beside Apache Kafka's, and 1,000 ACLs beside none."""

import contextlib
import dataclasses
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import ottla.sync
from ottla import AclBinding
from tests.bench.brokers import crowd
from tests.bench.brokers.server import Brokerlite, Server
from tests.bench.clients import canned
from tests.bench.clients.task import Figures
from tests.bench.proxy.run import proxy
from tests.bench.tables.of_brokers import KAFKA, OURS, PARTITIONS, produced_and_consumed, ratios
from tests.bench.tables.of_clients import SIZES
from tests.bench.tables.of_proxy import CASES
from tests.bench.tables.stage import Stage, contest, run, running
from tests.bench.tables.table import Column, Found, Line, Table

FREE, BOUND = "without ACLs", "with 1,000 ACLs"
RULES = 1000
_PREFIXED = 10
"""One in so many ACLs is for another user and the prefix of our topic, so the server has to look at it."""
_AUTHORIZING = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    # Otherwise nobody could create the first ACL on a listener without users. Only topics get ACLs.
    "allow.everyone.if.no.acl.found": "true",
}


def _acls() -> list[AclBinding]:
    """ACLs of which the last one allows all that is measured."""
    others = [
        AclBinding(f"User:service-{number}", "Write", "Topic", canned.PREFIX, prefixed=True)
        if number % _PREFIXED == 0
        else AclBinding(f"User:service-{number}", "Write", "Topic", f"orders-{number}")
        for number in range(RULES - 1)
    ]
    return [*others, AclBinding("User:ANONYMOUS", "All", "Topic", canned.PREFIX, prefixed=True)]


def _over_tls(stage: Stage, *, size: int) -> Found:
    """Both brokers get a topic to write to, and one with records to read."""
    with contextlib.ExitStack() as stack:
        works: dict[str, Callable[[], Figures]] = {}
        for name, server in ((OURS, stage.brokerlite), (KAFKA, stage.kafka)):
            tasks = {
                way: dataclasses.replace(
                    stack.enter_context(stage.topic(server, PARTITIONS, size, filled=way == "consume")),
                    **server.secured,  # type: ignore[arg-type] # mypy takes any value for any argument
                )
                for way in ("produce", "consume")
            }
            # The JVM has compiled all but its TLS.
            for way, task in tasks.items():
                warm = dataclasses.replace(task, client="confluent", way=way)
                stage.once(
                    f"{name}, {way}, TLS", partial(run, dataclasses.replace(warm, seconds=stage.amounts.jvm / 6))
                )
            works[name] = partial(produced_and_consumed, server, "confluent", tasks)
        return contest(works, stage.amounts.few)


@contextlib.contextmanager
def _brokers() -> Iterator[dict[str, Server]]:
    with running(Brokerlite()) as free, running(Brokerlite(_AUTHORIZING)) as bound:
        with ottla.sync.connect(bound.bootstrap) as client:
            client.create_acls(_acls())
        yield {FREE: free, BOUND: bound}


def _batches(stage: Stage) -> Found:
    with _brokers() as brokers, contextlib.ExitStack() as stack:
        works: dict[str, Callable[[], Figures]] = {}
        for name, server in brokers.items():
            tasks = {"produce": stack.enter_context(stage.topic(server, PARTITIONS, 1000))}
            works[name] = partial(produced_and_consumed, server, "confluent", tasks)
        found = contest(works, stage.amounts.few)
    return _renamed(found, rate="produce_rate", cpu="produce_broker_ms")


def _requests(stage: Stage) -> Found:
    def measure(server: Server) -> Figures:
        with stage.topic(server, PARTITIONS, 1000) as task:
            return crowd.run(stage.crowd(server, task, busy=50, idle=0, seconds=task.seconds, warm_up=task.warm_up))

    with _brokers() as brokers:
        found = contest({name: partial(measure, server) for name, server in brokers.items()}, stage.amounts.few)
    return _renamed(found, rate="rate", cpu="broker_us")


def _through_the_proxy(stage: Stage, *, case: str) -> Found:
    with (
        tempfile.TemporaryDirectory(prefix="ottla-bench-") as home,
        canned.running(topics=1, partitions=PARTITIONS) as where,
        proxy(where, Path(home)) as free,
        proxy(where, Path(home), "--config", str(_rules(Path(home)))) as bound,
    ):
        works = {
            name: partial(CASES[case].measure, *at, stage.amounts.seconds)
            for name, at in {FREE: free, BOUND: bound}.items()
        }
        return _renamed(contest(works, stage.amounts.few), rate="rate", cpu="cpu_us")


def _rules(home: Path) -> Path:
    """A configuration of the proxy with the ACLs."""
    config = home / "proxy.toml"
    tables = (
        f'[[acls]]\nprincipal = "{each.principal}"\nallow = ["{each.operation}"]\ntopic = "{each.name}"\n'
        f'pattern = "{"prefixed" if each.prefixed else "literal"}"\n'
        for each in _acls()
    )
    config.write_text("allow-if-no-acl = true\n" + "".join(tables))
    return config


def _renamed(found: Found, **names: str) -> Found:
    return {
        who: rounds if isinstance(rounds, str) else [{new: each[old] for new, old in names.items()} for each in rounds]
        for who, rounds in found.items()
    }


TABLES = (
    Table(
        name="tls",
        heads=("values",),
        columns=(*ratios("produce"), *ratios("consume")),
        lines=tuple(Line((SIZES[size],), partial(_over_tls, size=size)) for size in (100, 1000, 10_000)),
    ),
    Table(
        name="acls",
        heads=("server", "requests"),
        columns=(Column("records/s", "rate", BOUND, FREE), Column("processor time", "cpu", BOUND, FREE)),
        lines=(
            Line(("brokerlite", "1 KB, from confluent-kafka"), _batches),
            Line(("brokerlite", "one record, produced and read"), _requests),
            Line(
                ("proxy", "a batch of 16 KB"),
                partial(_through_the_proxy, case="produce, batches of 16 KB, one in a request, 1,000 B"),
            ),
            Line(("proxy", "one record"), partial(_through_the_proxy, case="latency, one record, 1,000 B")),
        ),
    ),
)
