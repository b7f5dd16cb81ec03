"""SaslAuthenticate v0-2, where it has no effect: the client has authenticated before, or the listener has no SASL.

Source: KafkaApis.scala (handleSaslAuthenticateRequest).
"""

from ottla.brokerlite.machines.core import BrokerCore, Call
from ottla.codec.apis.sasl_authenticate import SaslAuthenticateResponse
from ottla.errors import IllegalSaslState


def handle(broker: BrokerCore, call: Call) -> SaslAuthenticateResponse:
    text = "SaslAuthenticate request received after successful authentication"
    return SaslAuthenticateResponse(error_code=IllegalSaslState.code, error_message=text, auth_bytes=b"")
