"""What the extension gives: the names of `ottla.codec._loops`, with their types."""

from ottla.codec._loops import Appender as Appender
from ottla.codec._loops import BatchHead as BatchHead
from ottla.codec._loops import Record as Record
from ottla.codec._loops import Records as Records
from ottla.codec._loops import count_keys as count_keys
from ottla.codec._loops import crc32_partition as crc32_partition
from ottla.codec._loops import fnv1a as fnv1a
from ottla.codec._loops import fnv1a_partition as fnv1a_partition
from ottla.codec._loops import fnv1a_reference_partition as fnv1a_reference_partition
from ottla.codec._loops import gather as gather
from ottla.codec._loops import lay_out as lay_out
from ottla.codec._loops import murmur2 as murmur2
from ottla.codec._loops import murmur2_partition as murmur2_partition
from ottla.codec._loops import parse_records as parse_records
from ottla.codec._loops import partition_column as partition_column
from ottla.codec._loops import read_heads as read_heads
from ottla.codec._loops import scan_keys as scan_keys
from ottla.codec._loops import scan_records as scan_records
