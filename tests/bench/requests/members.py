"""Many members of a group in one process, a client each, until standard input ends.

Arguments: bootstrap servers; topic; group, which is also the client id; the number of members; ``fetch_max_wait``.
"""

import sys

import trio

import ottla

AUTO_COMMIT = 5.0
"""Java's default."""


async def _member(bootstrap: str, topic: str, group: str, wait: float) -> None:
    async with (
        ottla.connect(bootstrap, client_id=group, fetch_max_wait=wait) as client,
        client.consumer(topic, group=group, auto_commit=AUTO_COMMIT) as consumer,
    ):
        async for batch in consumer:
            for _ in batch:
                pass


async def main(*arguments: str) -> None:
    bootstrap, topic, group, number, wait = arguments
    async with trio.open_nursery() as nursery:
        for _ in range(int(number)):
            nursery.start_soon(_member, bootstrap, topic, group, float(wait))
        await trio.to_thread.run_sync(sys.stdin.read)
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:])
