"""AlterConfigs v0-2: replaces the whole configuration of topics and groups (`config_changes`).

Administrators of older clients send it. Configurations that it does not name return to their defaults.

Source: ConfigurationControlManager.java (legacyAlterConfigResource).
"""

from ottla.brokerlite.handlers.config_changes import change_each
from ottla.brokerlite.machines.core import BrokerCore, Call
from ottla.codec.apis.alter_configs import AlterConfigsResourceResponse, AlterConfigsResponse


def handle(broker: BrokerCore, call: Call) -> AlterConfigsResponse:
    return AlterConfigsResponse(
        responses=tuple(
            AlterConfigsResourceResponse(
                error_code=0 if error is None else error.code,
                error_message=None if error is None else error.detail or None,
                resource_type=asked.resource_type,
                resource_name=asked.resource_name,
            )
            for asked, error in change_each(broker, call, replace=True)
        )
    )
