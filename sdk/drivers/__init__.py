"""Drivers run a `ClientCore`: sockets and clocks, no protocol. One file per kind of concurrency.

driver             `Driver`: the user's calls, the same for all loops
pump               `Pump`: polls the core, and carries out its actions
trio, asyncio      `TrioDriver`, `AsyncioDriver`; dialing connects for asyncio, watchdog reports a blocked loop
threads            `ThreadDriver`, for `ottla.sdk.sync`; io_thread is its thread, callers its users' calls
blocking           `BlockingClient`, without a thread, for Spark's workers; blocking_producer its producer
sockets, selecting non-blocking sockets, and waiting for them with a selector

`connect` chooses the driver. The faces (`Client`, `Producer`, `Consumer`) give it the steps of each call.
"""
