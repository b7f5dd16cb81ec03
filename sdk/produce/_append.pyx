# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True, binding=False, embedsignature=True, embedsignature.format=clinic
"""How a producer accepts records, in C. `ottla.sdk.produce._append_in_python` does the same, with the same names.

Rules:
- This file handles the good case, and leaves everything else to its caller.
- The batch is the codec's: `append_record` and `find_hash` are C functions of `ottla.codec._records`. They come in
  capsules and not by `cimport`, for two reasons. Nothing here depends on the layout of the codec's classes, so either
  extension can be built without the other. And Cython would look for a package `ottla.codec` in folders of that name,
  which neither the tree nor an sdist has.
"""

cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_Check, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItemWithError
from cpython.object cimport PyObject
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_IsValid
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_CheckExact, PyTuple_GET_SIZE, PyTuple_SET_ITEM
from libc.stdint cimport INT32_MAX, int64_t, uint8_t, uint32_t

import warnings
from types import GenericAlias
from typing import Generic

from ottla.codec._records import APPEND_RECORD, FIND_HASH, Appender
from ottla.sdk.produce._append_in_python import NOT_AWAITED, RECORD_OVERHEAD

cdef Py_ssize_t overhead = RECORD_OVERHEAD

# ---------------------------------------------------------------------------------------------------------------------
# The functions of the codec.

ctypedef uint32_t (*Hash)(const uint8_t*, Py_ssize_t) noexcept nogil
ctypedef Py_ssize_t (*AppendRecord)(object, object, object, object) except -1
ctypedef Hash (*FindHash)(object) except? NULL


cdef void* function_in(object capsule, const char* kind) except NULL:
    if not PyCapsule_IsValid(capsule, kind):
        raise ImportError("ottla.sdk.produce._append and ottla.codec._records are of different versions: build both again")
    return PyCapsule_GetPointer(capsule, kind)


cdef AppendRecord append_record = <AppendRecord>function_in(
    APPEND_RECORD, b"Py_ssize_t (appender, timestamp, key, value) except -1"
)
cdef FindHash find_hash = <FindHash>function_in(FIND_HASH, b"uint32_t (*(partitioner))(const uint8_t*, Py_ssize_t)")

# ---------------------------------------------------------------------------------------------------------------------
# Batches and partitions.

cdef extern from *:
    """
    #if PY_VERSION_HEX >= 0x030E0000  /* tuples cache their hash there, and only they can reset it */
    #define OTTLA_FILLS_TUPLES 0
    #else
    #define OTTLA_FILLS_TUPLES 1
    #endif
    """
    bint FILLS_TUPLES "OTTLA_FILLS_TUPLES"


cdef extern from "Python.h":
    unsigned long PyThread_get_thread_ident() noexcept nogil
    bint PyFunction_Check(object function)
    PyObject* PyFunction_GET_CODE(object function)
    object PyType_GenericAlloc(type kind, Py_ssize_t count)  # cpython.type accepts any object, and compilers warn


cdef int check_named_tuple(object make) except -1:
    """Refuse a class that `named_tuple` cannot fill."""
    if not isinstance(make, type) or not issubclass(make, tuple) or len(getattr(make, "_fields", ())) != 4:
        raise TypeError("no named tuple of four")
    return 0


cdef inline object named_tuple(object make, object first, object second, object third, object fourth):
    """Return ``make(first, second, third, fourth)``, without an intermediate plain tuple."""
    if not FILLS_TUPLES:
        return tuple.__new__(make, (first, second, third, fourth))
    made = PyType_GenericAlloc(<type>make, 4)
    Py_INCREF(first)
    PyTuple_SET_ITEM(made, 0, first)
    Py_INCREF(second)
    PyTuple_SET_ITEM(made, 1, second)
    Py_INCREF(third)
    PyTuple_SET_ITEM(made, 2, third)
    Py_INCREF(fourth)
    PyTuple_SET_ITEM(made, 3, fourth)
    return made


