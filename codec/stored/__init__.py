"""What Kafka stores: the files of a broker's data folder, and the records of its internal topics. No I/O here.

Files, one module for each kind:

- `segments`: ``.log`` files, that is record batches one after the other, with a torn or empty tail.
- `indexes`: the entries of ``.index``, ``.timeindex`` and ``.txnindex`` files.
- `snapshots`: ``.snapshot`` files, the producers of a partition as they were at an offset.
- `checkpoints`: the text files ``leader-epoch-checkpoint``, ``…-offset-checkpoint``, ``partition.metadata`` and
  ``meta.properties``.

Records, whose keys and values are messages like those of the APIs:

- `internal_topics` tells by a topic's name and a record's key what the record is. It knows ``__consumer_offsets``
  (`classic_groups`, `consumer_groups`, `share_groups`, `streams_groups`), ``__transaction_state``
  (`transaction_state`) and ``__share_group_state`` (`share_group_state`).
- `control`: the records of control batches, in any topic: ends of transactions, and those of KRaft.

Nothing here is imported before it is asked for.
"""
