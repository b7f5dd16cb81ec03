"""SaslAuthenticate v0-2, where it has no effect: the listener has no SASL.

On a listener with SASL the authentication comes before the broker (`ottla.sasl_server.session`).

Source: KafkaApis.scala (handleSaslAuthenticateRequest).
"""

from ottla.brokerlite.machines.core import BrokerCore, Call
from ottla.codec.apis.sasl_authenticate import SaslAuthenticateResponse
from ottla.sasl_server.session import misplaced_token


def handle(broker: BrokerCore, call: Call) -> SaslAuthenticateResponse:
    return misplaced_token()
