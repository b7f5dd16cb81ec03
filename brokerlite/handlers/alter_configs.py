"""AlterConfigs v0-2: replaces the whole configuration of topics and groups (`config_changes`).

Administrators of older clients send it. Configurations that it does not name return to their defaults.

Source: ConfigurationControlManager.java (legacyAlterConfigResource).
"""

from ottla.brokerlite.handlers.config_changes import change_each
from ottla.brokerlite.machines.core import BrokerCore, Call
from ottla.codec.apis.alter_configs import AlterConfigsResourceResponse, AlterConfigsResponse


def handle(broker: BrokerCore, call: Call) -> AlterConfigsResponse:
    outcomes = change_each(broker, call, AlterConfigsResourceResponse, replace=True)
    return AlterConfigsResponse(responses=tuple(outcomes))