cdef class OpenBatch:
    """See `ottla.sdk.produce._append_in_python.OpenBatch`."""
    cdef readonly object builder  # an `Appender`; None before `__init__`
    cdef public Py_ssize_t room, left
    cdef public list callbacks, timestamps
    cdef public bint hurried

    def __init__(self, builder, Py_ssize_t room):
        if not issubclass(type(builder), Appender):  # `isinstance` would believe `__class__`
            raise TypeError(f"a batch is built by an Appender, not by {builder!r:.80}")
        self.builder = builder
        self.room = self.left = room
        self.callbacks, self.timestamps = [], []

    def add(self, Py_ssize_t size, timestamp, key, value, headers=(), callback=None):
        """Add a record of ``size`` bytes, even if not enough room is left.

        See `ottla.sdk.produce._append_in_python.OpenBatch.add`.
        """
        cdef Py_ssize_t index
        if self.builder is None:
            raise TypeError("the batch was not initialized")
        index = self.builder.append(timestamp, key, value, headers)
        self.left -= size
        if callback is not None:
            self.ask(index, timestamp, callback)

    def add_columns(self, Py_ssize_t size, timestamps, keys, values, headers):
        """Add records of ``size`` bytes together.

        See `ottla.sdk.produce._append_in_python.OpenBatch.add_columns`.
        """
        self.builder.extend_columns(timestamps, keys, values, headers)
        self.left -= size

    def call_back(
        self, list callbacks not None, make, topic, partition, int64_t base_offset, int64_t append_time, failed, check_result=None
    ):
        """Call each of ``callbacks`` with where its record is now, and forget it.

        See `ottla.sdk.produce._append_in_python.OpenBatch.call_back`.
        """
        cdef list timestamps = self.timestamps
        cdef Py_ssize_t i = 0
        cdef object callback, result, stamp = append_time
        check_named_tuple(make)
        while i < len(callbacks) and i < len(timestamps):  # a callback may do anything
            callback = callbacks[i]
            if callback is not None:
                if append_time < 0:
                    stamp = timestamps[i]
                receipt = named_tuple(make, topic, partition, base_offset + i if base_offset >= 0 else -1, stamp)
                callbacks[i] = None
                try:
                    result = callback(receipt)
                    if result is not None and check_result is not None:
                        check_result(result)
                except BaseException as error:  # a callback's error must not stop the other callbacks
                    failed(error, receipt)
            i += 1

    cdef int ask(self, Py_ssize_t index, object timestamp, object callback) except -1:
        cdef Py_ssize_t gap = index - len(self.callbacks)
        while gap > 0:  # one by one: making a list may collect garbage, and a finalizer may let other threads run
            self.callbacks.append(None)
            self.timestamps.append(0)
            gap -= 1
        self.callbacks.append(callback)
        self.timestamps.append(timestamp)
        return 0


cdef class PartitionBuffer:
    """See `ottla.sdk.produce._append_in_python.PartitionBuffer`."""
    cdef public OpenBatch open

    def __init__(self, OpenBatch open not None):
        self.open = open


cdef class TopicBuffer:
    """See `ottla.sdk.produce._append_in_python.TopicBuffer`."""
    cdef public list partitions
    cdef public PartitionBuffer sticky

    def __init__(self, Py_ssize_t partitions):
        self.partitions = [None] * partitions

    def stick_to(self, PartitionBuffer partition not None):
        """See `ottla.sdk.produce._append_in_python.TopicBuffer.stick_to`."""
        self.sticky = partition


