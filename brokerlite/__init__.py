"""A small Kafka broker of one node, with groups, transactions, and logs on disk in Kafka's own format.

config     `BrokerConfig`: the options of a broker
serve      runs the broker under trio: sockets, threads and the clock
handlers/  handles requests: one file for each API
machines/  all state, and every rule of the protocol: `BrokerCore` and its parts
storage/   the files on disk

`ottla broker` (`ottla.cli.servers`) and `ottla.testing` start it by `serve.run_broker`. A request goes from `serve` to
`BrokerCore`, from there to its handler, and from the handler to the machines. LIMITS.md lists the omissions.
"""
