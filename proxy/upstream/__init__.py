"""Connections to upstream, its metadata, and the delivery of records to it.

link           one connection
principals     the users of clients for whom the proxy logs in
control        the proxy's own requests, on one connection: brokers and topics
wanted_topics  the topics whose metadata it requests next, in turn for each client
producer_id_requests, topic_config_requests  the other requests that it sends
attempts       how many it has sent of a kind, and when it may send the next
cluster        brokers, topics and leaders
batches        parts of clients' batches, and the batches built from them
streams        the batches of one producer for one partition
producer       a producer id, with its streams and connections
lent           the proxy's own producers, for clients without a producer id
connections    connections of producers to brokers
settlements    the journal and the senders get the outcomes
steering       streams to the connections of their leaders, retries, and expired batches
stream_sender  the batches of streams in Produce requests, and the results
delivery       takes parts, delivers them, and gives them back
"""
