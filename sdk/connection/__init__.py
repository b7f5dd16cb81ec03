"""Connections to brokers: their states, their requests and responses, and facts about the nodes.

connections  `Connections`: all connections of a client, one for each node and channel
peer         `Peer`: one node: backoff, API versions, traffic
connection   `Connection`: the table of a connection's states
session      `Session`: TLS, the handshake and its renewal; the proxy's connections have it, too
handshake    ApiVersions and SASL, before the first request
credentials  the password or the token of all connections
wire         bytes to frames, in plain text or inside TLS
pipeline     `Pipeline`: the requests of a connection, in order
exchange     `Exchange`: one request, and its only result
requests     builders of requests that several callers send
versions     the versions of each API that the client speaks
outages      the log lines about brokers that are not available

`ClientCore` owns the `Connections`, and submits the requests of producers, consumers and calls to them. Drivers carry
out the actions that connections ask for, and report the events of their sockets.
"""
