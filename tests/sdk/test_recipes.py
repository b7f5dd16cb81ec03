"""The recipes of docs/recipes.md, each killed in the middle of a batch: the crash shows how they differ."""

import os
import re
import signal
import sqlite3
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import trio

import ottla
from ottla.codec.apis.leave_group import LeaveGroupRequest
from ottla.testing import Broker
from tests.brokerlite.peer import Peer
from tests.kafka import absent
from tests.patience import HUNG

RECIPES = re.findall(r"```python\n(.*?)```", (Path(__file__).parents[2] / "docs" / "recipes.md").read_text(), re.DOTALL)
AT_MOST_ONCE, AT_LEAST_ONCE, TRANSFORM, TRANSACTIONS, SQLITE, POSTGRES = RECIPES
COUNT = 300
"""Records that exist before the first run; one more follows after it."""
CRASH_AT = 150
"""The record at which the first run dies."""

SHOP = f'''
import os, signal
from pathlib import Path

DATABASE = os.environ.get("DATABASE", "")

def crash_at(value):
    """Die once in the middle of a batch, as abruptly as a machine."""
    if value == {CRASH_AT} and not Path("crashed").exists():
        Path("crashed").touch()
        os.kill(os.getpid(), signal.SIGKILL)

def handle(record):
    crash_at(int(record.value))
    with open("handled", "a") as file:
        file.write(f"{{int(record.value)}}\\n")

def invoice(record):
    crash_at(int(record.value))
    return record.value

def add(db, record):
    crash_at(int(record.value))
    mark = "?" if DATABASE == "" else "%s"
    db.execute(
        f"INSERT INTO sums VALUES ({{mark}}, 1) ON CONFLICT (customer) DO UPDATE SET total = sums.total + 1",
        (record.value.decode(),),
    )
'''


async def fill(broker: Broker, first: int, end: int) -> None:
    async with ottla.connect(broker.bootstrap) as client, client.producer() as producer:
        for i in range(first, end):
            await producer.send_soon("orders", b"%d" % i)


async def remove(broker: Broker, group: str) -> None:
    """Remove the dead member, which blocks its group.

    A session timeout so short that the test need not do it would also remove a member that stalls.
    """
    async with ottla.connect(broker.bootstrap) as client:
        (member,) = (await client.describe_group(group)).members
    host, _, port = broker.bootstrap.rpartition(":")
    with Peer(int(port), host) as peer:
        assert peer.ask(LeaveGroupRequest(group_id=group, member_id=member.member_id), 1).error_code == 0


async def run(recipe: str, folder: Path, broker: Broker, done: Callable[[], bool], database: str = "") -> None:
    """Run the recipe until it dies, then again until the last record is processed."""
    await fill(broker, 0, COUNT)
    (folder / "shop.py").write_text(SHOP)
    # Members of the classic protocol, so that `remove` can remove the dead one.
    recipe = recipe.replace("group=", "session_timeout=45.0, group=").replace("localhost:9092", broker.bootstrap)
    (folder / "service.py").write_text(recipe)
    environment = os.environ | {"DATABASE": database}
    command = [sys.executable, "service.py"]
    first = await trio.run_process(command, cwd=folder, env=environment, check=False)
    assert first.returncode == -signal.SIGKILL
    await remove(broker, re.findall(r'group="(.*?)"', recipe)[0])
    await fill(broker, COUNT, COUNT + 1)
    async with trio.open_nursery() as nursery:
        second = await nursery.start(partial(trio.run_process, command, cwd=folder, env=environment, check=False))
        with trio.fail_after(HUNG):
            while not done():
                assert second.returncode is None, "the second run died"
                await trio.sleep(0.05)
        nursery.cancel_scope.cancel()


def handled(folder: Path) -> Counter[int]:
    path = folder / "handled"
    return Counter(map(int, path.read_text().split()) if path.exists() else ())


@pytest.mark.slow
async def test_at_most_once_skips_what_was_in_hand_and_repeats_nothing(ottla_broker: Broker, tmp_path: Path) -> None:
    await run(AT_MOST_ONCE, tmp_path, ottla_broker, lambda: COUNT in handled(tmp_path))
    seen = handled(tmp_path)
    assert set(seen.values()) == {1} and CRASH_AT not in seen and CRASH_AT - 1 in seen


@pytest.mark.slow
async def test_at_least_once_repeats_what_was_in_hand_and_skips_nothing(ottla_broker: Broker, tmp_path: Path) -> None:
    await run(AT_LEAST_ONCE, tmp_path, ottla_broker, lambda: COUNT in handled(tmp_path))
    seen = handled(tmp_path)
    assert sorted(seen) == list(range(COUNT + 1)) and seen[CRASH_AT - 1] == 2


@pytest.mark.slow
@pytest.mark.parametrize("recipe", [TRANSFORM, TRANSACTIONS], ids=["transform", "transactions"])
async def test_exactly_once_from_topic_to_topic_is_just_that(ottla_broker: Broker, tmp_path: Path, recipe: str) -> None:
    ottla_broker.create_topic("invoices")
    async with ottla.connect(ottla_broker.bootstrap) as client:
        seen: Counter[int] = Counter()
        async with client.consumer("invoices", isolation="read_committed") as consumer, trio.open_nursery() as nursery:

            async def read() -> None:
                async for batch in consumer:
                    seen.update(int(record.value or b"") for record in batch)

            nursery.start_soon(read)
            await run(recipe, tmp_path, ottla_broker, lambda: COUNT in seen)
            nursery.cancel_scope.cancel()
        assert seen == dict.fromkeys(range(COUNT + 1), 1)


@pytest.mark.slow
async def test_exactly_once_in_sqlite_is_just_that(ottla_broker: Broker, tmp_path: Path) -> None:

    def sums() -> dict[str, int]:
        with sqlite3.connect(tmp_path / "shop.db") as db:
            return dict(db.execute("SELECT customer, total FROM sums").fetchall())

    await run(SQLITE, tmp_path, ottla_broker, lambda: len(sums()) == COUNT + 1)
    assert sums() == {str(i): 1 for i in range(COUNT + 1)}


@pytest.mark.slow
async def test_exactly_once_in_postgresql_is_just_that(
    ottla_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    try:
        import pgserver
    except ImportError:
        absent("pgserver has no wheel for this Python or machine")
    import psycopg

    server = pgserver.get_server(tmp_path / "postgres")  # type: ignore[attr-defined] # it ships no types
    try:
        with psycopg.connect(server.get_uri(), autocommit=True) as db:

            def sums() -> dict[str, int]:
                return dict(db.execute("SELECT customer, total FROM sums").fetchall())

            await run(POSTGRES, tmp_path, ottla_broker, lambda: len(sums()) == COUNT + 1, server.get_uri())
            assert sums() == {str(i): 1 for i in range(COUNT + 1)}
    finally:
        server.cleanup()
