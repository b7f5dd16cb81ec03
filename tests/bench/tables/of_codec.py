"""The table of the codec beside other codecs, in one process, by processor time."""

import gc
from collections.abc import Callable
from functools import partial

from tests.bench import messages, records
from tests.bench.case import Case, per_second
from tests.bench.clients.task import Figures
from tests.bench.tables.stage import Stage, contest
from tests.bench.tables.table import Column, Found, Line, Table

PEER = "peer"
OURS = ("c", "python")
CASES: list[Case] = [*records.CASES, *messages.CASES]


def _measured(stage: Stage, *, case: Case, peer: str) -> Found:
    works = {**{name: case.ours[name] for name in OURS if name in case.ours}, PEER: case.theirs[peer]}
    for work in works.values():
        work()  # objects that the first use creates are not measured
    gc.collect()
    gc.freeze()  # otherwise collections would charge a way for all objects that this program has loaded
    try:
        ways = {name: partial(_figures, work) for name, work in works.items()}
        return contest(ways, stage.amounts.rounds * 3, flushed=False)
    finally:
        gc.unfreeze()


def _figures(work: Callable[[], int]) -> Figures:
    return {"rate": per_second(work)}


TABLES = (
    Table(
        name="codec",
        heads=("what", "against"),
        columns=tuple(Column(f"`{name}`", "rate", name, PEER) for name in OURS),
        lines=tuple(
            Line((case.name, peer), partial(_measured, case=case, peer=peer)) for case in CASES for peer in case.theirs
        ),
    ),
)
