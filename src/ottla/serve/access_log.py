"""The access log: a line of JSON for each request, on demand.

Rules:
- Without an access log a request costs nothing more: no field of it is read.
- Lines are made and written in a thread, so neither a slow disk nor a full pipe blocks the loop. If too many requests
  wait for it, some get no line, and a line tells how many.
- An access log ends soon after it is switched off. If its pipe has no reader, its last lines are lost.
- Clients choose names: JSON escapes them, and they are cut to `_LONGEST`.
"""

import json
import logging
import time
from collections.abc import Sequence
from datetime import UTC, datetime

from ottla.codec.apis import NAMES
from ottla.errors import BY_CODE, ConfigurationError
from ottla.serve.answered import AnsweredRequest
from ottla.serve.line_file import LineFile
from ottla.serve.observer_thread import ObserverThread

log = logging.getLogger("ottla.serve")

_LONGEST = 100
"""Characters of a client id."""
_MOST_ERRORS = 10
"""Different errors in a line."""


class AccessLog(ObserverThread):
    """Writes the lines; an observer of requests.

    Args:
        to: a file, to which lines are appended, or `line_file.STDERR`.

    Raises:
        ConfigurationError: the file cannot be opened.
    """

    def __init__(self, to: str) -> None:
        self._to, self._file = to, LineFile(to)
        self._failing = False
        super().__init__("access log")

    # -- in the thread

    def _take(self, requests: Sequence[AnsweredRequest], dropped: int) -> None:
        texts = list(map(text_of, requests))
        if dropped:
            texts.append(json.dumps({"time": _time(time.time()), "dropped_lines": dropped}))
        try:
            self._file.write(texts, self.is_late)
            self._failing = False
        except (OSError, ConfigurationError) as error:
            if not self._failing:
                log.error("access log not written: %s", error, extra={"file": self._to})
            self._failing = True

    def _close(self) -> None:
        self._file.close()


def text_of(request: AnsweredRequest) -> str:
    """The line in the file."""
    facts = {
        "time": _time(request.at / 10**9),
        "peer": request.client.peer,
        "client_id": request.client_id and request.client_id[:_LONGEST],
        "request": NAMES.get(request.key, f"unknown ({request.key})"),
        "version": request.version,
        "bytes": request.size,
        "response_bytes": request.response,
        "milliseconds": round(request.seconds * 1000, 3),
    }
    if request.response is None:
        facts["error"] = "no response: the connection has ended"
    elif codes := sorted({code for code in request.errors if code}):
        names = (BY_CODE[code].name if code in BY_CODE else str(code) for code in codes[:_MOST_ERRORS])
        facts["error"] = ", ".join(names)
    return json.dumps(facts)  # in ASCII: a client chooses its id, and terminals obey control characters


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
