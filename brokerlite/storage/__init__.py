"""The disk: Kafka's own folder and segment format, so that Kafka's tools read what this broker writes.

    <data>/meta.properties                           whose folder it is
    <data>/broker.json  broker.json.old              the producer ids that may have been given out, the leader epoch
    <data>/.lock  .kafka_cleanshutdown  recovery-point-offset-checkpoint  log-start-offset-checkpoint
    <data>/<topic>-0/topic-<number>.json             what the topic is: id, number of partitions, configurations
    <data>/<topic>-<partition>/<20-digit base offset>.log .index .timeindex .indexcheck .txnindex .aborted
    <data>/<topic>-<partition>/<20-digit offset>.snapshot .window  .damaged
    <data>/<topic>-<partition>/partition.metadata  leader-epoch-checkpoint  leader-epoch-check

Each layer knows only those below it:

    folder.py      the whole     identity.py, state.py, find_topics.py, topic_files.py its small files
                                 unflushed.py what of it the disk has, spare.py room for a start on a full one
    partition.py   a partition   recovery.py how it is found again, snapshot.py its producers
    segment.py     a segment     log_file.py its batches, indexes.py, txn_index.py
    disk.py        files         checkpoints.py written whole, unsynced.py not yet on the disk,
                                 file_range.py what is sent without being read

Nothing here knows of trio: writes go to the page cache at once, and what must wait for the disk is work that the
driver runs in a thread. Only `disk.py` and `file_range.py` touch a file.
"""
