"""What the extension gives: the names of `ottla.sdk.produce._append_in_python`, with their types."""

from ottla.sdk.produce._append_in_python import AppendFastPath as AppendFastPath
from ottla.sdk.produce._append_in_python import BlockingSendSoon as BlockingSendSoon
from ottla.sdk.produce._append_in_python import OpenBatch as OpenBatch
from ottla.sdk.produce._append_in_python import PartitionBuffer as PartitionBuffer
from ottla.sdk.produce._append_in_python import SendSoon as SendSoon
from ottla.sdk.produce._append_in_python import TopicBuffer as TopicBuffer
