"""Decides by ACLs what of a client's request goes to upstream, and what of the response goes to the client.

guard            `Guard`: decides over each request of a client, before any other part of the proxy reads it
screens          `SCREENS`: how to decide over each API
screening        what a screen gets and returns
topics           requests that name topics
offsets          committed offsets: requests that name a group, and topics
groups           requests that name groups
transactions     Produce, and requests that name transactional ids
fetches          Fetch and ShareFetch, with their sessions
metadata         Metadata
configs          configurations of topics, groups and the cluster
cluster          requests that need a right on the cluster

Rules:
- Upstream sees the proxy's own user, so nothing goes there unchecked. An API without a screen is not offered.
- What a client may not use is taken out of its request, and upstream's response gets the errors of Kafka. A request of
  which nothing is left is answered here.
- A request with which nothing is wrong passes as it is, without being built again.
"""
