"""The broker without I/O: `BrokerCore`, and the state machines that it is made of.

The broker: core, which `ottla.brokerlite.serve` runs; topics; configs; waits, for requests whose answers are delayed;
request_work and jobs, for work in threads; timers and clock.

One partition: log (`PartitionLog`), and beside it producers (sequences and open transactions), epochs, validation of
produced batches, retention and compaction. housekeeping says when the last two run. fetch_sessions remembers which
partitions a consumer fetches.

The coordinators: groups (`Groups`), group and offsets, stored by group_log; transactions (`Transactions`) and
transaction, stored by transaction_log. Both logs are a keyed_log (`KeyedLog`), a table that survives the broker.

The handlers in `ottla.brokerlite.handlers` call the machines. `ottla.brokerlite.storage` implements the interfaces to
the disk that topics and log declare.
"""
