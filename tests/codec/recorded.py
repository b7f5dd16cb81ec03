"""The recorded frames of tests/wire, as tests use them."""

import base64
import gzip
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

WIRE = Path(__file__).parents[1] / "wire"
FILES = sorted(path.name.removesuffix(".jsonl.gz") for path in (WIRE / "frames").glob("*.jsonl.gz"))
"""The names of the recorded APIs."""
API_VERSIONS = 18
UNSUPPORTED_VERSION = 35


@dataclass(frozen=True)
class Exchange:
    """A request, and the response if there was one: a line of a frames file."""

    line: int
    client: str
    scenario: str
    api: str
    key: int
    """-1 for the raw SASL token, which is no request."""
    version: int
    request: bytes
    response: bytes | None
    decoded_request: dict[str, Any] | None
    decoded_response: dict[str, Any] | None

    def __str__(self) -> str:
        return f"{self.api}.jsonl line {self.line} ({self.client}, version {self.version}, {self.scenario})"

    @property
    def response_version(self) -> int:
        """A broker that does not know the version of an ApiVersions request answers in version 0 (KIP-511)."""
        assert self.response is not None
        refused = self.key == API_VERSIONS and int.from_bytes(self.response[4:6], "big") == UNSUPPORTED_VERSION
        return 0 if refused else self.version


@cache
def exchanges(api: str) -> list[Exchange]:
    """The lines of one file."""
    with gzip.open(WIRE / "frames" / f"{api}.jsonl.gz", "rt") as lines:
        return [_exchange(api, number, json.loads(line)) for number, line in enumerate(lines, 1)]


def _exchange(api: str, number: int, fields: dict[str, Any]) -> Exchange:
    return Exchange(
        line=number,
        client=fields["client"],
        scenario=fields["scenario"],
        api=api,
        key=-1 if fields["api_key"] is None else fields["api_key"],
        version=fields["api_version"] or 0,
        request=base64.b64decode(fields["request"]),
        response=base64.b64decode(fields["response"]) if fields["response"] else None,
        decoded_request=fields["decoded_request"],
        decoded_response=fields["decoded_response"],
    )
