"""From `send` to the acknowledgement: appends a record to a batch, sends the batch, and evaluates the response.

`ProducerCore` (core) makes the decisions of all calls. A record takes this way:

preparation        serializers, interceptors and the user's partitioner run in the caller's own call
placing            chooses the partition, by one of the partitioners; unplaced_records: their topic is unknown
room               the memory of the producer, and the records that wait for it; turns lets other tasks run
accumulator        puts the record into the open batch of its partition; column_records appends many at a time
append             does all of this for nearly every record of `send_soon`, `send_many` and `send_nowait`
batches            `PartitionQueue`: the batches of one partition, their order and sequences
producer_queues    `ProducerQueues`: which partitions may send, per leader (node_queue: `NodeQueue`)
sender             `Sender`: collects due batches per leader, and requests forms the requests
producer_identity  producer id and epoch
results            `Results`: after the response, a batch is stored, retried, renumbered, split or failed
deliveries         receipts, callbacks and flushes
stalls             partitions that accept no records
producer_leaving   `ProducerLeaving`: the end of the user's block

records has what enters and leaves: `ProducerRecord`, `Receipt`. The face `Producer` and `BlockingProducer` call
`ProducerCore`; with a transactional id, `ottla.sdk.transaction` takes the place of producer_identity.
"""
