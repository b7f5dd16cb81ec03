"""Decides by ACLs which parts of a client's request go to upstream, and which parts of the response to the client.

guard            `Guard`: decides over each request of a client, before any other part of the proxy reads it
screens          `SCREENS`: how to decide over each API
screening        the input and the output of a screen
topics           requests that name topics
offsets          committed offsets: requests that name a group, and topics
groups           requests that name groups
transactions     Produce, and requests that name transactional ids
owners           `ProducerOwners`: which transactional id has a producer id
fetches          Fetch, with its sessions
shares           requests of members of share groups, with their sessions
metadata         Metadata
configs          configurations of topics, groups and the cluster
cluster          requests that need a right on the cluster

Rules:
- Upstream sees the proxy's own user, so every request is checked here. An API without a screen is not offered.
- Denied topics, groups and so on are taken out of a request, and upstream's response gets Kafka's errors for them. A
  request without anything left is answered here.
- A request without denied parts passes as it is, without being built again.
"""
