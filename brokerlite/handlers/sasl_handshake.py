"""SaslHandshake v0-1, where it has no effect: the listener has no SASL.

On a listener with SASL the authentication comes before the broker (`ottla.sasl_server.session`).

Source: KafkaApis.scala (handleSaslHandshakeRequest).
"""

from ottla.brokerlite.machines.core import BrokerCore, Call
from ottla.codec.apis.sasl_handshake import SaslHandshakeResponse
from ottla.errors import IllegalSaslState


def handle(broker: BrokerCore, call: Call) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=IllegalSaslState.code, mechanisms=())
