"""The broker without I/O: `BrokerCore`, and the state machines that it is made of.

core           `BrokerCore`: the whole broker, which `ottla.brokerlite.serve` runs
transactions/  the transaction coordinator: producer ids, transactions, their markers and log
groups/        the group coordinator: members, rebalances, committed offsets, their log
requests/      requests that wait, for records, the disk or much computing; fetch sessions
topics/        all topics, their configurations, housekeeping; the table in an internal topic (`KeyedLog`)
partitions/    one partition: log, producers, leader epochs, validation, retention, compaction
jobs           work in threads, as generators
timers         named timers
clock          the time, as the driver gives it

Each folder imports only those below it; `groups` and `requests` do not import each other. An import contract enforces
that. The handlers in `ottla.brokerlite.handlers` call the machines. `ottla.brokerlite.storage`
implements the interfaces to the disk that topics and partition_log declare.
"""
