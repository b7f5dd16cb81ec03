"""Administration of share groups, and `ottla share`, against Apache Kafka and brokerlite."""

import json
import subprocess
import sys

import pytest
import trio

import ottla
from ottla.errors import GroupIdNotFound, NonEmptyGroup
from tests.patience import HUNG, PROGRAM
from tests.sdk.shared_topics import filled


def run(bootstrap: str, *arguments: str) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "ottla", "share", *arguments, "--bootstrap", bootstrap]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PROGRAM)
    return done.returncode, done.stdout, done.stderr


async def test_a_share_group_is_reset_described_and_deleted(sharing: str) -> None:
    async with ottla.connect(sharing) as client:
        await filled(client, "administered", 10, partitions=1)
        plan = await client.reset_share_offsets("admins", "beginning", topics=["administered"])
        assert plan.new_group and not plan.executed
        await client.reset_share_offsets("admins", "beginning", topics=["administered"], execute=True)
        with trio.fail_after(HUNG):
            async with client.share_consumer("administered", group="admins") as jobs:
                for _ in range(4):
                    record = await jobs.__anext__()
                    await record.accept()
                described = await client.describe_share_group("admins")
                assert (described.state, len(described.members)) == ("Stable", 1)
                assert described.members[0].assignment == (("administered", 0),)
                with pytest.raises(NonEmptyGroup, match="its members: "):
                    await client.reset_share_offsets("admins", "end", execute=True)
        at = ("administered", 0)
        assert await client.share_offsets("admins") == {at: ottla.ShareOffset(start=4, lag=6)}
        plan = await client.reset_share_offsets("admins", {at: 2}, execute=True)
        assert [(each.old, each.new) for each in plan.offsets] == [(4, 2)]
        assert (await client.share_offsets("admins", [at]))[at].lag == 8
        assert [each.group for each in await client.list_groups(types=["share"]) if each.group == "admins"]
        await client.delete_share_offsets("admins", ["administered"])
        assert await client.share_offsets("admins") == {}
        await client.delete_group("admins")
        with pytest.raises(GroupIdNotFound):
            await client.describe_share_group("admins")


async def test_the_command_line_shows_and_resets_share_groups(sharing: str) -> None:
    async with ottla.connect(sharing) as client:
        await filled(client, "commanded", 10, partitions=2)
    shown = await trio.to_thread.run_sync(run, sharing, "reset", "commanders", "--to-earliest", "--topic", "commanded")
    assert shown[0] == 0 and "nothing was changed: add --execute to do it" in shown[2]
    done = await trio.to_thread.run_sync(
        run, sharing, "reset", "commanders", "--to-earliest", "--topic", "commanded", "--execute"
    )
    assert done[0] == 0 and "2 offsets of commanders are reset, a new group" in done[2]
    async with ottla.connect(sharing) as client, client.share_consumer("commanded", group="commanders") as jobs:
        with trio.fail_after(HUNG):
            record = await jobs.__anext__()
            await record.accept()
        code, out, _ = await trio.to_thread.run_sync(run, sharing, "describe", "commanders", "--json")
        described = json.loads(out)
        assert (code, described["state"], len(described["members"])) == (0, "Stable", 1)
        code, out, _ = await trio.to_thread.run_sync(run, sharing, "describe", "commanders", "--members")
        assert code == 0 and "commanders: Stable, simple, 1 member" in out and "commanded:0,1" in out
        code, _, err = await trio.to_thread.run_sync(run, sharing, "reset", "commanders", "--to-latest", "--execute")
        assert code == 1 and "its members: " in err
    code, out, _ = await trio.to_thread.run_sync(run, sharing, "list", "--names")
    assert code == 0 and "commanders" in out.splitlines()
    code, out, _ = await trio.to_thread.run_sync(run, sharing, "describe", "commanders", "--json")
    assert sum(each["lag"] for each in json.loads(out)["partitions"]) == 9
    code, _, err = await trio.to_thread.run_sync(run, sharing, "describe", "nobody")
    assert code == 1 and "GROUP_ID_NOT_FOUND" in err
