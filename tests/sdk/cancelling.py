"""Scenarios, each with one call that can be cancelled anywhere, and the state that has to hold afterwards.

    @scenario(Client, "list_topics")
    async def list_topics(run: Run) -> None:
        async with run.connect() as client:
            await run.cancelling(lambda: client.list_topics())      # cancelled, or not
            assert await client.list_topics() == [...]              # the client is as good as before
            await run.rest(client)

A scenario holds whether its call was cancelled or not, and wherever it was suspended. A `Run` decides that, in a
virtual loop (`test_cancellations.py`) or in a real one (`test_cancellations_in_loops.py`).

`public` lists every awaitable method from the classes themselves, so that a new method needs a scenario.
"""

import contextlib
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol

from ottla.errors import ResourceNotFound, TopicAlreadyExists, UnknownTopicOrPartition
from ottla.sdk.acls import AclBinding, AclBindingFilter
from ottla.sdk.admin import ScramCredentialHash
from ottla.sdk.client import Client
from ottla.sdk.outcome import Outcome
from ottla.sdk.produce.append import SendSoon

GOODBYES = ("LeaveGroup", "ConsumerGroupHeartbeat")
"""Requests by which a member leaves its group, in the classic and in the new protocol."""
HOUSEKEEPING = frozenset({"ApiVersions", "Metadata", "FindCoordinator", "InitProducerId"})
"""Requests that any call may need to send first, to learn about the cluster or to get a producer id."""


@dataclass
class Fate:
    """The outcome of the call."""

    cancelled: bool = False
    value: Any = None
    error: BaseException | None = None

    @property
    def notes(self) -> str:
        return "\n".join(getattr(self.error, "__notes__", ()))


class Run(Protocol):
    """One way to run a scenario."""

    def connect(self, **options: Any) -> Client: ...

    async def topic(self, name: str, *batches: Sequence[bytes], partitions: int = 1, **configs: str) -> None:
        """Create a topic; each of its partitions gets these batches."""

    async def stored(self, name: str) -> list[bytes]:
        """The values in the topic's first partition."""

    async def cancelling(self, call: Callable[[], Awaitable[Any]]) -> Fate:
        """Make the call that may be cancelled; assert that no cancellation is swallowed."""

    def beside(self, work: Coroutine[Any, Any, Any]) -> Outcome[None]:
        """Start another task; the outcome is settled when it has ended."""

    def hold(self) -> None:
        """Let the broker hold back all answers until the seconds of `answer_in` have passed."""

    def answer_in(self, seconds: float) -> None: ...

    async def sleep(self, seconds: float) -> None: ...

    async def rest(self, client: Client) -> None:
        """Wait for the client's background work, then assert that the cancelled call left nothing behind."""


Play = Callable[[Run], Coroutine[Any, Any, None]]


@dataclass(frozen=True)
class Scenario:
    """Args: goes_on: requests that the call may still send after its cancellation."""

    of: type
    method: str
    play: Play
    goes_on: frozenset[str] = field(default_factory=frozenset)

    def __str__(self) -> str:
        return f"{self.of.__name__}.{self.method}: {self.play.__name__}"


SCENARIOS: list[Scenario] = []


def scenario(of: type, method: str, *goes_on: str) -> Callable[[Play], Play]:
    def add(play: Play) -> Play:
        SCENARIOS.append(Scenario(of, method, play, frozenset(goes_on)))
        return play

    return add


def public(of: type) -> set[str]:
    """The methods that users await, either directly or by a statement, for example ``async for``."""
    return {
        name
        for name, each in inspect.getmembers(of)
        if (inspect.iscoroutinefunction(inspect.unwrap(each)) or each is SendSoon.send_soon)
        and (not name.startswith("_") or name.startswith("__a"))
    }


# -- the block of a client ---------------------------------------------------------------------------------------------


