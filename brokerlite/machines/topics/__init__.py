"""All topics: their names, configurations and partitions, and the work that is done for all of them.

topics        `Topics`: names, ids, creation and deletion
configs       the configurations of a topic, and their valid values
housekeeping  `Housekeeping`: when retention and compaction run
keyed_log     `KeyedLog`: a table that survives the broker, stored in an internal topic

To add a topic configuration, open configs.py, and `ottla.brokerlite.machines.partitions.log_settings` if partitions
heed it. To change when logs are cleaned, open housekeeping.py.
"""
