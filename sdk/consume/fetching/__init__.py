"""Fetch requests: which node is asked for which partitions, when, and for how many bytes.

fetch_scheduler  `FetchScheduler`: chooses nodes, partitions and sizes
fetch_session    `FetchSession`: builds a node's requests (KIP-227)
near_replicas    `NearReplicas`: reading from replicas nearby (KIP-392)
fetch_buffers    `FetchBuffers`: holds batches until the user takes them, and limits their memory
fetch_metrics    `FetchMetrics`: the metrics of a fetcher

To change fetch sizes or the wait, open fetch_scheduler.py; to change the memory or the turns of partitions, open
fetch_buffers.py. The responses are interpreted in `ottla.sdk.consume.reading`.
"""
