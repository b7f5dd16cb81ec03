"""What the extension gives: the names of `ottla.codec._loops`, with their types."""

from ottla.codec._loops import Appender as Appender
from ottla.codec._loops import BatchHead as BatchHead
from ottla.codec._loops import Record as Record
from ottla.codec._loops import Records as Records
from ottla.codec._loops import gather as gather
from ottla.codec._loops import parse_records as parse_records
