"""One partition: its log, its producers, its leader epochs, its retention and compaction.

partition_log  `PartitionLog`: appends, and returns records to readers
log_settings   `LogSettings`: the settings of the log, from the topic's configurations
validation     validates a produced record set
producers      `Producers`: sequences, duplicates and open transactions
leader_epochs  `LeaderEpochs`: the leader epochs, each with the offset at which it begins
retention      which segments are rolled and deleted
compaction     which records compaction keeps

To change which batches are refused, open validation.py, or producers.py for a reason of idempotent producers; to change
what readers see, open partition_log.py. `ottla.brokerlite.storage` stores the segments.
"""
