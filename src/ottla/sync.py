"""The client for code that blocks: see `ottla.sdk.sync`."""

from ottla.uncollected import uncollected

with uncollected():
    from ottla.sdk.sync import Batch, Client, Consumer, ConsumerInterceptor, Producer, RebalanceListener, connect

__all__ = ["Batch", "Client", "Consumer", "ConsumerInterceptor", "Producer", "RebalanceListener", "connect"]
