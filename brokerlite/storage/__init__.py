"""The disk: Kafka's own folder and segment format, so that Kafka's tools read what this broker writes.

    <data>/meta.properties                           whose folder it is
    <data>/broker.json                               the topics, the producer ids that were given out, the leader epoch
    <data>/.lock  .kafka_cleanshutdown  recovery-point-offset-checkpoint
    <data>/<topic>-<partition>/<20-digit base offset>.log .index .timeindex .snapshot
    <data>/<topic>-<partition>/partition.metadata  leader-epoch-checkpoint

`folder.py` is the whole, `partition.py` one partition and its recovery, `segment.py` one segment and its indexes,
`snapshot.py` and `checkpoints.py` the small files. Nothing here knows of trio: writes go to the page cache at once,
and what must wait for the disk is a chore that the driver runs in a thread.
"""