@scenario(Client, "__aenter__")
async def connecting(run: Run) -> None:
    await run.topic("t")
    client = run.connect()
    fate = await run.cancelling(lambda: client.__aenter__())
    if not fate.cancelled:
        await client.__aexit__(None, None, None)
    async with run.connect() as other:
        assert await other.list_topics() == ["t"]
        await run.rest(other)


@scenario(Client, "__aexit__")
async def leaving_a_client(run: Run) -> None:
    await run.topic("t")
    client = run.connect()
    await client.__aenter__()
    await client.list_topics()
    await run.cancelling(lambda: client.__aexit__(None, None, None))
    async with run.connect() as other:
        assert await other.list_topics() == ["t"]
        await run.rest(other)


@scenario(Client, "__aexit__")
async def a_block(run: Run) -> None:
    await run.topic("t")
    await run.cancelling(lambda: _block(run))
    async with run.connect() as other:
        assert await other.list_topics() == ["t"]
        await run.rest(other)


async def _block(run: Run) -> None:
    async with run.connect() as client:
        await client.list_topics()


@scenario(Client, "__aexit__", "JoinGroup", "SyncGroup", "OffsetFetch", "ListOffsets", "Fetch", *GOODBYES)
async def a_block_that_is_left_before_its_consumer(run: Run) -> None:
    await run.topic("t", [b"0"])
    await run.cancelling(lambda: _block_of_a_consumer(run))
    async with run.connect() as other:
        assert not [each for each in await other.list_groups() if each.state != "Empty"], "a member is left"
        await run.rest(other)


async def _block_of_a_consumer(run: Run) -> None:
    async with run.connect() as client:
        consumer = client.consumer("t", group="g")
        await consumer.__aenter__()
        await consumer.__anext__()


@scenario(Client, "__aexit__", *GOODBYES)
async def leaving_a_client_before_its_consumer(run: Run) -> None:
    await run.topic("t", [b"0"])
    client = run.connect()
    await client.__aenter__()
    consumer = client.consumer("t", group="g")
    await consumer.__aenter__()
    await consumer.__anext__()
    await run.cancelling(lambda: client.__aexit__(None, None, None))
    async with run.connect() as other:
        assert not (await other.describe_group("g")).members, "the member has not left the group"
        await run.rest(other)


# -- calls that end ----------------------------------------------------------------------------------------------------

Ask = Callable[[Client], Awaitable[Any]]


async def committed(client: Client, group: str = "g") -> dict[Any, int]:
    return {place: each.offset for place, each in (await client.committed(group)).items()}


async def commit(client: Client, offset: int = 2, group: str = "g") -> None:
    """Commit for a group without members."""
    async with client.consumer(assign={("t", 0): "beginning"}, group=group) as consumer:
        await consumer.commit({("t", 0): offset})


def call(method: str, ask: Ask, *, before: Ask | None = None, again: Ask | None = None) -> None:
    """Add a scenario with a single call.

    Args:
        before: sets up the scenario.
        again: checks that the call has taken effect, or still can; by default the same call, with the same answer.
    """

    async def play(run: Run) -> None:
        await run.topic("t", [b"0", b"1"], [b"2", b"3"])
        async with run.connect() as client:
            if before is not None:
                await before(client)
            fate = await run.cancelling(lambda: ask(client))
            assert fate.error is None or fate.cancelled, repr(fate.error)
            await run.rest(client)
            value = await (again or ask)(client)
            assert again or fate.cancelled or value == fate.value
            await run.rest(client)

    play.__name__ = method
    SCENARIOS.append(Scenario(Client, method, play))


async def _has_topic(client: Client, name: str, partitions: int) -> None:
    assert len((await client.describe_topic(name)).partitions) == partitions


async def _created(client: Client) -> None:
    with contextlib.suppress(TopicAlreadyExists):  # the cancelled call may have created it
        await client.create_topic("new", partitions=2)
    await _has_topic(client, "new", 2)


async def _grown(client: Client) -> None:
    if len((await client.describe_topic("t")).partitions) == 1:
        await client.create_partitions("t", 3)
    await _has_topic(client, "t", 3)


