"""A proxy that puts the same key into the same partition, whatever partitioner a client uses.

The map: `config` (options and topic rules) → `serve` (trio: listens, connects, pumps bytes) → `core` (the state
machine), made of `clients` (requests and responses), `upstream` (metadata and delivery), `journal` (the state that
survives a restart), `routing` (key -> partition) and `threads` (long work). `standby` waits for a state directory that
another proxy uses, `descriptors` limits the clients by the process's open files, and `metrics` reads the core for
Prometheus.
"""
