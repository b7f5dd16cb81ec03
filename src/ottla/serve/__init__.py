"""The listener that brokerlite and the proxy share: accept, cut into frames, answer in order, drain.

Theory of operation: each connection has one reader and one writer task. The reader hands each frame to the service
together with an `Answer`, its place in the connection's order; the service fills answers whenever it likes. What is
filled is given to the socket at once, in the order of the requests, as Kafka's protocol demands; the writer goes on
with what the socket did not take. The service's methods are plain functions that must not block.

    listener.py     `Listener`: addresses, who is accepted, the drain
    connection.py   `Connection`, `Answer`, `Service`
    incoming.py     what arrives on a socket, cut into frames
    outbox.py       what a socket is still to be given
    shared.py       `Limits`, and what all connections share
    memory.py       what they may take together
    health.py       `serve_health`

Rules:
- Bytes are read into their place and written from theirs: a large frame is a view of what the system has filled, and
  the parts of an answer are neither joined nor copied, but for TLS. They are let go of as soon as they are written.
- With `Limits.pipeline` requests of a connection unanswered, or too many bytes of answers not taken by its peer, the
  reader waits, and TCP pushes back. All connections together have bounds, too (`Limits.all_unsent`, `all_frames`):
  a connection that takes more than its share waits.
- The end of input is no cancellation. A connection ends when its peer sends no more, as with Apache Kafka: requests
  that came before are carried out, and no longer answered, also after a reset. A reset is noticed within a second, even
  while the connection is not read, and so is the end of the input while the service holds the connection and all
  answers so far are taken. The service learns of it (`Service.lost`): only it may delay earlier requests from then on.
- Bytes that are not Kafka's protocol close their connection, with one line in the log that says what they look like;
  nobody else notices. Lines that are alike are counted (`ottla.complaints`).
- An exception out of the service is a bug: it is logged with its traceback and closes that connection only.
- A server that drains reads no more requests. It hands the requests it has read to the service, and answers them.
- Every wait has a bound: idle connections, peers that take nothing of their answers, the drain at the end. A peer that
  is slow, but goes on, is not cut off.
"""

from ottla.serve.connection import Answer, Connection, Service
from ottla.serve.health import serve_health
from ottla.serve.listener import Listener
from ottla.serve.outbox import Outbox, bare, write_on
from ottla.serve.shared import Limits

__all__ = ["Answer", "Connection", "Limits", "Listener", "Outbox", "Service", "bare", "serve_health", "write_on"]
