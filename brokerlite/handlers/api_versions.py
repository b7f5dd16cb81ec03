"""ApiVersions v0-4: lists the APIs and versions that this broker serves.

v3+: the client names its software; a name with other characters than letters, digits, ``-`` and ``.`` is
INVALID_REQUEST. Like Apache Kafka 4.3, the broker answers an unknown version in v0 with UNSUPPORTED_VERSION and this
API alone, so that the client can retry. Features: transactions of version 2 (KIP-890), consumer groups (KIP-848) and
share groups (KIP-932) are on.
"""

import re
from collections.abc import Mapping

from ottla.brokerlite.machines.core import BrokerCore, Call, ServedApi
from ottla.brokerlite.machines.transactions.transaction_metadata import EPOCH_RISES
from ottla.codec.apis.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from ottla.codec.frames import API_VERSIONS
from ottla.errors import InvalidRequest, UnsupportedVersion

FEATURES = {"group.version": 1, "share.version": 1, "transaction.version": EPOCH_RISES}
"""Feature -> its version, which is the only one that this broker has."""
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(broker: BrokerCore, call: Call) -> ApiVersionsResponse:
    request: ApiVersionsRequest = call.message
    if call.header.api_version >= 3:
        name, version = request.client_software_name, request.client_software_version
        if not (_SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(version)):
            return ApiVersionsResponse(error_code=InvalidRequest.code, api_keys=())
        call.session.runs(name, version)
    return ApiVersionsResponse(
        error_code=0,
        api_keys=_advertised(broker.handlers),
        supported_features=tuple(
            SupportedFeatureKey(name=name, min_version=0, max_version=version) for name, version in FEATURES.items()
        ),
        finalized_features_epoch=0,
        finalized_features=tuple(
            FinalizedFeatureKey(name=name, min_version_level=version, max_version_level=version)
            for name, version in FEATURES.items()
        ),
    )


def unsupported(handlers: Mapping[int, ServedApi]) -> ApiVersionsResponse:
    """Return the response, in v0, to a request with an unknown version."""
    own = tuple(each for each in _advertised(handlers) if each.api_key == API_VERSIONS)
    return ApiVersionsResponse(error_code=UnsupportedVersion.code, api_keys=own)


def _advertised(handlers: Mapping[int, ServedApi]) -> tuple[ApiVersion, ...]:
    return tuple(
        ApiVersion(
            api_key=key,
            min_version=served.lowest if served.advertised_from < 0 else served.advertised_from,
            max_version=served.highest,
        )
        for key, served in sorted(handlers.items())
    )