@cython.final
cdef class AppendFastPath:
    """See `ottla.sdk.produce._append_in_python.AppendFastPath`."""
    cdef object hash, check_callback, checked
    cdef bytearray entered
    cdef Hash place
    cdef unsigned long thread
    cdef bint any_thread
    cdef public dict topics
    cdef public Py_ssize_t free

    def __init__(self, hash, Py_ssize_t free, check_callback=None, bytearray entered=None, bint any_thread=False):
        self.hash, self.place = hash, find_hash(hash)
        self.check_callback = check_callback
        self.entered = bytearray(1) if entered is None else entered
        self.any_thread = any_thread
        self.thread = PyThread_get_thread_ident()
        self.topics = {}
        self.free = free

    def show(self, dict topics not None):
        """See `ottla.sdk.produce._append_in_python.AppendFastPath.show`."""
        self.topics = topics

    def reserve(self, Py_ssize_t size):
        """See `ottla.sdk.produce._append_in_python.AppendFastPath.reserve`."""
        self.free -= size

    def release(self, Py_ssize_t size):
        """See `ottla.sdk.produce._append_in_python.AppendFastPath.release`."""
        self.free += size

    cpdef object check(self, object callback):
        """Check ``callback``, unless it has the code of the previous one.

        See `ottla.sdk.produce._append_in_python.AppendFastPath.check`.
        """
        cdef object code
        code = <object>PyFunction_GET_CODE(callback) if PyFunction_Check(callback) else getattr(callback, "__code__", None)
        if code is None or code is not self.checked:
            if self.check_callback is not None:
                self.check_callback(callback)
            self.checked = code

    def append(self, topic, value, key, timestamp, callback=None, bint awaited=False):
        """Append a record to its batch; return ``False`` if the caller has to handle the record instead.

        See `ottla.sdk.produce._append_in_python.AppendFastPath.append`.
        """
        return self.take(topic, value, key, timestamp, callback, awaited)

    def append_many(self, topic, pairs, timestamp, callback=None, Py_ssize_t most=INT32_MAX):
        """Append records of ``(value, key)``, as long as `append` can.

        See `ottla.sdk.produce._append_in_python.AppendFastPath.append_many`.
        """
        if most <= 0:
            return ()
        for value, key in pairs:
            if not self.take(topic, value, key, timestamp, callback, False):
                return value, key
            most -= 1
            if most == 0:
                return ()
        return None

    cdef bint take(
        self, object topic, object value, object key, object timestamp, object callback, bint awaited
    ) except -1:
        cdef PartitionBuffer partition_buffer
        cdef OpenBatch batch
        cdef Py_ssize_t count, size = overhead
        if not self.any_thread and PyThread_get_thread_ident() != self.thread:
            return False
        if self.is_entered():
            return False
        if callback is not None and not awaited:
            self.check(callback)
        partition_buffer = self.find(topic, key)
        if partition_buffer is None or self.is_entered():  # another thread ran during a Python partitioner
            return False
        batch = partition_buffer.open
        if batch is None or batch.builder is None:
            return False
        if key is not None:
            size += PyBytes_GET_SIZE(key)
        if value is not None:
            if not PyBytes_Check(value):
                return False
            size += PyBytes_GET_SIZE(value)
        if batch.left < size or self.free < size or (awaited and not batch.hurried):
            return False
        count = append_record(batch.builder, timestamp, key, value)
        batch.left -= size
        self.free -= size
        if callback is not None:
            batch.ask(count - 1, timestamp, callback)
        return True

    cdef bint is_entered(self):
        cdef Py_ssize_t size = 0 if self.entered is None else PyByteArray_GET_SIZE(self.entered)
        cdef char* entered
        if size == 0:
            return True
        entered = PyByteArray_AS_STRING(self.entered)
        return entered[0] or (size > 1 and entered[1])

    cdef PartitionBuffer find(self, object topic, object key):
        """Return the partition for a record; ``None`` if the caller has to find out."""
        cdef PyObject* found = NULL
        cdef TopicBuffer buffer
        cdef Py_ssize_t count, partition
        if self.topics is None:
            return None
        try:
            found = PyDict_GetItemWithError(self.topics, topic)
        except Exception:  # an unhashable topic; the caller raises the error
            return None
        if found == NULL or not isinstance(<object>found, TopicBuffer):
            return None
        buffer = <TopicBuffer>found
        if key is None:
            return buffer.sticky
        if not PyBytes_Check(key) or PyBytes_GET_SIZE(key) == 0 or buffer.partitions is None:
            return None
        count = len(buffer.partitions)
        if self.place != NULL:
            if count == 0:
                return None
            partition = self.place(<const uint8_t*>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key)) % <uint32_t>count
        else:
            try:
                partition = self.hash(key, count)
            except Exception:  # an error in a custom partitioner; the caller raises it
                return None
            if not 0 <= partition < len(buffer.partitions):
                return None
        partition_buffer = buffer.partitions[partition]
        return <PartitionBuffer>partition_buffer if isinstance(partition_buffer, PartitionBuffer) else None


@cython.final
@cython.freelist(8)
cdef class Accepted:
    """See `ottla.sdk.produce._append_in_python.Accepted`."""
    cdef bint awaited

    def __dealloc__(self):
        if not self.awaited:
            warnings.warn(NOT_AWAITED, RuntimeWarning, stacklevel=1)

    def __await__(self):
        return self

    def __next__(self):
        self.awaited = True
        raise StopIteration

    def send(self, value):
        self.awaited = True
        raise StopIteration

    def throw(self, kind, value=None, traceback=None):
        self.awaited = True
        raise kind if value is None else value

    def close(self):
        self.awaited = True


