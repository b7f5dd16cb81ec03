"""Drivers run a `ClientCore`: sockets and clocks, no protocol. One file per kind of concurrency."""
