"""The broker without I/O: `BrokerCore`, and the state machines that it is made of.

The broker: core, which `ottla.brokerlite.serve` runs; topics; configs; producer_ids; waits, for requests whose answers
are delayed; sync_waits, for what waits for the disk; request_work and jobs, for work in threads; timers and clock.

One partition: log (`PartitionLog`), and beside it producers (sequences and open transactions), epochs, validation of
produced batches, retention and compaction. housekeeping says when the last two run. fetch_sessions remembers which
partitions a consumer fetches.

The coordinators: groups (`Groups`), rebalances, group and offsets, stored by group_log; transaction_coordinator
(`TransactionCoordinator`) and transaction_metadata, stored by transaction_log. transaction_markers writes the markers,
and hanging_transactions resolves what a crash has left open. Both logs are a keyed_log (`KeyedLog`), a table that
survives the broker.

The handlers in `ottla.brokerlite.handlers` call the machines. `ottla.brokerlite.storage` implements the interfaces to
the disk that topics and log declare.
"""
