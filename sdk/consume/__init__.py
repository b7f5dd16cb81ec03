"""The consumer: positions, fetches, buffers, commits.

The calls of `Consumer` are in core (`ConsumerCore`), which passes them to its parts: navigation (seek, pause, resume,
position), subscription (the topics to read), asking (who waits for a batch), committer (commits), leaving (the end of
the block). options and places check the user's arguments.

From a position to a batch: fetcher (`Fetcher`) lists the parts. `Positions` is in assigned, the single `Position` in
positions. A changed partition goes from changes to review, and from there to position_lookups or to the scheduler,
which sends the requests that sessions build. answers interprets the responses, record_sets splits them into batches,
and buffers holds the batches until the user takes them; ahead hands some out while the core is idle. near, retries and
stable know replicas nearby, failing partitions and open transactions.

For members of a group: resuming starts at committed offsets, notices calls the listener, committing decides which
offsets are committed. The member itself, and its requests, are in `ottla.sdk.group`.

ranges (`RangeReader`) reads offset ranges with a `Fetcher` and without a `ConsumerCore`, for Spark.
"""
