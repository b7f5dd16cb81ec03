"""IncrementalAlterConfigs v0-1: changes single configurations of topics and groups (`config_changes`).

Source: ConfigurationControlManager.java (incrementalAlterConfigResource).
"""

from ottla.brokerlite.handlers.config_changes import change_each
from ottla.brokerlite.machines.core import BrokerCore, Call
from ottla.codec.apis.incremental_alter_configs import AlterConfigsResourceResponse, IncrementalAlterConfigsResponse


def handle(broker: BrokerCore, call: Call) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
        responses=tuple(
            AlterConfigsResourceResponse(
                error_code=0 if error is None else error.code,
                error_message=None if error is None else error.detail or None,
                resource_type=asked.resource_type,
                resource_name=asked.resource_name,
            )
            for asked, error in change_each(broker, call, replace=False)
        )
    )
