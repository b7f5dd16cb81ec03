"""The listener that brokerlite and the proxy share: accept, cut into frames, answer in order, drain.

Theory of operation: each connection has a reader task and a writer task. The reader passes each frame to the service
together with a `PendingAnswer`, its position in the connection's order; the service fills answers whenever it likes.
Filled answers go to the socket at once, in the order of the requests, as Kafka's protocol requires; the writer writes
the rest that the socket does not accept at once. The service's methods are plain functions that must not block.

    listener.py     `Listener`: addresses, accepting connections, draining
    port_security.py  `PortSecurity`: TLS and SASL of an address
    connection.py   `AcceptedConnection`, and `Service`, the code behind a listener
    pending_answer.py  `PendingAnswer`, the position of an answer
    receiver.py     reads from a socket, turn by turn
    incoming.py     bytes from a socket, cut into frames
    sasl_service.py    passes on requests of authenticated clients only
    newcomers.py    closes connections that do not authenticate
    established.py  shares connections among the users of clients
    host_turns.py   lets hosts take turns while passwords and tokens are checked
    outbox.py       parts for a socket that are not written yet
    listener_context.py  `ListenerLimits`, and the shared state of all connections
    memory.py       the memory that they may use together
    traffic.py      counts requests, bytes and connections
    answered.py     calls observers for each request
    tracing.py      `Spans`, an observer that makes a span of OpenTelemetry for each request
    observer_thread.py  `ObserverThread`, for observers that may block
    access_log.py   an observer that writes a line for each request, on demand
    line_file.py    the file to which it writes
    health.py       `serve_health`
    metrics_page.py  its page for Prometheus
    report_server.py  `serve_report`
    http_exchange.py  an HTTP request and its response, for both

Rules:
- Bytes are read into and written from their final place: a large frame is a view of the receive buffer, and the parts
  of an answer are neither joined nor copied, except for TLS. They are released as soon as they are written.
- A service may have large requests passed on piece by piece, and may give large answers in pieces. A peer that stops
  within such a request is disconnected.
- With `ListenerLimits.pipeline` unanswered requests of a connection, or too many bytes of answers that its peer has not
  read, the reader waits, and TCP pushes back. All connections together have limits, too (`ListenerLimits.all_unsent`,
  `all_frames`): a connection above its share waits. A `Budget` of the service may take the place of these two.
- Requests that arrived together are handed to the service together, for some milliseconds; then other connections get
  their turn.
- The end of input is not a cancellation. A connection ends when its peer sends no more, as with Apache Kafka: earlier
  requests are executed, but no longer answered, also after a reset. A reset is noticed within a second, even while the
  connection is not read. So is the end of the input while the service holds the connection and its peer has read all
  answers. The service learns of it (`Service.lost`): from then on only the service delays earlier requests.
- Bytes that are not Kafka's protocol close their connection, with one log line that guesses their protocol; other
  connections are not affected. Similar lines are counted (`ottla.complaints`).
- An exception from the service is a bug: it is logged with its traceback and closes only that connection.
- A server that drains reads no more requests. It passes the requests it has read to the service, and answers them.
- Every wait has a limit: idle connections, peers that read no answers, the final drain. A peer that is slow, but makes
  progress, is not disconnected.
"""

from ottla.serve.connection import AcceptedConnection, Service
from ottla.serve.established import owner_of, spare
from ottla.serve.health import serve_health
from ottla.serve.listener import Listener
from ottla.serve.listener_context import ListenerLimits
from ottla.serve.memory import Budget, Memory
from ottla.serve.outbox import Outbox, bare, write_on
from ottla.serve.pending_answer import PendingAnswer
from ottla.serve.port_security import PortSecurity, warn_of_exposed_key
from ottla.serve.report_server import serve_report

__all__ = [
    "AcceptedConnection",
    "Budget",
    "Listener",
    "ListenerLimits",
    "Memory",
    "Outbox",
    "PendingAnswer",
    "PortSecurity",
    "Service",
    "bare",
    "owner_of",
    "serve_health",
    "serve_report",
    "spare",
    "warn_of_exposed_key",
    "write_on",
]