async def _configured(client: Client) -> None:
    await client.configure_topic("t", {"retention.ms": "5"})
    assert (await client.describe_topic("t")).configs == {"retention.ms": "5"}


async def _deleted(client: Client) -> None:
    if "t" in await client.list_topics():
        await client.delete_topic("t")
    try:
        await client.describe_topic("t")
    except UnknownTopicOrPartition:
        return
    raise AssertionError("the topic still exists")


async def _groups_deleted(client: Client) -> None:
    if "g" in [each.group for each in await client.list_groups()]:
        await client.delete_group("g")
    assert await committed(client) == {}


async def _offsets_deleted(client: Client) -> None:
    if await committed(client):
        await client.delete_offsets("g", [("t", 0)])
    assert await committed(client) == {}


async def _reset(client: Client) -> None:
    assert (await committed(client))["t", 0] in (0, 2)
    await client.reset_offsets("g", "beginning", execute=True)
    assert await committed(client) == {("t", 0): 0}


async def _fenced(client: Client) -> None:
    await client.fence_producers("x")


async def _open(client: Client) -> None:
    """Start a transaction, and let its producer do nothing more."""
    producer = await client.producer(transactional_id="x").__aenter__()
    txn = await producer.transaction().__aenter__()
    await txn.send("t", b"open")


async def _abort(client: Client) -> None:
    for start in await _starts(client):
        await client.abort_hanging_transaction("t", 0, start, force=True)


async def _aborted(client: Client) -> None:
    await _abort(client)
    assert await _starts(client) == []


async def _starts(client: Client) -> list[int]:
    """The offsets at which transactions are open."""
    producers = (await client.describe_producers([("t", 0)]))["t", 0]
    return [each.transaction_start for each in producers if each.transaction_start is not None]


async def _shared(client: Client) -> None:
    """A share group without members that has read the topic."""
    async with client.share_consumer("t", group="shared") as consumer:
        await consumer.poll(2.0)
    await client.reset_share_offsets("shared", "beginning", execute=True)


async def _share_reset(client: Client) -> None:
    await client.reset_share_offsets("shared", "beginning", execute=True)
    assert (await client.share_offsets("shared"))["t", 0].start == 0


async def _share_deleted(client: Client) -> None:
    if ("t", 0) in await client.share_offsets("shared"):
        await client.delete_share_offsets("shared", ["t"])
    assert await client.share_offsets("shared") == {}


ACL = AclBinding("User:alice", "Read", "Topic", "t")
CREDENTIAL = ScramCredentialHash("SCRAM-SHA-256", bytes(16), 4096, bytes(32))


async def _allowed(client: Client) -> None:
    await client.create_acls([ACL])
    assert await client.describe_acls() == (ACL,)


async def _no_longer_allowed(client: Client) -> None:
    await client.delete_acls([AclBindingFilter()])
    assert await client.describe_acls() == ()


async def _user(client: Client) -> None:
    await client.set_scram_credential("alice", CREDENTIAL)
    assert [each.name for each in await client.describe_users()] == ["alice"]


async def _no_user(client: Client) -> None:
    with contextlib.suppress(ResourceNotFound):  # the cancelled call may have deleted it
        await client.delete_scram_credential("alice", "SCRAM-SHA-256")
    assert await client.describe_users() == ()


