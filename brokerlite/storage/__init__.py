"""Stores topics on disk in Kafka's own folder and segment format, so that Kafka's tools can read them.

    <data>/meta.properties                           the node and cluster that the folder belongs to
    <data>/broker.json  broker.json.old              the producer ids that may have been assigned, the leader epoch
    <data>/.lock  .kafka_cleanshutdown  recovery-point-offset-checkpoint  log-start-offset-checkpoint
    <data>/<topic>-0/topic-<number>.json             the topic's id, number of partitions, configurations
    <data>/<topic>-<partition>/<20-digit base offset>.log .index .timeindex .indexcheck .txnindex .aborted
    <data>/<topic>-<partition>/<20-digit offset>.snapshot .window  .damaged
    <data>/<topic>-<partition>/partition.metadata  leader-epoch-checkpoint

Each layer knows only those below it:

    data_folder.py         the whole     meta_properties.py, state_file.py, find_topics.py, folder_checkpoints.py
                                         its small files; assigned_numbers.py producer ids and the leader epoch;
                                         start_offsets.py where logs begin; folder_flushes.py, unflushed.py its
                                         flushes, chores.py what runs in threads;
                                         spare.py space for a start on a full disk
    topic_folder.py        a topic       topic_files.py its file, topic_disk.py its access to the disk
    partition_segments.py  a partition   log_segments.py its segments in order, partition_sync.py its flushes,
                                         recovery.py its start, log_cuts.py its damaged end, snapshot.py its producers,
                                         leader_epoch_file.py its leader epochs
    segment.py             a segment     log_file.py its batches, batch_locator.py where they are, indexes.py,
                                         txn_index.py
    disk.py                files         checkpoints.py written whole, unsynced.py not flushed yet,
                                         file_range.py sent without being read

Nothing here depends on trio: writes go to the page cache at once, and work that must wait for the disk is handed to the
driver, which runs it in a thread. Only `disk.py` and `file_range.py` touch files.
"""
