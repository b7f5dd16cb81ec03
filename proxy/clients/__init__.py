"""What clients send, and what they are told.

session       a client's connection: each request, and its answer in turn
carried       which requests and versions the proxy carries
topics        the topics that have a rule, as upstream describes them
admission     who may send what to a rewritten topic, and as which producer
batches       a client's batch under way
opening       its records: judged, opened, sorted by where they go
windows       what makes a retry harmless
producers     the producer ids that clients have
line          in which they wait for their turn
rewriter      from a client's batch to the partitions of its keys, and back to its answer
transactions  AddPartitionsToTxn, EndTxn
observed      counts of keys
buffered      how much is held for whom
"""
