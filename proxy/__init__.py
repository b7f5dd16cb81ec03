"""A proxy that puts the same key into the same partition, whatever partitioner a client uses.

The map: `config` (what it is told) → `serve` (trio: listens, connects, pumps bytes) → `core` (the one machine), made of
`clients` (what they send, and what they are told), `upstream` (the way there, and what is known of it), `journal` (what
outlives a restart), `routing` (key -> partition) and `threads` (what would hold the loop).
"""
