"""Handles clients' connections and requests.

client_session        dispatches a client's requests; answers ApiVersions
access/               decides by ACLs what a client may send and see
offering              the APIs and versions that the clients of a listener are offered
relay                 the login of a client to upstream itself, in modes `relay` and `forward`
client_connection     a client's own connection: its responses and its end
client_link           a client's upstream connection, and the requests that wait for it
address_handler       requests whose responses have addresses of brokers: Metadata, FindCoordinator and others
produce_handler       Produce: rewrites, passes or refuses record sets
one_partition_handler requests that would read a topic in mode `fan-out`, or describe it
transaction_handler   InitProducerId, AddPartitionsToTxn and EndTxn, step by step
steps                 runs requests that take several steps
pending_produce       the response to a Produce request, from the results of its partitions
carried               the APIs and versions that the proxy offers
dialects              the error codes for each kind of client
one_partition         topics in mode `fan-out` as clients see them, and the refusals
walks                 reads only the brokers of long Metadata responses
routed_topics         topics with a rule, and their metadata
admission             checks who may send to a rewritten topic, and with which producer
batches               clients' batches under way
opening               checks batches, reads their records, sorts them by partition
windows               recognises retries
producers             the producer ids of clients
producers_at_work     bounds how many producers of a host have records under way
record_set_queue      the queue of record sets
acceptance            accepts record sets in their turn, or refuses them
rejecter              refuses record sets with keys outside their partition, in mode `reject`
request_line          has later requests of a client wait while an earlier one is screened
unsettled             has a client's records wait for earlier ones after the rules have changed
rewriter              moves the records of a client's batch to the partitions of their keys, and answers the client
rewrite_counts        counts records and refusals, and logs the refusals
transactions          the state of clients' transactions: their partitions, and when they may end
observer              counts keys
key_scan              finds keys outside their partition, without making records
key_report            collects which clients put keys where the topic's partitioner would not
buffered              counts the buffered bytes of each client
"""
