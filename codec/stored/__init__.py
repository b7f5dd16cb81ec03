"""The data that Kafka stores: files of a broker's data folder, and records of its internal topics. No I/O here.

Files, one module for each kind:

- `segments`: ``.log`` files: record batches one after the other, with a possibly truncated or empty tail.
- `indexes`: the entries of ``.index``, ``.timeindex`` and ``.txnindex`` files.
- `snapshots`: ``.snapshot`` files, the state of a partition's producers at an offset.
- `checkpoints`: the text files ``leader-epoch-checkpoint``, ``…-offset-checkpoint``, ``partition.metadata`` and
  ``meta.properties``.

Records, whose keys and values are messages like requests and responses:

- `internal_topics` identifies a record by the topic's name and the record's key. It knows ``__consumer_offsets``
  (`classic_groups`, `consumer_groups`, `share_groups`, `streams_groups`), ``__transaction_state``
  (`transaction_state`) and ``__share_group_state`` (`share_group_state`).
- `control`: the records of control batches, in any topic: ends of transactions, and KRaft's records.

Modules here are imported only on demand.
"""
