"""A proxy that puts the same key into the same partition, whatever partitioner a client uses.

The map: `config` (what it is told) → `serve` (trio: listens, connects, pumps bytes) → `core` (the one machine) made of
`session` (a client's requests), `produce` (records of rewritten topics), `producers` (what idempotent clients have
sent), `delivery` (the way to upstream's partitions), made of `streams` (numbers) and `batches`, `lent` (producers),
`journal` (what outlives a restart), `control` (metadata and producer ids), `cluster` (what is known of upstream),
`link` (one upstream connection), `routing` (key -> partition) and `carried` (which APIs pass).
"""
