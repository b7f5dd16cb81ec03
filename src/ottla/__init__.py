"""ottla, Kafka's little sister: everything a Python team needs around Kafka's wire protocol.

    import ottla

    async with ottla.connect("localhost:9092") as client, client.producer() as producer:
        receipt = await producer.send("greetings", b"hello", key=b"world")

The names below are loaded when they are first used, so that importing ottla is cheap. The same holds for the modules
`ottla.aio`, `ottla.sync`, `ottla.errors`, `ottla.codec`, `ottla.spark` and `ottla.testing`.
"""

import importlib
from typing import TYPE_CHECKING

from ottla.version import __version__ as __version__

if TYPE_CHECKING:
    from ottla import aio as aio
    from ottla import codec as codec
    from ottla import errors as errors
    from ottla import spark as spark
    from ottla import sync as sync
    from ottla import testing as testing
    from ottla.codec.records import Record
    from ottla.errors import (
        AcknowledgementFailed,
        AuthenticationFailed,
        BrokerError,
        CommitFailed,
        DeliveryFailed,
        OttlaError,
        PartialFailure,
        TimeoutExpired,
        TransactionAborted,
        TransactionOutcomeUnknown,
    )
    from ottla.oidc import ClientCredentials
    from ottla.sasl import OAuthBearer, Plain, ScramSha256, ScramSha512, Token
    from ottla.sdk.acls import AclBinding, AclBindingFilter
    from ottla.sdk.admin import (
        BrokerDescription,
        CommittedOffset,
        GroupDescription,
        GroupLag,
        GroupListing,
        HangingTransaction,
        ListedOffset,
        ProducerIdAndEpoch,
        ProducerState,
        ResetPlan,
        ScramCredentialHash,
        ShareGroupDescription,
        ShareOffset,
        TopicDescription,
        TransactionDescription,
        TransactionListing,
        UserDescription,
        offsets_from_csv,
    )
    from ottla.sdk.client import Client, connect
    from ottla.sdk.consumer import Batch, Consumer, ConsumerInterceptor, RebalanceListener
    from ottla.sdk.kafka_config import KafkaConfig, from_kafka_config
    from ottla.sdk.produce.records import Receipt
    from ottla.sdk.producer import Producer, ProducerInterceptor, ProducerRecord, Transaction
    from ottla.sdk.share_consumer import ShareConsumer, SharedRecord
    from ottla.sdk.transform import Batches, Transform, TransformTransaction
    from ottla.tls import TLS

_HOMES = {
    "AclBinding": "ottla.sdk.acls",
    "AclBindingFilter": "ottla.sdk.acls",
    "AcknowledgementFailed": "ottla.errors",
    "AuthenticationFailed": "ottla.errors",
    "Batch": "ottla.sdk.consumer",
    "Batches": "ottla.sdk.transform",
    "BrokerError": "ottla.errors",
    "ClientCredentials": "ottla.oidc",
    "Client": "ottla.sdk.client",
    "CommitFailed": "ottla.errors",
    "CommittedOffset": "ottla.sdk.admin",
    "Consumer": "ottla.sdk.consumer",
    "ConsumerInterceptor": "ottla.sdk.consumer",
    "DeliveryFailed": "ottla.errors",
    "GroupDescription": "ottla.sdk.admin",
    "GroupLag": "ottla.sdk.admin",
    "GroupListing": "ottla.sdk.admin",
    "HangingTransaction": "ottla.sdk.admin",
    "KafkaConfig": "ottla.sdk.kafka_config",
    "BrokerDescription": "ottla.sdk.admin",
    "ListedOffset": "ottla.sdk.admin",
    "OttlaError": "ottla.errors",
    "PartialFailure": "ottla.errors",
    "OAuthBearer": "ottla.sasl",
    "Plain": "ottla.sasl",
    "Producer": "ottla.sdk.producer",
    "ProducerIdAndEpoch": "ottla.sdk.admin",
    "ProducerInterceptor": "ottla.sdk.producer",
    "ProducerRecord": "ottla.sdk.producer",
    "ProducerState": "ottla.sdk.admin",
    "RebalanceListener": "ottla.sdk.consumer",
    "Receipt": "ottla.sdk.produce.records",
    "Record": "ottla.codec.records",
    "ResetPlan": "ottla.sdk.admin",
    "ScramCredentialHash": "ottla.sdk.admin",
    "ScramSha256": "ottla.sasl",
    "ScramSha512": "ottla.sasl",
    "Token": "ottla.sasl",
    "ShareConsumer": "ottla.sdk.share_consumer",
    "ShareGroupDescription": "ottla.sdk.admin",
    "ShareOffset": "ottla.sdk.admin",
    "SharedRecord": "ottla.sdk.share_consumer",
    "TLS": "ottla.tls",
    "TimeoutExpired": "ottla.errors",
    "TopicDescription": "ottla.sdk.admin",
    "Transaction": "ottla.sdk.producer",
    "TransactionAborted": "ottla.errors",
    "TransactionDescription": "ottla.sdk.admin",
    "TransactionListing": "ottla.sdk.admin",
    "TransactionOutcomeUnknown": "ottla.errors",
    "Transform": "ottla.sdk.transform",
    "TransformTransaction": "ottla.sdk.transform",
    "UserDescription": "ottla.sdk.admin",
    "connect": "ottla.sdk.client",
    "from_kafka_config": "ottla.sdk.kafka_config",
    "offsets_from_csv": "ottla.sdk.admin",
}

_MODULES = {"aio", "codec", "errors", "spark", "sync", "testing"}
"""Modules in the docs, as in ``ottla.aio.connect``: ``import ottla`` is enough to use them."""

__all__ = [
    "TLS",
    "AcknowledgementFailed",
    "AclBinding",
    "AclBindingFilter",
    "AuthenticationFailed",
    "Batch",
    "Batches",
    "BrokerDescription",
    "BrokerError",
    "Client",
    "ClientCredentials",
    "CommitFailed",
    "CommittedOffset",
    "Consumer",
    "ConsumerInterceptor",
    "DeliveryFailed",
    "GroupDescription",
    "GroupLag",
    "GroupListing",
    "HangingTransaction",
    "KafkaConfig",
    "ListedOffset",
    "OAuthBearer",
    "OttlaError",
    "PartialFailure",
    "Plain",
    "Producer",
    "ProducerIdAndEpoch",
    "ProducerInterceptor",
    "ProducerRecord",
    "ProducerState",
    "RebalanceListener",
    "Receipt",
    "Record",
    "ResetPlan",
    "ScramCredentialHash",
    "ScramSha256",
    "ScramSha512",
    "ShareConsumer",
    "ShareGroupDescription",
    "ShareOffset",
    "SharedRecord",
    "TimeoutExpired",
    "Token",
    "TopicDescription",
    "Transaction",
    "TransactionAborted",
    "TransactionDescription",
    "TransactionListing",
    "TransactionOutcomeUnknown",
    "Transform",
    "TransformTransaction",
    "UserDescription",
    "connect",
    "from_kafka_config",
    "offsets_from_csv",
]


def __getattr__(name: str) -> object:
    if home := _HOMES.get(name):
        from ottla.uncollected import uncollected

        with uncollected():
            found: object = getattr(importlib.import_module(home), name)
        globals()[name] = found
        return found
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
