"""IncrementalAlterConfigs v0-1: changes single configurations of topics and groups (`config_changes`).

Source: ConfigurationControlManager.java (incrementalAlterConfigResource).
"""

from ottla.brokerlite.handlers.config_changes import change_each
from ottla.brokerlite.machines.core import BrokerCore, Call
from ottla.codec.apis.incremental_alter_configs import AlterConfigsResourceResponse, IncrementalAlterConfigsResponse


def handle(broker: BrokerCore, call: Call) -> IncrementalAlterConfigsResponse:
    outcomes = change_each(broker, call, AlterConfigsResourceResponse, replace=False)
    return IncrementalAlterConfigsResponse(responses=tuple(outcomes))