call("leader", lambda client: client.leader("t", 0))
call("fetch", lambda client: _values(client))
call("fetch_many", lambda client: _many_values(client))
call("offsets", lambda client: client.offsets({("t", 0): "end"}))
call("offsets_before", lambda client: client.offsets_before({("t", 0): timedelta(0)}))
call("brokers", lambda client: client.brokers())
call("list_offsets", lambda client: client.list_offsets({("t", 0): "max_timestamp"}))
call("create_topic", lambda client: client.create_topic("new", partitions=2), again=_created)
call("create_partitions", lambda client: client.create_partitions("t", 3), again=_grown)
call("configure_topic", lambda client: client.configure_topic("t", {"retention.ms": "5"}), again=_configured)
call("delete_topic", lambda client: client.delete_topic("t"), again=_deleted)
call("list_topics", lambda client: client.list_topics())
call("describe_topic", lambda client: client.describe_topic("t"))
call("list_groups", lambda client: client.list_groups(), before=commit)
call("describe_group", lambda client: client.describe_group("g"), before=commit)
call("describe_groups", lambda client: client.describe_groups(["g"]), before=commit)
call("group_lag", lambda client: client.group_lag("g"), before=commit)
call("group_lags", lambda client: client.group_lags(["g"]), before=commit)
call("committed", lambda client: client.committed("g"), before=commit)
call("delete_group", lambda client: client.delete_group("g"), before=commit, again=_groups_deleted)
call("delete_groups", lambda client: client.delete_groups(["g"]), before=commit, again=_groups_deleted)
call("delete_offsets", lambda client: client.delete_offsets("g", [("t", 0)]), before=commit, again=_offsets_deleted)
call("reset_offsets", lambda client: client.reset_offsets("g", "beginning", execute=True), before=commit, again=_reset)
call("reset_offsets", lambda client: client.reset_offsets("g", timedelta(days=1)), before=commit)
call("describe_share_group", lambda client: client.describe_share_group("shared"), before=_shared)
call("describe_share_groups", lambda client: client.describe_share_groups(["shared"]), before=_shared)
call("share_offsets", lambda client: client.share_offsets("shared"), before=_shared)
call(
    "reset_share_offsets",
    lambda client: client.reset_share_offsets("shared", "beginning", execute=True),
    before=_shared,
    again=_share_reset,
)
call(
    "delete_share_offsets",
    lambda client: client.delete_share_offsets("shared", ["t"]),
    before=_shared,
    again=_share_deleted,
)
call("create_acls", lambda client: client.create_acls([ACL]), again=_allowed)
call("describe_acls", lambda client: client.describe_acls(), before=_allowed)
call(
    "delete_acls",
    lambda client: client.delete_acls([AclBindingFilter()]),
    before=_allowed,
    again=_no_longer_allowed,
)
call("describe_users", lambda client: client.describe_users(), before=_user)
call("set_scram_credential", lambda client: client.set_scram_credential("alice", CREDENTIAL), again=_user)
call(
    "delete_scram_credential",
    lambda client: client.delete_scram_credential("alice", "SCRAM-SHA-256"),
    before=_user,
    again=_no_user,
)
call("list_transactions", lambda client: client.list_transactions(), before=_fenced)
call("describe_transactions", lambda client: client.describe_transactions("x"), before=_fenced)
call("describe_producers", lambda client: _starts(client), before=_open)
call(
    "find_hanging_transactions",
    lambda client: client.find_hanging_transactions(max_transaction_timeout=0),
    before=_open,
)
call("abort_hanging_transaction", lambda client: _abort(client), before=_open, again=_aborted)
call("fence_producers", lambda client: client.fence_producers("x", "y"), before=_open, again=_fenced)


@scenario(Client, "offsets")
async def offsets_of_topics_that_are_not_there(run: Run) -> None:
    """A missing topic may soon be created, so calls ask for it for some seconds; a cancelled call must stop."""
    async with run.connect(api_timeout=2.0) as client:
        fate = await run.cancelling(lambda: client.offsets({("one", 0): "end", ("other", 0): "end"}))
        assert fate.cancelled or isinstance(fate.error, UnknownTopicOrPartition)
        await run.rest(client)


async def _values(client: Client) -> list[bytes | None]:
    return [each.value for each in await client.fetch("t", 0, 0)]


async def _many_values(client: Client) -> list[bytes | None]:
    fetched = await client.fetch_many({("t", 0): 0})
    return [each.value for some in fetched.values() for each in some]
