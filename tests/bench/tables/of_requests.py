"""The table of the requests that members of a consumer group send in a minute.

One round for each line, because counts hardly depend on the load of the machine.
"""

from functools import partial

from tests.bench.requests.measure import Command, Load, java, measured, ours, serving
from tests.bench.tables.stage import Stage
from tests.bench.tables.table import EACH, Column, Found, Line, Table

MEMBERS = 100
WINDOW = 2.0
"""The multiple of the seconds of other measurements: heartbeats are 5 s apart."""
CONTESTANTS: dict[str, Command] = {
    "ottla": ours,
    "ottla, fetch_max_wait=1.0": partial(ours, wait=1.0),
    "Java, poll(100 ms)": partial(java, poll=0.1),
    "Java, poll(1 s)": partial(java, poll=1.0),
}
NAMED = ("Fetch", "ConsumerGroupHeartbeat", "OffsetCommit")


def _counted(stage: Stage, *, load: Load) -> Found:
    amounts = stage.amounts
    members = min(MEMBERS, amounts.most)
    with serving(load, members) as served:
        found = measured(served, CONTESTANTS, members, settle=amounts.settle, seconds=amounts.seconds * WINDOW)
    return {name: [dict.fromkeys(NAMED, 0.0) | each] for name, each in found.items()}


TABLES = (
    Table(
        name="requests",
        heads=("topic", "client"),
        columns=(
            Column("all requests", "requests", EACH, digits=1),
            *(Column(name, name, EACH, digits=1) for name in NAMED),
        ),
        lines=(
            Line(("idle",), partial(_counted, load=Load())),
            Line(("a record a second for each member",), partial(_counted, load=Load(pace=MEMBERS))),
            Line(("idle, on three nodes",), partial(_counted, load=Load(nodes=3, partitions=3))),
        ),
    ),
)
