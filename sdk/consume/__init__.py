"""The consumer: positions, fetches, buffers, commits.

core          `ConsumerCore`: the calls of a consumer, which it passes to its parts
navigation    seek, pause, resume, position
commit_calls  the calls that commit
asking        one task at a time asks for a batch
ahead         batches that a thread may take while the core is idle
poll_watch    the member leaves if the user no longer asks for batches (`max_poll_interval`)
options       checks a consumer's options
assignment/   which partitions, from the subscription to the end; the listener, which offsets are committed
reading/      `Fetcher`: from assigned partitions to batches; `RangeReader`, for Spark
positions/    where partitions start; resets, truncated logs, retries
fetching/     Fetch requests: nodes, sizes, sessions, memory, replicas nearby
partitions/   one partition: its position, its batches, its record sets

From a position to a batch: a changed partition goes from `Changes` to `Review`, and from there to `PositionLookups` or
to `FetchScheduler`, which sends the requests that `FetchSession` builds. `FetchAnswers` interprets the responses,
record_sets splits them into batches, and `FetchBuffers` holds the batches until the user takes them.

Each folder imports only those below it; an import contract enforces that.
"""
