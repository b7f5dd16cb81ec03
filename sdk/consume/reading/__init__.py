"""From assigned partitions to batches: `Fetcher`, which combines fetching and positions.

fetcher         `Fetcher`: reads assigned partitions, and hands out their batches in fair turns; lists its parts
fetch_answers   `FetchAnswers`: interprets Fetch responses
stable_offsets  `StableOffsets`: finds open transactions that hold back a read_committed consumer
range_reader    `RangeReader`: reads offset ranges with a `Fetcher` and without a `ConsumerCore`, for Spark

To change the meaning of an error of Fetch, open fetch_answers.py.
"""