@cython.auto_pickle(False)
cdef class _FastPath:
    """See `ottla.sdk.produce._append_in_python._FastPath`."""
    cdef AppendFastPath appends
    cdef object clock, stamp
    cdef int64_t now

    @classmethod
    def __class_getitem__(cls, types):
        """In the faces, `Generic` checks how many types there are, as it does in Python."""
        return super(_FastPath, cls).__class_getitem__(types) if issubclass(cls, Generic) else GenericAlias(cls, types)

    def _open_fast_path(self, AppendFastPath appends not None, clock):
        """See `ottla.sdk.produce._append_in_python._FastPath`."""
        self.appends, self.clock, self.now, self.stamp = appends, clock, 0, 0

    def _close_fast_path(self):
        """See `ottla.sdk.produce._append_in_python._FastPath`."""
        self.appends = None


@cython.auto_pickle(False)
cdef class SendSoon(_FastPath):
    """See `ottla.sdk.produce._append_in_python.SendSoon`."""

    def send_soon(
        self, topic, value, *, key=None, partition=None, headers=(), timestamp=None, on_delivery=None
    ):
        """Accept a record, waiting only for buffer space; arguments as in `send`.

        If the record fails later, another call or the end of the block raises the error.

        If there is space, the call itself may accept the record, before you await it. Await it in any case: no record
        is sent while your task never waits.

        Records of `send`, `send_soon` and `send_many` are accepted in the order of the calls, across all tasks. Only
        `send_nowait` may overtake calls of other tasks, because it cannot wait as they do.

        Args:
            on_delivery: is called with the `Receipt` or the error, so no error is raised later.

        Raises:
            DeliveryFailed: records accepted earlier have failed.
            DeliveryTimeout: there was no space within `delivery_timeout`.
            RecordTooLarge, EncodeError: this record was refused.
            ConfigurationError: ``on_delivery`` is not callable, or is async.
        """
        cdef AppendFastPath appends = self.appends  # kept: the check of a callback may close the fast path
        cdef int64_t now
        if appends is not None:
            now = <int64_t>self.clock() // 1_000_000
            if now != self.now:
                self.now, self.stamp = now, now
            elif partition is None and timestamp is None and PyTuple_CheckExact(headers) and not PyTuple_GET_SIZE(headers):
                if appends.take(topic, value, key, self.stamp, on_delivery, False):
                    return Accepted.__new__(Accepted)
        return self._send_soon(topic, value, key, partition, headers, timestamp, on_delivery)


@cython.auto_pickle(False)
cdef class BlockingSendSoon(_FastPath):
    """See `ottla.sdk.produce._append_in_python.BlockingSendSoon`."""

    def send_soon(
        self, topic, value, *, key=None, partition=None, headers=(), timestamp=None, on_delivery=None
    ):
        """Accept a record, waiting only for buffer space; arguments as in `send`.

        If the record fails later, another call or the end of the block raises the error.

        It waits for space only; the client's own thread sends the batches, whatever yours does.

        Records of `send`, `send_soon` and `send_many` are accepted in the order of the calls, across all threads. Only
        `send_nowait` may overtake calls of other threads, because it cannot wait as they do.

        Args:
            on_delivery: is called with the `Receipt` or the error, so no error is raised later: in your thread, or
                another that uses the client, within a call of it.

        Raises:
            DeliveryFailed: records accepted earlier have failed.
            DeliveryTimeout: there was no space within `delivery_timeout`.
            RecordTooLarge, EncodeError: this record was refused.
            ConfigurationError: ``on_delivery`` is not callable, or is async.
        """
        cdef AppendFastPath appends = self.appends  # kept: the check of a callback may close the fast path
        cdef int64_t now
        if appends is not None and partition is None and timestamp is None and PyTuple_CheckExact(headers) and not PyTuple_GET_SIZE(headers):
            now = <int64_t>self.clock() // 1_000_000
            if now != self.now:
                self.now, self.stamp = now, now
            if appends.take(topic, value, key, self.stamp, on_delivery, False):
                return
        self._send_soon(topic, value, key, partition, headers, timestamp, on_delivery)
