# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True, binding=False, embedsignature=True, embedsignature.format=clinic
"""The loops over records in C. `ottla.codec._loops` does the same in Python, with the same names.

Rules:
- No read is outside the body: each is first compared with the record's end, and a record's end with the body's. Results
  of such checks are kept in `Row`s, and never computed again from bytes that another thread may have changed meanwhile.
- No Python code runs between getting an address and its last use.
- This file handles the good case. It only notices damage and values that do not fit; the Python twin then says what is
  wrong, so that both report the same error.
- A buffer is exported through its owner: a record, a column or an Arrow array keeps its memory alive.
"""

cimport cython
from cpython.buffer cimport (
    PyBUF_FORMAT, PyBUF_ND, PyBUF_SIMPLE, PyBUF_STRIDES, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer,
)
from cpython.bytes cimport (
    PyBytes_AS_STRING, PyBytes_Check, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE,
)
from cpython.list cimport PyList_CheckExact, PyList_GET_ITEM
from cpython.long cimport PyLong_AsLongLongAndOverflow, PyLong_Check
from cpython.memoryview cimport PyMemoryView_FromObject
from cpython.number cimport PyNumber_AsSsize_t
from cpython.object cimport PyObject, PyObject_GenericGetAttr
from cpython.pycapsule cimport PyCapsule_New
from cpython.tuple cimport PyTuple_Check, PyTuple_CheckExact, PyTuple_GET_ITEM, PyTuple_GET_SIZE
from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_CheckExact, PyUnicode_DecodeUTF8
from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memmove, memset

from ottla.codec._loops import (
    BEYOND, FARTHEST, HEADER_MEMORY, MIX_MULTIPLIER, NO_TIMESTAMP, SECOND_MIX_MULTIPLIER, WIDE, DamagedRecord,
    Record as PythonRecord, TooMuchMemory, check_columns, check_offsets, encode_headers, make_record, no_partitioner,
    no_records, positive, refuse, refuse_pickling, refuse_record, too_large,
)
from ottla.errors import DecodeError, EncodeError

# ---------------------------------------------------------------------------------------------------------------------
# Memory that is reused. Touching a page for the first time costs microseconds, and allocators return large blocks to
# the system; so we keep a few. The GIL protects them.

cdef enum:
    SMALL = 32 << 10            # smaller blocks are left to the allocator, and smaller work keeps the GIL
    IDLE = 128                  # maximum number of blocks kept,
    IDLE_BYTES = 32 << 20       # and their total size

cdef struct Block:
    void* at
    size_t room

cdef Block idle[IDLE]
cdef size_t idle_bytes = 0


cdef extern from "Python.h":
    int PyTraceMalloc_Track(unsigned int domain, size_t at, size_t size)
    int PyTraceMalloc_Untrack(unsigned int domain, size_t at)


cdef void* take(size_t size, size_t* room) noexcept:
    """Return memory of at least `size` bytes, and its size; NULL if there is none. `tracemalloc` sees it."""
    cdef void* at = find_block(size, room)
    if at != NULL:
        PyTraceMalloc_Track(0, <size_t>at, room[0])
    return at


cdef void* find_block(size_t size, size_t* room) noexcept:
    global idle_bytes
    cdef int i
    cdef void* at
    if size <= SMALL:
        room[0] = size
        return malloc(size if size else 1)
    for i in range(IDLE):
        if size <= idle[i].room < 2 * size:  # like a new block, so memory does not depend on earlier batches
            at = idle[i].at
            room[0] = idle[i].room
            idle_bytes -= idle[i].room
            idle[i].at = NULL
            idle[i].room = 0
            return at
    room[0] = 2 * SMALL if size <= IDLE_BYTES else size
    while room[0] < size:
        room[0] *= 2
    return malloc(room[0])


cdef void give(void* at, size_t room) noexcept:
    """Take back memory from `take`."""
    global idle_bytes
    cdef int i, place = 0
    if at == NULL:
        return
    PyTraceMalloc_Untrack(0, <size_t>at)
    if SMALL < room <= IDLE_BYTES:
        for i in range(IDLE):  # use a free entry, or that of the smallest block
            if idle[i].room < idle[place].room:
                place = i
        if idle[place].room < room and idle_bytes - idle[place].room + room <= IDLE_BYTES:
            idle_bytes += room - idle[place].room
            idle[place].room, room = room, idle[place].room
            idle[place].at, at = at, idle[place].at
    free(at)


cdef inline void copy(void* to, const void* source, size_t size) noexcept nogil:
    """Copy like `memcpy`, but without a call for short data, which keys and values often are."""
    cdef char* target = <char*>to
    cdef const char* data = <const char*>source
    if size > 128:
        memcpy(target, data, size)
    elif size >= 64:
        memcpy(target, data, 64)
        memcpy(target + size - 64, data + size - 64, 64)
    elif size >= 32:
        memcpy(target, data, 32)
        memcpy(target + size - 32, data + size - 32, 32)
    elif size >= 16:
        memcpy(target, data, 16)
        memcpy(target + size - 16, data + size - 16, 16)
    elif size >= 8:
        memcpy(target, data, 8)
        memcpy(target + size - 8, data + size - 8, 8)
    else:
        while size:
            size -= 1
            target[size] = data[size]


# ---------------------------------------------------------------------------------------------------------------------
# Reading.

cdef enum:
    HEADER = 61
    LENGTH_END = 12
    LOG_APPEND_TIME = 0x08
    LEAST_RECORD = 7

cdef uint64_t odd = MIX_MULTIPLIER
cdef uint64_t odd_too = SECOND_MIX_MULTIPLIER
cdef int64_t farthest = FARTHEST
cdef int64_t header_memory = HEADER_MEMORY
cdef int64_t wide = WIDE
cdef int64_t no_timestamp = NO_TIMESTAMP


cdef inline uint64_t number(const uint8_t* at, int size) noexcept nogil:
    """Read a big-endian integer."""
    cdef uint64_t value = 0
    cdef int i
    for i in range(size):
        value = value << 8 | at[i]
    return value


cdef struct Base:
    # The base of the deltas in records.
    int64_t offset
    int64_t timestamp
    bint stamped                # by the broker: all records have `timestamp`


@cython.no_gc
cdef class BatchHead:
    """See `ottla.codec._loops.BatchHead`."""
    cdef public int64_t base_offset, base_timestamp, max_timestamp, producer_id
    cdef public int32_t partition_leader_epoch, last_offset_delta, base_sequence, count
    cdef public uint32_t crc
    cdef public int16_t attributes, producer_epoch
    cdef public object data

    def read(self, data, Py_ssize_t offset):
        """See `ottla.codec._loops.BatchHead.read`."""
        cdef Py_buffer view
        cdef Py_ssize_t size = 0
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        if 0 <= offset <= view.len:
            size = self.fill(<const uint8_t*>view.buf + offset, view.len - offset)
        PyBuffer_Release(&view)
        if size:
            self.data = data[offset:offset + size]
        return size > 0

    def parse(self, body, int64_t room):
        """See `ottla.codec._loops.BatchHead.parse`."""
        cdef Base base
        self.set_base(&base)
        return find_records(body, self.count, &base, room)

    cdef void set_base(self, Base* base) noexcept:
        base.offset, base.stamped = self.base_offset, self.attributes & LOG_APPEND_TIME != 0
        base.timestamp = self.max_timestamp if base.stamped else self.base_timestamp

    cdef Py_ssize_t fill(self, const uint8_t* at, Py_ssize_t left) noexcept:
        """Read the header; return the size of the batch, 0 if no complete batch of magic 2 is there."""
        cdef Py_ssize_t size
        if left < HEADER or at[16] != 2:
            return 0
        size = <int32_t>number(at + 8, 4)
        size += LENGTH_END
        if not HEADER <= size <= left:
            return 0
        self.base_offset = <int64_t>number(at, 8)
        self.partition_leader_epoch = <int32_t>number(at + 12, 4)
        self.crc = <uint32_t>number(at + 17, 4)
        self.attributes = <int16_t>number(at + 21, 2)
        self.last_offset_delta = <int32_t>number(at + 23, 4)
        self.base_timestamp = <int64_t>number(at + 27, 8)
        self.max_timestamp = <int64_t>number(at + 35, 8)
        self.producer_id = <int64_t>number(at + 43, 8)
        self.producer_epoch = <int16_t>number(at + 51, 2)
        self.base_sequence = <int32_t>number(at + 53, 4)
        self.count = <int32_t>number(at + 57, 4)
        return size


def read_heads(make, data, int64_t end, int16_t mask):
    """See `ottla.codec._loops.read_heads`."""
    cdef list heads = []
    cdef BatchHead head
    cdef Py_buffer view
    cdef Py_ssize_t at = 0, size
    cdef int64_t last_offset
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        while True:
            head = make()
            size = head.fill(<const uint8_t*>view.buf + at, view.len - at)
            if not size or head.attributes & mask or not 0 <= head.base_offset <= farthest:
                break
            last_offset = head.base_offset + head.last_offset_delta
            if (at and head.base_offset < end) or last_offset < end:
                break
            end = last_offset + 1
            head.data = data[at:at + size]
            heads.append(head)
            at += size
    finally:
        PyBuffer_Release(&view)
    return heads, at


cdef struct Row:
    # A record: the positions of its parts in the body.
    int64_t offset
    int64_t timestamp
    int32_t key_at
    int32_t key_size        # -1: null
    int32_t value_at
    int32_t value_size
    int32_t headers_at      # position of their count; 0: no headers
    int32_t end

cdef struct Header:
    int32_t name_at
    int32_t name_size
    int32_t value_at
    int32_t value_size


cdef inline int64_t signed_of(uint64_t n) noexcept nogil:
    return <int64_t>(n >> 1) ^ -<int64_t>(n & 1)


cdef const uint8_t* long_varint(const uint8_t* at, const uint8_t* end, int bits, uint64_t* n) noexcept nogil:
    cdef uint64_t byte, value = at[0] & 0x7F
    cdef int shift = 7
    while True:
        at += 1
        if at >= end or shift >= bits:
            return NULL
        byte = at[0]
        if shift == 63 and byte > 1:
            return NULL
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    if bits == 32 and value >> 32:
        return NULL
    n[0] = value
    return at + 1


cdef inline const uint8_t* varint(const uint8_t* at, const uint8_t* end, int bits, uint64_t* n) noexcept nogil:
    """Read a varint without undoing zigzag; return its end, or NULL if it is truncated or longer than `bits` bits."""
    cdef uint64_t low, high
    if end - at >= 2:
        low = at[0]
        if low < 0x80:
            n[0] = low
            return at + 1
        high = at[1]
        if high < 0x80:
            n[0] = (low & 0x7F) | high << 7
            return at + 2
        return long_varint(at, end, bits, n)
    if at < end and at[0] < 0x80:
        n[0] = at[0]
        return at + 1
    return NULL


cdef inline const uint8_t* sized(
    const uint8_t* body, const uint8_t* at, const uint8_t* end, int32_t* start, int32_t* size
) noexcept nogil:
    """Read nullable bytes; positions count from `body`."""
    cdef uint64_t n = 0
    at = varint(at, end, 32, &n)
    if at == NULL:
        return NULL
    start[0] = <int32_t>(at - body)
    if n & 1:
        size[0] = -1
        return at if n == 1 else NULL
    n >>= 1
    if n > <uint64_t>(end - at):
        return NULL
    size[0] = <int32_t>n
    return at + n


cdef bint is_utf8(const uint8_t* at, const uint8_t* end, bint* ascii) noexcept nogil:
    """Whether Python would decode it: no over-long forms, no surrogates, no code points above U+10FFFF."""
    cdef uint8_t lead, low, high
    cdef int more, i
    while at < end:
        lead = at[0]
        if lead < 0x80:
            at += 1
            continue
        ascii[0] = False
        low, high = 0x80, 0xBF
        if lead < 0xC2:
            return False
        elif lead < 0xE0:
            more = 1
        elif lead < 0xF0:
            more = 2
            if lead == 0xE0:
                low = 0xA0
            elif lead == 0xED:
                high = 0x9F
        elif lead < 0xF5:
            more = 3
            if lead == 0xF0:
                low = 0x90
            elif lead == 0xF4:
                high = 0x8F
        else:
            return False
        if end - at <= more or not low <= at[1] <= high:
            return False
        for i in range(2, more + 1):
            if at[i] & 0xC0 != 0x80:
                return False
        at += more + 1
    return True


cdef inline const uint8_t* header(
    const uint8_t* body, const uint8_t* at, const uint8_t* end, Header* pair
) noexcept nogil:
    """Read a header, without checking its name."""
    at = sized(body, at, end, &pair.name_at, &pair.name_size)
    if at == NULL or pair.name_size < 0:
        return NULL
    return sized(body, at, end, &pair.value_at, &pair.value_size)


cdef inline const uint8_t* header_count(const uint8_t* at, const uint8_t* end, Py_ssize_t* count) noexcept nogil:
    cdef uint64_t n = 0
    at = varint(at, end, 32, &n)
    if at == NULL or n & 1 or n >> 1 > <uint64_t>(end - at):
        return NULL
    count[0] = n >> 1
    return at


cdef const uint8_t* read_headers(
    const uint8_t* body, const uint8_t* at, const uint8_t* end, Row* row, int64_t* room
) noexcept nogil:
    """Check the headers of a record, and subtract their memory from `room`; return where they end.

    NULL if they are damaged, or need more room; then `room` is negative.
    """
    cdef Header pair
    cdef Py_ssize_t i, count = 0
    cdef bint ascii = True
    row.headers_at = <int32_t>(at - body)
    at = header_count(at, end, &count)
    if count == 0:
        row.headers_at = 0
    room[0] -= count * header_memory
    if room[0] < 0:
        return NULL
    for i in range(count):
        at = sized(body, at, end, &pair.name_at, &pair.name_size)
        if at == NULL or pair.name_size < 0:
            return NULL
        if not is_utf8(body + pair.name_at, body + pair.name_at + pair.name_size, &ascii):
            return NULL
        if not ascii:
            ascii = True
            room[0] -= (wide - 1) * pair.name_size
            if room[0] < 0:
                return NULL
        at = sized(body, at, end, &pair.value_at, &pair.value_size)
        if at == NULL:
            return NULL
    return at


cdef inline bint add(int64_t base, int64_t delta, int64_t* total) noexcept nogil:
    """Add; return whether the sum fits."""
    if base > INT64_MAX - delta if delta > 0 else base < INT64_MIN - delta:
        return False
    total[0] = base + delta
    return True


cdef inline const uint8_t* read_row(
    const uint8_t* body, const uint8_t* at, const uint8_t* stop, const Base* base, int64_t* room, Row* row
) noexcept nogil:
    """Find the parts of the record that begins at `at`; return where it ends, or NULL if it is damaged.

    `room`: see `read_headers`; with NULL, a record with headers counts as damaged.
    """
    cdef const uint8_t* end
    cdef uint64_t n = 0
    at = varint(at, stop, 32, &n)
    if at == NULL or n & 1 or n == 0 or n >> 1 > <uint64_t>(stop - at):
        return NULL
    end = at + (n >> 1)
    at = varint(at + 1, end, 64, &n)  # after the attributes
    if at == NULL:
        return NULL
    if base.stamped:
        row.timestamp = base.timestamp
    elif not add(base.timestamp, signed_of(n), &row.timestamp):
        return NULL
    at = varint(at, end, 32, &n)
    if at == NULL or not add(base.offset, signed_of(n), &row.offset):
        return NULL
    at = sized(body, at, end, &row.key_at, &row.key_size)
    if at == NULL:
        return NULL
    at = sized(body, at, end, &row.value_at, &row.value_size)
    if at == NULL or at >= end:
        return NULL
    if at[0] == 0:
        row.headers_at = 0
        at += 1
    elif room == NULL:
        return NULL
    else:
        at = read_headers(body, at, end, row, room)
    if at != end:
        return NULL
    row.end = <int32_t>(at - body)
    return at


cdef Py_ssize_t read_rows(
    const uint8_t* body, Py_ssize_t size, Py_ssize_t count, const Base* base, int64_t* room, Row* rows
) noexcept nogil:
    """Find the `count` records of a body; return `count`, the index of a damaged one, or -1 if extra bytes follow."""
    cdef const uint8_t* at = body
    cdef Py_ssize_t i
    for i in range(count):
        at = read_row(body, at, body + size, base, room, rows + i)
        if at == NULL:
            return i
    return count if at == body + size else -1


@cython.final
@cython.no_gc
cdef class Body:
    """The bytes of a batch's records, and the position of each."""
    cdef Py_buffer view
    cdef Row* rows
    cdef size_t room
    cdef Body origin    # the owner of the bytes, if that is another

    def __dealloc__(self):
        give(self.rows, self.room)
        PyBuffer_Release(&self.view)

    cdef inline object cut(self, int32_t at, int32_t size):
        return None if size < 0 else PyBytes_FromStringAndSize(<const char*>self.view.buf + at, size)

    cdef Py_ssize_t least(self, const Row* row) except -1:
        """Return the fewest bytes for the headers; the original is longer if a number is not in its shortest form."""
        cdef const uint8_t* body = <const uint8_t*>self.view.buf
        cdef const uint8_t* end = body + row.end
        cdef Header pair
        cdef Py_ssize_t i, least, count = 0
        cdef const uint8_t* at = header_count(body + row.headers_at, end, &count)
        least = varint_size(zigzag(count))
        for i in range(count):
            at = header(body, at, end, &pair)
            if at == NULL:
                break
            least += varint_size(zigzag(pair.name_size)) + pair.name_size
            least += varint_size(zigzag(pair.value_size)) + max(pair.value_size, 0)
        if at != end:
            raise changed(row.offset)
        return least

    cdef bytes shortest(self, const Row* row, Py_ssize_t least):
        """Encode the headers with all numbers in their shortest form: ``least`` bytes in all."""
        cdef const uint8_t* body = <const uint8_t*>self.view.buf
        cdef const uint8_t* end = body + row.end
        cdef Header pair
        cdef Bytes name, value
        cdef Py_ssize_t i, count = 0
        cdef const uint8_t* at = header_count(body + row.headers_at, end, &count)
        cdef bytes block = PyBytes_FromStringAndSize(NULL, least)
        cdef uint8_t* to = <uint8_t*>PyBytes_AS_STRING(block)
        cdef uint8_t* room = to + least
        if varint_size(zigzag(count)) > least:
            raise changed(row.offset)
        to = put_varint(to, zigzag(count))
        for i in range(count):
            at = header(body, at, end, &pair)
            if at == NULL:
                raise changed(row.offset)
            name = Bytes(<const char*>body + pair.name_at, pair.name_size)
            value = Bytes(<const char*>body + pair.value_at, pair.value_size)
            if sized_size(&name) + sized_size(&value) > <size_t>(room - to):
                raise changed(row.offset)
            to = put_sized(put_sized(to, &name), &value)
        if to != room:
            raise changed(row.offset)
        return block

    cdef tuple headers(self, const Row* row):
        cdef const uint8_t* body = <const uint8_t*>self.view.buf
        cdef const uint8_t* end = body + row.end
        cdef Header pair
        cdef Py_ssize_t i, count = 0
        cdef list pairs = []
        cdef const uint8_t* at = header_count(body + row.headers_at, end, &count)
        for i in range(count):
            at = header(body, at, end, &pair)
            if at == NULL:
                break
            try:
                name = PyUnicode_DecodeUTF8(<const char*>body + pair.name_at, pair.name_size, NULL)
            except UnicodeDecodeError:
                at = NULL
                break
            pairs.append((name, self.cut(pair.value_at, pair.value_size)))
        if at != end:
            raise changed(row.offset)
        return tuple(pairs)


cdef object changed(int64_t offset):
    reason = "the bytes have changed since their batch was opened"
    return DecodeError(reason, "headers", within=f"records from offset {offset} on")


cdef str OFFSET = "offset", TIMESTAMP = "timestamp", KEY = "key", VALUE = "value", HEADERS = "headers"


@cython.final
@cython.no_gc
@cython.freelist(512)
cdef class Record:
    """Record(offset, timestamp, key, value, headers=())\n--\n
    One record as a consumer sees it; see `ottla.codec._loops.Record`.
    """
    cdef Body body          # if it was read,
    cdef const Row* row
    cdef tuple fields       # or the arguments that it was made from

    __match_args__ = PythonRecord.__match_args__
    __dataclass_fields__ = PythonRecord.__dataclass_fields__  # used by `dataclasses.replace` and others

    def __init__(self, offset, timestamp, key, value, headers=()):
        self.body = None
        self.fields = (offset, timestamp, key, value, headers)

    cdef object field(self, int index):
        if self.fields is None:
            raise AttributeError("this Record was made without __init__")
        return self.fields[index]

    def __getattribute__(self, name):
        # Nearly always it is one of these. Searching the type costs more than everything else here. Names are interned.
        if self.body is not None:
            if name is VALUE:
                return self.body.cut(self.row.value_at, self.row.value_size)
            if name is KEY:
                return self.body.cut(self.row.key_at, self.row.key_size)
            if name is OFFSET:
                return self.row.offset
            if name is TIMESTAMP:
                return self.row.timestamp
            if name is HEADERS and self.row.headers_at == 0:
                return ()
        return PyObject_GenericGetAttr(self, name)

    @property
    def offset(self):
        return self.row.offset if self.body is not None else self.field(0)

    @property
    def timestamp(self):
        return self.row.timestamp if self.body is not None else self.field(1)

    @property
    def key(self):
        if self.body is None:
            return self.field(2)
        return self.body.cut(self.row.key_at, self.row.key_size)

    @property
    def value(self):
        if self.body is None:
            return self.field(3)
        return self.body.cut(self.row.value_at, self.row.value_size)

    @property
    def headers(self):
        if self.body is None:
            return self.field(4)
        return self.body.headers(self.row) if self.row.headers_at else ()

    @property
    def topic(self):
        raise AttributeError("a Record has no topic: its batch has it", name="topic", obj=None)

    @property
    def partition(self):
        raise AttributeError("a Record has no partition: its batch has it", name="partition", obj=None)

    cdef tuple all(self):
        return (self.offset, self.timestamp, self.key, self.value, self.headers)

    def __eq__(self, other):
        return self.all() == (<Record>other).all() if isinstance(other, Record) else NotImplemented

    def __hash__(self):
        return hash(self.all())

    def __repr__(self):
        return "Record(offset={!r}, timestamp={!r}, key={!r}, value={!r}, headers={!r})".format(*self.all())

    def __reduce__(self):
        return make_record, self.all()


@cython.final
@cython.no_gc
cdef class Records:
    """The records of one batch, in order; see `ottla.codec._loops.Records`."""
    cdef Body body
    cdef const Row* rows
    cdef Py_ssize_t count

    def __len__(self):
        return self.count

    def __iter__(self):
        cdef Cursor cursor = Cursor.__new__(Cursor)
        cursor.body, cursor.row, cursor.left = self.body, self.rows, self.count
        return cursor

    def __getitem__(self, index):
        cdef Py_ssize_t row
        if isinstance(index, slice):
            start, stop, step = index.indices(self.count)
            if step != 1:
                raise ValueError("records have no slices with steps")
            return self.part(start, stop)
        row = PyNumber_AsSsize_t(index, IndexError)
        if row < 0:
            row += self.count
        if not 0 <= row < self.count:
            raise IndexError(f"there is no record {index} among {self.count}")
        return record_of(self.body, self.rows + row)

    def __repr__(self):
        return f"<{self.count} records from offset {self.rows.offset} on>" if self.count else "<0 records>"

    @property
    def size(self):
        cdef Py_ssize_t i, size = 0
        for i in range(self.count):
            size += max(self.rows[i].key_size, 0) + max(self.rows[i].value_size, 0)
        return size

    @property
    def keyless(self):
        cdef Py_ssize_t i, count = 0
        for i in range(self.count):
            count += self.rows[i].key_size < 0
        return count

    @property
    def time_span(self):
        cdef Py_ssize_t i
        cdef int64_t smallest = INT64_MAX, largest = INT64_MIN
        for i in range(self.count):
            smallest = min(smallest, self.rows[i].timestamp)
            largest = max(largest, self.rows[i].timestamp)
        return <object>largest - <object>smallest if self.count else 0

    def without_key(self, Py_ssize_t most):
        """See `ottla.codec._loops.Records.without_key`."""
        cdef Py_ssize_t i
        cdef list found = []
        for i in range(self.count):
            if self.rows[i].key_size < 0 and len(found) < most:
                found.append(i)
        return found

    def outside(self, int64_t first, int64_t last, Py_ssize_t most):
        """See `ottla.codec._loops.Records.outside`."""
        cdef Py_ssize_t i
        cdef list found = []
        for i in range(self.count):
            if not first <= self.rows[i].timestamp <= last and len(found) < most:
                found.append(i)
        return found

    def larger(self, Py_ssize_t size, Py_ssize_t most):
        """See `ottla.codec._loops.Records.larger`."""
        cdef Py_ssize_t i, taken
        cdef list found = []
        for i in range(self.count):
            taken = max(self.rows[i].key_size, 0) + max(self.rows[i].value_size, 0)
            if self.rows[i].headers_at:
                taken += self.rows[i].end - self.rows[i].headers_at
            if taken > size and len(found) < most:
                found.append(i)
        return found

    @property
    def memory(self):
        return (self.body.view.len if self.count else 0) + self.count * <Py_ssize_t>sizeof(Row)

    def between(self, start, stop):
        """Return the records with offsets from ``start`` up to, not including, ``stop``."""
        return self.part(self.first(start), self.first(stop))

    cdef Py_ssize_t first(self, object wanted) except -1:
        """Return the first record with that offset or a later one, as `bisect_left` does."""
        cdef Py_ssize_t low = 0, high = self.count, middle
        cdef int overflow = 0
        cdef int64_t offset = PyLong_AsLongLongAndOverflow(wanted, &overflow)
        if overflow:
            return self.count if overflow > 0 else 0
        while low < high:
            middle = (low + high) // 2
            if self.rows[middle].offset < offset:
                low = middle + 1
            else:
                high = middle
        return low

    def split(self, partitioner, partitions, keyless):
        """See `ottla.codec._loops.Records.split`."""
        cdef Hash place = hash_named(partitioner)
        cdef uint32_t count = counted(partitions)
        cdef int32_t own = <int32_t>counted(keyless + 1) - 1
        cdef Body found = Body.__new__(Body)
        cdef Memory memory = Memory.of(padded((count + 2) * sizeof(int32_t)) + padded(self.count * sizeof(int32_t)))
        cdef int32_t* ends = <int32_t*>memory.part((count + 2) * sizeof(int32_t))
        cdef int32_t* places = <int32_t*>memory.part(self.count * sizeof(int32_t))
        cdef Py_ssize_t start = 0, slot
        cdef dict parts = {}
        cdef Records part
        found.rows = <Row*>take(max(self.count, 1) * sizeof(Row), &found.room)
        if found.rows == NULL:
            raise MemoryError
        if self.count:
            found.origin = self.body
            found.view.buf, found.view.len = self.body.view.buf, self.body.view.len
            with nogil:
                sort_rows(place, <const uint8_t*>found.view.buf, self.rows, self.count, count, own, places, ends, found.rows)
            for slot in range(count + 1):
                if ends[slot] > start:
                    part = Records.__new__(Records)
                    part.body, part.rows, part.count = found, found.rows + start, ends[slot] - start
                    parts[own if slot == count else slot] = part
                    start = ends[slot]
        return parts

    def fingerprints(self, stamps=None):
        """See `ottla.codec._loops.Records.fingerprints`."""
        cdef Py_ssize_t i
        cdef int64_t stamp
        cdef list found = []
        for i in range(self.count):
            stamp = self.rows[i].timestamp if stamps is None else stamps[i]
            found.append(<int64_t>fingerprint(<const uint8_t*>self.body.view.buf, self.rows + i, stamp))
        return found

    def __reduce__(self):
        refuse_pickling()

    cdef Records part(self, Py_ssize_t start, Py_ssize_t stop):
        cdef Records records = Records.__new__(Records)
        records.body = self.body
        if start < stop:
            records.rows = self.rows + start
            records.count = stop - start
        return records


cdef inline uint64_t mix(uint64_t mixed, uint64_t number) noexcept nogil:
    number *= odd
    mixed = (mixed ^ number ^ (number >> 29)) * odd_too
    return mixed ^ (mixed >> 32)


cdef uint64_t mix_bytes(uint64_t mixed, const uint8_t* at, int32_t size) noexcept nogil:
    mixed = mix(mixed, <uint64_t><int64_t>size)  # -1: null
    while size >= 8:
        mixed = mix(mixed, number(at, 8))
        at += 8
        size -= 8
    return mix(mixed, number(at, size)) if size > 0 else mixed


cdef uint64_t fingerprint(const uint8_t* body, const Row* row, int64_t stamp) noexcept nogil:
    cdef Header pair
    cdef Py_ssize_t i, count = 0
    cdef const uint8_t* at = NULL
    cdef uint64_t mixed = mix(0, <uint64_t>stamp)
    mixed = mix_bytes(mixed, body + row.key_at, row.key_size)
    mixed = mix_bytes(mixed, body + row.value_at, row.value_size)
    if row.headers_at:
        at = header_count(body + row.headers_at, body + row.end, &count)
    mixed = mix(mixed, count)
    for i in range(count):
        at = header(body, at, body + row.end, &pair)
        if at == NULL:  # the bytes were changed meanwhile
            break
        mixed = mix_bytes(mixed, body + pair.name_at, pair.name_size)
        mixed = mix_bytes(mixed, body + pair.value_at, pair.value_size)
    return mixed


@cython.final
@cython.no_gc
cdef class Cursor:
    """Iterates over `Records`."""
    cdef Body body
    cdef const Row* row
    cdef Py_ssize_t left

    def __iter__(self):
        return self

    def __next__(self):
        if self.left == 0:
            raise StopIteration
        self.left -= 1
        self.row += 1
        return record_of(self.body, self.row - 1)

    def __length_hint__(self):
        return self.left


cdef inline Record record_of(Body body, const Row* row):
    cdef Record record = Record.__new__(Record)
    record.body, record.row = body, row
    return record


def parse_records(
    body, Py_ssize_t count, int64_t base_offset, int64_t base_timestamp, append_time=None, int64_t room=9223372036854775807
):
    """See `ottla.codec._loops.parse_records`."""
    cdef Base base
    base.offset, base.stamped = base_offset, append_time is not None
    base.timestamp = append_time if base.stamped else base_timestamp
    return find_records(body, count, &base, room)


cdef struct Scan:
    # The results of scanning records without decoding them.
    Py_ssize_t end, keyless
    int64_t smallest, largest   # timestamps


def scan_records(body, Py_ssize_t count, int64_t base_timestamp):
    """See `ottla.codec._loops.scan_records`."""
    cdef Py_buffer view
    cdef Scan found = Scan(0, 0, INT64_MAX, no_timestamp)
    cdef bint whole
    PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
    if view.len <= SMALL:
        whole = scan_rows(<const uint8_t*>view.buf, view.len, count, base_timestamp, &found)
    else:
        with nogil:
            whole = scan_rows(<const uint8_t*>view.buf, view.len, count, base_timestamp, &found)
    PyBuffer_Release(&view)
    if not whole:
        return -1, no_timestamp, no_timestamp, 0
    return found.end, no_timestamp if found.smallest > found.largest else found.smallest, found.largest, found.keyless


cdef bint scan_rows(
    const uint8_t* body, Py_ssize_t size, Py_ssize_t count, int64_t base, Scan* found
) noexcept nogil:
    """Scan; return whether the records are intact and their number is right."""
    cdef const uint8_t* at = body
    cdef const uint8_t* stop = body + size
    cdef const uint8_t* end
    cdef uint64_t n = 0
    cdef int64_t timestamp = 0
    cdef Py_ssize_t i, j, headers
    cdef Header pair
    for i in range(count):
        at = varint(at, stop, 32, &n)
        if at == NULL or n & 1 or n == 0 or n >> 1 > <uint64_t>(stop - at):
            return False
        end = at + (n >> 1)
        at = varint(at + 1, end, 64, &n)  # after the attributes
        if at == NULL or not add(base, <int64_t>(n >> 1) ^ -<int64_t>(n & 1), &timestamp):
            return False
        if timestamp > found.largest:
            found.largest = timestamp
        if timestamp < found.smallest and timestamp != no_timestamp:
            found.smallest = timestamp
        at = varint(at, end, 32, &n)
        if at == NULL or n != 2 * <uint64_t>i:  # the offset
            return False
        at = sized(body, at, end, &pair.name_at, &pair.name_size)  # the key
        if at == NULL:
            return False
        found.keyless += pair.name_size < 0
        at = sized(body, at, end, &pair.value_at, &pair.value_size)
        if at == NULL:
            return False
        headers = 0
        at = header_count(at, end, &headers)
        for j in range(headers):
            at = header(body, at, end, &pair)
            if at == NULL:
                return False
        if at != end:
            return False
    found.end = at - body
    return True


ctypedef uint32_t (*Hash)(const uint8_t*, Py_ssize_t) noexcept nogil


cdef struct Misplaced:
    # A record whose key belongs to another partition.
    Py_ssize_t row
    int32_t key_at, key_size, place


cdef struct KeyScan:
    # What to find, and the results of hashing the keys of records without decoding the rest.
    Hash place
    uint32_t partitions
    int32_t own
    Py_ssize_t most, stride     # of the misplaced records to keep
    Py_ssize_t end, keyless, misplaced, kept
    Misplaced* rows


def scan_keys(
    data, Py_ssize_t start, Py_ssize_t count, partitioner, partitions, own, Py_ssize_t most=0, Py_ssize_t stride=1
):
    """See `ottla.codec._loops.scan_keys`."""
    cdef Py_buffer view
    cdef Hash place = hash_named(partitioner)
    cdef KeyScan scan = KeyScan(
        place, counted(partitions), own, min(most, max(count, 0)), max(stride, 1), start, 0, 0, 0, NULL
    )
    cdef bint intact
    cdef size_t room = 0
    cdef Py_ssize_t i
    cdef list found = []
    cdef const uint8_t* at
    if scan.most > 0:
        scan.rows = <Misplaced*>take(scan.most * sizeof(Misplaced), &room)
        if scan.rows == NULL:
            raise MemoryError
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    at = <const uint8_t*>view.buf
    try:
        intact = 0 <= start <= view.len <= INT32_MAX
        if intact and view.len <= SMALL:
            intact = find_keys(at, view.len, count, &scan)
        elif intact:
            with nogil:
                intact = find_keys(at, view.len, count, &scan)
        if not intact:
            return -1, 0, 0, found
        for i in range(scan.kept):
            key = PyBytes_FromStringAndSize(<const char*>at + scan.rows[i].key_at, scan.rows[i].key_size)
            found.append((scan.rows[i].row, key, scan.rows[i].place))
        return scan.end, scan.keyless, scan.misplaced, found
    finally:
        PyBuffer_Release(&view)
        if scan.rows != NULL:
            give(scan.rows, room)


def count_keys(batches, partitioner, partitions):
    """See `ottla.codec._loops.count_keys`."""
    cdef Hash place = hash_named(partitioner)
    cdef uint32_t number_of_partitions = counted(partitions)
    cdef KeyScan scan
    cdef Py_buffer view
    cdef const uint8_t* at
    cdef Py_ssize_t count, records = 0, keyless = 0, misplaced = 0
    cdef int32_t own
    cdef bint intact
    for own, data in batches:
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            if not HEADER <= view.len <= INT32_MAX:
                continue
            at = <const uint8_t*>view.buf
            count = <int32_t>number(at + 57, 4)
            scan = KeyScan(place, number_of_partitions, own, 0, 1, HEADER, 0, 0, 0, NULL)
            if view.len <= SMALL:
                intact = find_keys(at, view.len, count, &scan)
            else:
                with nogil:
                    intact = find_keys(at, view.len, count, &scan)
            if intact and scan.end == view.len:
                records += count
                keyless += scan.keyless
                misplaced += scan.misplaced
        finally:
            PyBuffer_Release(&view)
    return records, keyless, misplaced


cdef bint find_keys(const uint8_t* body, Py_ssize_t size, Py_ssize_t count, KeyScan* scan) noexcept nogil:
    """Hash the keys of `count` records; return whether the records are intact up to their keys."""
    cdef const uint8_t* at = body + scan.end
    cdef const uint8_t* stop = body + size
    cdef const uint8_t* end
    cdef uint64_t n = 0
    cdef Misplaced found
    cdef Py_ssize_t i
    for i in range(count):
        at = varint(at, stop, 32, &n)
        if at == NULL or n & 1 or n == 0 or n >> 1 > <uint64_t>(stop - at):
            return False
        end = at + (n >> 1)
        at = varint(at + 1, end, 64, &n)  # the timestamp, after the attributes
        if at == NULL:
            return False
        at = varint(at, end, 32, &n)  # the offset
        if at == NULL:
            return False
        at = sized(body, at, end, &found.key_at, &found.key_size)
        if at == NULL:
            return False
        at = end
        if found.key_size < 0:
            scan.keyless += 1
            continue
        found.place = <int32_t>(scan.place(body + found.key_at, found.key_size) % scan.partitions)
        if found.place == scan.own:
            continue
        if scan.kept < scan.most and scan.misplaced % scan.stride == 0:
            found.row = i
            scan.rows[scan.kept] = found
            scan.kept += 1
        scan.misplaced += 1
    scan.end = at - body
    return True


cdef Records find_records(object body, Py_ssize_t count, const Base* base, int64_t room):
    cdef Body found = Body.__new__(Body)
    cdef Records records = Records.__new__(Records)
    cdef Py_ssize_t damaged
    PyObject_GetBuffer(body, &found.view, PyBUF_SIMPLE)
    cdef const uint8_t* at = <const uint8_t*>found.view.buf
    cdef Py_ssize_t size = found.view.len
    if not may_hold(size, count):
        raise DamagedRecord(0, 0)
    found.rows = <Row*>take(count * sizeof(Row), &found.room)
    if found.rows == NULL:
        raise MemoryError
    if size <= SMALL:
        damaged = read_rows(at, size, count, base, &room, found.rows)
    else:
        with nogil:
            damaged = read_rows(at, size, count, base, &room, found.rows)
    if room < 0:
        raise TooMuchMemory
    if damaged != count:
        damaged = count if damaged < 0 else damaged
        raise DamagedRecord(damaged, found.rows[damaged - 1].end if damaged else 0)
    records.body, records.rows, records.count = found, found.rows, count
    return records


cdef inline bint may_hold(Py_ssize_t size, Py_ssize_t count) noexcept nogil:
    """Whether that many records fit, and all positions fit 32 bits."""
    return size <= INT32_MAX and 0 <= count <= size // LEAST_RECORD


# ---------------------------------------------------------------------------------------------------------------------
# Columns.

cdef enum:
    LINE = 64           # Arrow wants buffers aligned to it


@cython.final
@cython.no_gc
cdef class Memory:
    """The memory of several columns."""
    cdef uint8_t* at
    cdef uint8_t* free_at
    cdef size_t room

    @staticmethod
    cdef Memory of(size_t size):
        cdef Memory memory = Memory.__new__(Memory)
        memory.at = <uint8_t*>take(size + LINE, &memory.room)
        if memory.at == NULL:
            raise MemoryError
        memory.free_at = <uint8_t*>padded(<size_t>memory.at)
        return memory

    def __dealloc__(self):
        give(self.at, self.room)

    cdef uint8_t* part(self, size_t size):
        """Return the next part; the `padded` sizes of all parts add up to `room`."""
        cdef uint8_t* at = self.free_at
        self.free_at += padded(size)
        return at


cdef inline size_t padded(size_t size) noexcept:
    return (size + LINE - 1) & ~<size_t>(LINE - 1)


cdef int describe(
    Py_buffer* view, int flags, void* at, Py_ssize_t* count, Py_ssize_t* width, char* format
) except -1:
    """Fill in all fields but `obj` for a read-only buffer of `count` items."""
    if flags & PyBUF_WRITABLE:
        raise BufferError("what the codec gives away cannot be changed")
    view.buf = at
    view.len = count[0] * width[0]
    view.itemsize = width[0]
    view.readonly = 1
    view.ndim = 1
    view.format = format if flags & PyBUF_FORMAT else NULL
    view.shape = count if flags & PyBUF_ND else NULL
    view.strides = width if flags & PyBUF_STRIDES == PyBUF_STRIDES else NULL
    view.suboffsets = NULL
    view.internal = NULL
    return 0


@cython.final
@cython.no_gc
@cython.freelist(64)
cdef class Exported:
    """A part of a `Memory`, exported by the buffer protocol as read-only numbers."""
    cdef Memory memory
    cdef void* at
    cdef Py_ssize_t count, width
    cdef char* format

    def __getbuffer__(self, Py_buffer* view, int flags):
        if self.memory is None:
            raise BufferError("there is nothing in it")
        describe(view, flags, self.at, &self.count, &self.width, self.format)
        view.obj = self


cdef object exported(Memory memory, void* at, Py_ssize_t count, Py_ssize_t width):
    cdef Exported part = Exported.__new__(Exported)
    part.memory, part.at, part.count, part.width = memory, at, count, width
    part.format = b"q" if width == 8 else b"i" if width == 4 else b"B"
    return PyMemoryView_FromObject(part)


cdef struct Field:
    # A column of nullable bytes: its size, its place, and how far it is filled.
    int64_t size
    Py_ssize_t count
    Py_ssize_t nulls
    int32_t* offsets
    uint8_t* data
    uint8_t* validity
    Py_ssize_t filled
    int32_t end

cdef struct Part:
    const uint8_t* body
    const Row* rows
    Py_ssize_t count

cdef struct Gathering:
    Field keys
    Field values
    Field header_names
    Field header_values
    int64_t* offsets
    int64_t* timestamps
    int32_t* header_offsets     # NULL: no record has headers


cdef inline void measure(Field* field, int32_t size) noexcept nogil:
    field.count += 1
    if size < 0:
        field.nulls += 1
    else:
        field.size += size


cdef bint measure_part(Gathering* all, const Part* part) noexcept nogil:
    """Add up the sizes of the columns; return whether the bytes are unchanged."""
    cdef Py_ssize_t i, j, count = 0
    cdef const uint8_t* at
    cdef const Row* row
    cdef Header pair
    for i in range(part.count):
        row = part.rows + i
        measure(&all.keys, row.key_size)
        measure(&all.values, row.value_size)
        if row.headers_at:
            count = 0
            at = header_count(part.body + row.headers_at, part.body + row.end, &count)
            for j in range(count):
                at = header(part.body, at, part.body + row.end, &pair)
                if at == NULL:
                    break
                measure(&all.header_names, pair.name_size)
                measure(&all.header_values, pair.value_size)
            if at != part.body + row.end:
                return False
    return True


cdef inline void put(Field* field, const uint8_t* at, int32_t size) noexcept nogil:
    """Append an item."""
    if size > 0:
        copy(field.data + field.end, at, size)
        field.end += size
    elif size < 0:
        field.validity[field.filled >> 3] &= <uint8_t>~(1 << (field.filled & 7))
    field.filled += 1
    field.offsets[field.filled] = field.end


cdef inline bint fits(const Field* field, int32_t size) noexcept nogil:
    """Whether an item still fits: it was measured before, but may have changed."""
    return field.filled < field.count and (size <= field.size - field.end if size >= 0 else field.nulls > 0)


cdef bint fill_part(Gathering* all, const Part* part) noexcept nogil:
    """Fill the columns; return whether the bytes are unchanged."""
    cdef Py_ssize_t i, j, count = 0
    cdef const uint8_t* at
    cdef const Row* row
    cdef Header pair
    cdef Field keys = all.keys, values = all.values  # copies, so that the compiler keeps them in registers
    for i in range(part.count):
        row = part.rows + i
        all.offsets[keys.filled] = row.offset
        all.timestamps[keys.filled] = row.timestamp
        put(&keys, part.body + row.key_at, row.key_size)
        put(&values, part.body + row.value_at, row.value_size)
        if row.headers_at:
            count = 0
            at = header_count(part.body + row.headers_at, part.body + row.end, &count)
            for j in range(count):
                at = header(part.body, at, part.body + row.end, &pair)
                if at == NULL or not fits(&all.header_names, pair.name_size):
                    return False
                if not fits(&all.header_values, pair.value_size):
                    return False
                put(&all.header_names, part.body + pair.name_at, pair.name_size)
                put(&all.header_values, part.body + pair.value_at, pair.value_size)
            if at == NULL:
                return False
        if all.header_offsets != NULL:
            all.header_offsets[keys.filled] = <int32_t>all.header_names.filled
    all.keys, all.values = keys, values
    return True


cdef size_t room_of(const Field* field) noexcept:
    cdef size_t validity = (field.count + 7) // 8 if field.nulls else 0
    return padded((field.count + 1) * sizeof(int32_t)) + padded(field.size) + padded(validity)


cdef int settle(Field* field, Memory memory) except -1:
    """Assign the column its place in memory."""
    cdef Py_ssize_t size = (field.count + 7) // 8
    field.offsets = <int32_t*>memory.part((field.count + 1) * sizeof(int32_t))
    field.offsets[0] = 0
    field.data = memory.part(field.size)
    if field.nulls:
        field.validity = memory.part(size)
        memset(field.validity, 0xFF, size)
        if field.count % 8:
            field.validity[size - 1] = <uint8_t>((1 << field.count % 8) - 1)
    return 0


cdef object parts_of(Field* field, Memory memory):
    validity = None
    if field.nulls:
        validity = exported(memory, field.validity, (field.count + 7) // 8, 1)
    return (
        exported(memory, field.offsets, field.count + 1, 4), exported(memory, field.data, field.size, 1), validity
    )


cdef bint fill_parts(Gathering* all, const Part* parts, Py_ssize_t count) noexcept nogil:
    """Fill the columns; return whether the bytes are unchanged."""
    cdef Py_ssize_t i
    for i in range(count):
        if not fill_part(all, parts + i):
            return False
    return all.header_names.filled == all.header_names.count


cdef object gather_parts(const Part* parts, Py_ssize_t count):
    cdef Gathering all
    cdef Py_ssize_t i
    cdef bint same
    memset(&all, 0, sizeof(all))
    for i in range(count):
        if not measure_part(&all, parts + i):
            raise changed(parts[i].rows.offset)
    if max(
        all.keys.size, all.values.size, all.header_names.size, all.header_values.size, all.header_names.count
    ) > INT32_MAX:
        raise too_large()
    cdef Py_ssize_t rows = all.keys.count
    cdef Memory memory = Memory.of(
        2 * padded(rows * sizeof(int64_t)) + padded((rows + 1) * sizeof(int32_t))
        + room_of(&all.keys) + room_of(&all.values) + room_of(&all.header_names) + room_of(&all.header_values)
    )
    all.offsets = <int64_t*>memory.part(rows * sizeof(int64_t))
    all.timestamps = <int64_t*>memory.part(rows * sizeof(int64_t))
    settle(&all.keys, memory)
    settle(&all.values, memory)
    if all.header_names.count:
        all.header_offsets = <int32_t*>memory.part((rows + 1) * sizeof(int32_t))
        all.header_offsets[0] = 0
        settle(&all.header_names, memory)
        settle(&all.header_values, memory)
    if memory.room <= SMALL:
        same = fill_parts(&all, parts, count)
    else:
        with nogil:
            same = fill_parts(&all, parts, count)
    if not same:
        i = 0
        while parts[i].count == 0:  # ends: only a part with records can have changed
            i += 1
        raise changed(parts[i].rows.offset)
    headers = None
    if all.header_names.count:
        headers = (
            exported(memory, all.header_offsets, rows + 1, 4),
            parts_of(&all.header_names, memory),
            parts_of(&all.header_values, memory),
        )
    return (
        exported(memory, all.offsets, rows, 8),
        exported(memory, all.timestamps, rows, 8),
        parts_of(&all.keys, memory),
        parts_of(&all.values, memory),
        headers,
    )


def gather(parts):
    """See `ottla.codec._loops.gather`."""
    cdef tuple kept = tuple(parts)  # keeps the bodies alive
    cdef Py_ssize_t i, count = len(kept)
    cdef Records records
    cdef Part* found = <Part*>malloc((count + 1) * sizeof(Part))
    if found == NULL:
        raise MemoryError
    try:
        for i in range(count):
            if not isinstance(kept[i], Records):
                raise no_records(kept[i])
            records = <Records>kept[i]
            found[i].body = <const uint8_t*>records.body.view.buf if records.body is not None else NULL
            found[i].rows = records.rows
            found[i].count = records.count
        return gather_parts(found, count)
    finally:
        free(found)


# Most columns are laid out in one pass over the bytes, without a `Row` for each record, because most records have no
# headers. The sizes of keys and values are not known beforehand, but together they are less than the bytes of the
# records. So values are written to their final place, and keys to temporary memory until the values end.

cdef struct Source:
    # Records of a batch, which are read once.
    Py_buffer view
    Py_ssize_t count
    Base base


cdef bint lay_out_source(Gathering* all, const Source* source, int64_t start) noexcept nogil:
    """Lay out the records from offset `start` on; return whether all are intact, in order, and without headers."""
    cdef const uint8_t* body = <const uint8_t*>source.view.buf
    cdef const uint8_t* at = body
    cdef const uint8_t* stop = body + source.view.len
    cdef Base base = source.base  # copies, so that the compiler keeps them in registers
    cdef Field keys = all.keys, values = all.values
    cdef int64_t* offsets = all.offsets
    cdef int64_t* timestamps = all.timestamps
    cdef Py_ssize_t i
    cdef Row row
    cdef int64_t last = INT64_MIN
    for i in range(source.count):
        at = read_row(body, at, stop, &base, NULL, &row)
        if at == NULL or row.offset < last:
            return False
        last = row.offset
        if row.offset < start:
            continue
        offsets[keys.filled] = row.offset
        timestamps[keys.filled] = row.timestamp
        keys.nulls += row.key_size < 0
        values.nulls += row.value_size < 0
        put(&keys, body + row.key_at, row.key_size)
        put(&values, body + row.value_at, row.value_size)
    all.keys, all.values = keys, values
    return at == stop


cdef bint lay_out_sources(Gathering* all, const Source* sources, Py_ssize_t count, int64_t start) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(count):
        if not lay_out_source(all, sources + i, start):
            return False
    return True


cdef void make_room(Field* field, Memory memory, Py_ssize_t count) noexcept:
    """Assign the column its place for up to `count` rows, but not for their bytes."""
    cdef Py_ssize_t size = (count + 7) // 8
    field.offsets = <int32_t*>memory.part((count + 1) * sizeof(int32_t))
    field.offsets[0] = 0
    field.validity = memory.part(size)
    memset(field.validity, 0xFF, size)


cdef void close_field(Field* field) noexcept:
    """Set the number of rows and bytes of a filled column."""
    field.count, field.size = field.filled, field.end
    if field.count % 8:
        field.validity[field.count // 8] &= <uint8_t>((1 << field.count % 8) - 1)


cdef object lay_out_rows(
    const Source* sources, Py_ssize_t count, Py_ssize_t rows, size_t size, int64_t start
):
    """Return the columns of up to `rows` records, which are `size` bytes; `None` if `gather` has to do it."""
    cdef Memory memory = Memory.of(
        2 * padded(rows * sizeof(int64_t)) + 2 * padded((rows + 1) * sizeof(int32_t)) + 2 * padded((rows + 7) // 8)
        + padded(size) + LINE
    )
    cdef Memory waiting = Memory.of(size)
    cdef Gathering all
    cdef bint whole
    memset(&all, 0, sizeof(all))
    all.offsets = <int64_t*>memory.part(rows * sizeof(int64_t))
    all.timestamps = <int64_t*>memory.part(rows * sizeof(int64_t))
    make_room(&all.keys, memory, rows)
    make_room(&all.values, memory, rows)
    all.values.data, all.keys.data = memory.free_at, waiting.free_at
    if memory.room <= SMALL:
        whole = lay_out_sources(&all, sources, count, start)
    else:
        with nogil:
            whole = lay_out_sources(&all, sources, count, start)
    if not whole:
        return None
    close_field(&all.keys)
    close_field(&all.values)
    memory.part(all.values.size)
    all.keys.data = memory.part(all.keys.size)
    memcpy(all.keys.data, waiting.free_at, all.keys.size)
    rows = all.keys.count
    return (
        exported(memory, all.offsets, rows, 8),
        exported(memory, all.timestamps, rows, 8),
        parts_of(&all.keys, memory),
        parts_of(&all.values, memory),
        None,
    )


def lay_out(heads, bodies, int64_t start):
    """See `ottla.codec._loops.lay_out`."""
    cdef Py_ssize_t i, count = len(heads), opened = 0, rows = 0, size = 0
    cdef BatchHead head
    cdef Source* source
    cdef Source* sources = <Source*>malloc((count + 1) * sizeof(Source))
    if sources == NULL:
        raise MemoryError
    found = None
    try:
        for i in range(count):
            source, head = sources + i, heads[i]
            PyObject_GetBuffer(bodies[i][0], &source.view, PyBUF_SIMPLE)
            opened += 1
            if not may_hold(source.view.len, head.count):
                break
            source.count = head.count
            head.set_base(&source.base)
            rows += source.count
            size += source.view.len
        else:
            if size <= INT32_MAX:
                found = lay_out_rows(sources, count, rows, size, start)
    finally:
        for i in range(opened):
            PyBuffer_Release(&sources[i].view)
        free(sources)
    if found is None:
        found = gather([
            (<BatchHead>head).parse(body, room).between(start, BEYOND) for head, (body, room) in zip(heads, bodies)
        ])
    return found


# ---------------------------------------------------------------------------------------------------------------------
# Writing.

cdef enum:
    FIRST_ROOM = 1024
    FORESEEN = 1 << 20      # most room that a list may reserve in advance
    LEAST_ABOUT = 5         # bytes of a record besides its length, key, value and headers, at least
    MOST_ABOUT = 64         # at most, with its length

cdef struct Bytes:
    const char* at
    Py_ssize_t size     # -1: null

cdef Bytes no_headers = Bytes("\0", 1)


cdef inline uint64_t zigzag(int64_t value) noexcept nogil:
    return (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)


cdef inline int varint_size(uint64_t n) noexcept nogil:
    cdef int size = 2
    if n < 1 << 7:
        return 1
    while n >= 1 << 14:
        n >>= 7
        size += 1
    return size


cdef uint8_t* put_long_varint(uint8_t* at, uint64_t n) noexcept nogil:
    while n > 0x7F:
        at[0] = <uint8_t>(n & 0x7F | 0x80)
        at += 1
        n >>= 7
    at[0] = <uint8_t>n
    return at + 1


cdef inline uint8_t* put_varint(uint8_t* at, uint64_t n) noexcept nogil:
    if n < 1 << 7:
        at[0] = <uint8_t>n
        return at + 1
    if n < 1 << 14:
        at[0] = <uint8_t>(n & 0x7F | 0x80)
        at[1] = <uint8_t>(n >> 7)
        return at + 2
    return put_long_varint(at, n)


cdef inline size_t sized_size(const Bytes* data) noexcept nogil:
    return varint_size(zigzag(data.size)) + (data.size if data.size > 0 else 0)


cdef inline uint8_t* put_sized(uint8_t* at, const Bytes* data) noexcept nogil:
    at = put_varint(at, zigzag(data.size))
    if data.size > 0:
        copy(at, data.at, data.size)
        at += data.size
    return at


cdef inline uint8_t* put_record(
    uint8_t* at, size_t payload, int64_t timestamp_delta, Py_ssize_t index,
    const Bytes* key, const Bytes* value, const Bytes* headers
) noexcept nogil:
    """Write a record with `payload` bytes of key, value and encoded headers; return where it ends."""
    # The length comes first but is known last. So its size is guessed, and the guess is rarely wrong.
    cdef int guess = varint_size(zigzag(payload + LEAST_ABOUT))
    cdef uint8_t* start = at + guess
    start[0] = 0
    cdef uint8_t* end = put_varint(put_varint(start + 1, zigzag(timestamp_delta)), zigzag(index))
    end = put_sized(put_sized(end, key), value)
    copy(end, headers.at, headers.size)
    cdef Py_ssize_t size = end + headers.size - start
    cdef int right = varint_size(zigzag(size))
    if right != guess:
        memmove(at + right, start, size)
    put_varint(at, zigzag(size))
    return at + right + size


cdef inline bint apart(int64_t timestamp, int64_t first) noexcept nogil:
    """Whether the difference fits 64 bits."""
    return timestamp <= INT64_MAX + first if first < 0 else timestamp >= INT64_MIN + first


cdef inline int point(Bytes* data, object value) except -1:
    """Find the address of `value`, which is bytes or None."""
    if value is None:
        data.at, data.size = NULL, -1
    else:
        data.at, data.size = PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value)
    return 0


cdef inline bint may_append(object value) noexcept:
    return value is None or PyBytes_Check(value)


cdef inline object plain(object value):
    """Return `value` as bytes or None; unchanged if it is not bytes-like."""
    return memoryview(value).tobytes() if isinstance(value, (bytearray, memoryview)) else value


cdef bytes header_block(object headers):
    """Encode the headers of a record, with their count in front."""
    cdef Py_ssize_t total
    cdef Bytes part
    cdef tuple pair
    cdef bytes block
    cdef uint8_t* at
    if not (PyTuple_CheckExact(headers) or PyList_CheckExact(headers)):
        return encode_headers(headers)
    total = varint_size(zigzag(len(headers)))
    for each in headers:
        if not (PyTuple_CheckExact(each) and PyTuple_GET_SIZE(each) == 2):
            return encode_headers(headers)
        pair = <tuple>each
        if not (PyUnicode_CheckExact(pair[0]) and (pair[1] is None or PyBytes_CheckExact(pair[1]))):
            return encode_headers(headers)
        try:
            PyUnicode_AsUTF8AndSize(pair[0], &part.size)
        except UnicodeEncodeError:
            return encode_headers(headers)
        total += sized_size(&part)
        point(&part, pair[1])
        total += sized_size(&part)
    # No foreign code ran since the first pass, so the second pass sees the same values.
    block = PyBytes_FromStringAndSize(NULL, total)
    at = put_varint(<uint8_t*>PyBytes_AS_STRING(block), zigzag(len(headers)))
    for each in headers:
        pair = <tuple>each
        part.at = PyUnicode_AsUTF8AndSize(pair[0], &part.size)
        at = put_sized(at, &part)
        point(&part, pair[1])
        at = put_sized(at, &part)
    return block


@cython.final
@cython.no_gc
cdef class Column:
    """Holds the buffers of a `BinaryColumn`."""
    cdef Py_buffer offsets, data, validity
    cdef bint nullable
    cdef Py_ssize_t count

    def __cinit__(self, column):
        PyObject_GetBuffer(column.offsets, &self.offsets, PyBUF_SIMPLE)
        PyObject_GetBuffer(column.data, &self.data, PyBUF_SIMPLE)
        self.count = max(self.offsets.len // 4 - 1, 0)
        validity = column.validity
        if validity is not None:
            PyObject_GetBuffer(validity, &self.validity, PyBUF_SIMPLE)
            self.nullable = True

    def __dealloc__(self):
        PyBuffer_Release(&self.offsets)
        PyBuffer_Release(&self.data)
        PyBuffer_Release(&self.validity)

    cdef bint find(self, Py_ssize_t row, Bytes* item) noexcept nogil:
        """Find a row; return whether it is within the buffers."""
        cdef int32_t span[2]
        memcpy(span, <const char*>self.offsets.buf + 4 * row, 8)
        if not 0 <= span[0] <= span[1] <= self.data.len:
            return False
        item.at, item.size = <const char*>self.data.buf + span[0], span[1] - span[0]
        if self.nullable:
            if row >> 3 >= self.validity.len:
                return False
            if not (<const uint8_t*>self.validity.buf)[row >> 3] >> (row & 7) & 1:
                item.size = -1
        return True


cdef object changed_columns():
    return EncodeError("the columns have changed while they were read")


cdef Py_ssize_t byte_width = 1


cdef class Appender:
    """See `ottla.codec._loops.Appender`. In memory, the records follow room for a batch header."""
    cdef uint8_t* at
    cdef size_t room
    cdef Py_ssize_t size  # including that room
    cdef int exports
    cdef readonly Py_ssize_t count
    cdef readonly int64_t base_timestamp, max_timestamp

    def __cinit__(self):
        self.base_timestamp = self.max_timestamp = -1
        self.size = HEADER

    def __dealloc__(self):
        give(self.at, self.room)

    def __getbuffer__(self, Py_buffer* view, int flags):  # everything, with the room; use `body` and `_seal` instead
        if self.at == NULL:
            self.grow(0)
        describe(view, flags, self.at, &self.size, &byte_width, b"B")
        view.obj = self
        self.exports += 1  # while it is not 0, address and size do not change

    def __releasebuffer__(self, Py_buffer* view):
        self.exports -= 1

    @property
    def body(self):
        return PyMemoryView_FromObject(self)[HEADER:]

    def _seal(self, const uint8_t[::1] header):
        """See `ottla.codec._loops.Appender._seal`."""
        if header.shape[0] != HEADER:
            raise ValueError(f"a header has {HEADER} bytes, not {header.shape[0]}")
        if self.exports:
            return b"".join((header, self.body))
        if self.at == NULL:
            self.grow(0)
        memcpy(self.at, &header[0], HEADER)
        return PyMemoryView_FromObject(self)

    def expect(self, Py_ssize_t size):
        """See `ottla.codec._loops.Appender.expect`."""
        if 0 < size <= INT32_MAX and not self.exports and self.size + size > <Py_ssize_t>self.room:
            try:
                self.grow(size)
            except MemoryError:
                pass

    def append(self, timestamp, key, value, headers=()):
        """Add a record, of ``timestamp`` milliseconds since 1970; return its index in the batch.

        See `ottla.codec._loops.Appender.append`.
        """
        self.add(timestamp, key, value, headers)
        return self.count - 1

    def extend(self, records):
        """Add many records, or none if one is invalid; return the index of the first.

        See `ottla.codec._loops.Appender.extend`.
        """
        cdef Py_ssize_t size = self.size, count = self.count, i = 0
        cdef int64_t base = self.base_timestamp, largest = self.max_timestamp
        try:
            if isinstance(records, Records):
                self.add_records(records)
            elif PyList_CheckExact(records):
                while i < len(<list>records):  # appending might change it
                    self.add_item((<list>records)[i])
                    i += 1
                    if i == 1:
                        self.reserve(min(len(<list>records) * (self.size - size), FORESEEN))
                    i += self.add_plain(<list>records, i)
            else:
                for record in records:
                    self.add_item(record)
        except BaseException:  # an interrupt too: add all of the records or none
            self.size, self.count, self.base_timestamp, self.max_timestamp = size, count, base, largest
            raise
        return count

    def extend_columns(self, timestamps, keys, values, headers=None):
        """See `ottla.codec._loops.Appender.extend_columns`."""
        cdef Py_ssize_t size = self.size, count = self.count
        cdef int64_t base = self.base_timestamp, largest = self.max_timestamp
        cdef Py_buffer stamps
        cdef Column key, value
        try:
            PyObject_GetBuffer(timestamps, &stamps, PyBUF_SIMPLE)
            try:
                key, value = Column(keys), Column(values)
                if headers is not None:
                    check_columns(timestamps, keys, values, headers)
                if not self.add_columns(&stamps, key, value, headers):
                    check_columns(timestamps, keys, values, headers)
                    raise changed_columns()
            finally:
                PyBuffer_Release(&stamps)
        except BaseException:  # an interrupt too: add all of the records or none
            self.size, self.count, self.base_timestamp, self.max_timestamp = size, count, base, largest
            raise
        return count

    @cython.final
    cdef bint add_columns(self, const Py_buffer* stamps, Column keys, Column values, object headers) except -1:
        """Add the rows; return whether the columns fit together."""
        cdef Py_ssize_t i
        cdef int64_t timestamp
        cdef Bytes key, value, at_headers
        cdef bytes block = b"\0"
        if stamps.len != 8 * keys.count or keys.count != values.count:
            return False
        for i in range(keys.count):
            if not keys.find(i, &key) or not values.find(i, &value):
                return False
            memcpy(&timestamp, <const char*>stamps.buf + 8 * i, 8)
            if headers is not None:
                block = header_block(headers[i])
            point(&at_headers, block)
            self.write(timestamp, &key, &value, &at_headers)
        return True

    @cython.final
    cdef Py_ssize_t add_plain(self, list records, Py_ssize_t first) except -1:
        """Add `records` from the `first` on, up to the first one that is not plain; return how many were added.

        Plain records are tuples of an int, bytes and bytes, which nearly all are. No foreign code runs here, so the
        list does not change.
        """
        cdef Py_ssize_t i, count = len(records)
        cdef size_t payload
        cdef int64_t timestamp, largest = self.max_timestamp, base = self.base_timestamp
        cdef int overflow = 0
        cdef Bytes key, value
        cdef PyObject* item
        cdef uint8_t* at = self.at + self.size
        cdef uint8_t* end = self.at + self.room
        if first >= count or self.at == NULL:
            return 0
        for i in range(first, count):
            item = PyList_GET_ITEM(records, i)
            if not PyTuple_CheckExact(<object>item) or PyTuple_GET_SIZE(<object>item) != 3:
                break
            if not (
                PyLong_Check(<object>PyTuple_GET_ITEM(<object>item, 0))
                and may_append(<object>PyTuple_GET_ITEM(<object>item, 1))
                and may_append(<object>PyTuple_GET_ITEM(<object>item, 2))
            ):
                break
            timestamp = PyLong_AsLongLongAndOverflow(<object>PyTuple_GET_ITEM(<object>item, 0), &overflow)
            point(&key, <object>PyTuple_GET_ITEM(<object>item, 1))
            point(&value, <object>PyTuple_GET_ITEM(<object>item, 2))
            payload = max(key.size, 0) + max(value.size, 0) + 1
            if overflow or not apart(timestamp, base) or <size_t>(end - at) < payload + MOST_ABOUT:
                break
            at = put_record(at, payload, timestamp - base, self.count + i - first, &key, &value, &no_headers)
            largest = max(largest, timestamp)
        else:
            i = count
        self.size, self.max_timestamp = at - self.at, largest
        self.count += i - first
        return i - first

    @cython.final
    cdef inline int add_item(self, object item) except -1:
        if PyTuple_Check(item) and 3 <= PyTuple_GET_SIZE(item) <= 4:
            return self.add(
                <object>PyTuple_GET_ITEM(item, 0), <object>PyTuple_GET_ITEM(item, 1),
                <object>PyTuple_GET_ITEM(item, 2),
                <object>PyTuple_GET_ITEM(item, 3) if PyTuple_GET_SIZE(item) == 4 else (),
            )
        return self.add_record(item)

    @cython.final
    cdef int add_record(self, object item) except -1:
        cdef Record record
        if not isinstance(item, Record):
            refuse_record(item)
        record = <Record>item
        if record.body is None:
            return self.add(record.timestamp, record.key, record.value, record.headers)
        return self.add_row(record.body, record.row)

    @cython.final
    cdef int add_records(self, Records records) except -1:
        cdef Py_ssize_t i
        cdef const Row* row
        cdef size_t foreseen = 0
        for i in range(records.count):
            row = records.rows + i
            foreseen += max(row.key_size, 0) + max(row.value_size, 0) + MOST_ABOUT
            if row.headers_at:
                foreseen += row.end - row.headers_at
        if foreseen:
            self.reserve(foreseen)
        for i in range(records.count):
            self.add_row(records.body, records.rows + i)
        return 0

    @cython.final
    cdef int add_row(self, Body body, const Row* row) except -1:
        cdef const char* at = <const char*>body.view.buf
        cdef bytes block = None
        cdef Py_ssize_t least
        cdef Bytes key = Bytes(at + row.key_at, row.key_size), value = Bytes(at + row.value_at, row.value_size)
        cdef Bytes headers = Bytes(at + row.headers_at, row.end - row.headers_at)
        if row.headers_at == 0:
            headers = no_headers
        else:
            least = body.least(row)
            if least < headers.size:
                block = body.shortest(row, least)
                point(&headers, block)
        return self.write(row.timestamp, &key, &value, &headers)

    @cython.final
    cdef inline int add(self, object timestamp, object key, object value, object headers) except -1:
        cdef Bytes at_key, at_value
        cdef int64_t stamp
        cdef int overflow = 0
        if (
            PyLong_Check(timestamp) and may_append(key) and may_append(value)
            and PyTuple_CheckExact(headers) and PyTuple_GET_SIZE(headers) == 0
        ):
            stamp = PyLong_AsLongLongAndOverflow(timestamp, &overflow)
            if not overflow:
                point(&at_key, key)
                point(&at_value, value)
                return self.write(stamp, &at_key, &at_value, &no_headers)
        return self.add_uncommon(timestamp, key, value, headers)

    @cython.final
    cdef int add_uncommon(self, object timestamp, object key, object value, object headers) except -1:
        """Add a record with headers or with other bytes-like values, or raise."""
        cdef Bytes at_key, at_value, at_headers
        cdef int overflow = 1
        cdef int64_t stamp = 0
        cdef object block = None
        if PyLong_Check(timestamp):
            stamp = PyLong_AsLongLongAndOverflow(timestamp, &overflow)
        try:
            plain_key, plain_value = plain(key), plain(value)
        except ValueError:  # a released memoryview
            overflow = 1
        if not overflow and may_append(plain_key) and may_append(plain_value):
            block = header_block(headers)
        if block is None:
            refuse(timestamp, key, value, headers, self.base_timestamp if self.count else None)
        point(&at_key, plain_key)
        point(&at_value, plain_value)
        point(&at_headers, block)
        return self.write(stamp, &at_key, &at_value, &at_headers)

    @cython.final
    cdef int write(self, int64_t timestamp, const Bytes* key, const Bytes* value, const Bytes* headers) except -1:
        """Write a record; the headers are already encoded."""
        cdef int64_t base = self.base_timestamp if self.count else timestamp
        if not apart(timestamp, base):
            refuse(timestamp, None, None, (), base)
        cdef size_t payload = max(key.size, 0) + max(value.size, 0) + headers.size
        self.reserve(payload + MOST_ABOUT)
        self.size = put_record(self.at + self.size, payload, timestamp - base, self.count, key, value, headers) - self.at
        self.base_timestamp = base
        if self.count == 0 or timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        self.count += 1
        return 0

    @cython.final
    cdef inline int reserve(self, size_t more) except -1:
        if self.exports:
            raise BufferError("the records are being read")
        if self.size + more > self.room:
            self.grow(more)
        return 0

    @cython.final
    cdef int grow(self, size_t more) except -1:
        cdef size_t room = 0, size = self.size
        size *= 4 if size <= SMALL else 2
        cdef uint8_t* at = <uint8_t*>take(max(<size_t>FIRST_ROOM, size, self.size + more), &room)
        if at == NULL:
            raise MemoryError
        if self.at != NULL:
            memcpy(at, self.at, self.size)
        else:
            memset(at, 0, HEADER)
        give(self.at, self.room)
        self.at, self.room = at, room
        return 0


# ---------------------------------------------------------------------------------------------------------------------
# Hashes; see `ottla.codec.partitioners`.

cdef uint32_t crc_table[256]

cdef int make_crc_table() noexcept:
    cdef uint32_t value
    cdef int i, bit
    for i in range(256):
        value = i
        for bit in range(8):
            value = value >> 1 ^ (0xEDB88320 if value & 1 else 0)
        crc_table[i] = value
    return 0

make_crc_table()


cdef uint32_t hash_murmur2(const uint8_t* at, Py_ssize_t size) noexcept nogil:
    cdef uint32_t m = 0x5BD1E995, h = <uint32_t>0x9747B28C ^ <uint32_t>size, k
    cdef const uint8_t* stop = at + (size & ~<Py_ssize_t>3)
    while at < stop:
        k = at[0] | <uint32_t>at[1] << 8 | <uint32_t>at[2] << 16 | <uint32_t>at[3] << 24
        k *= m
        k = (k ^ k >> 24) * m
        h = h * m ^ k
        at += 4
    size &= 3
    if size == 3:
        h ^= <uint32_t>at[2] << 16
    if size >= 2:
        h ^= <uint32_t>at[1] << 8
    if size:
        h = (h ^ at[0]) * m
    h = (h ^ h >> 13) * m
    return h ^ h >> 15


cdef uint32_t hash_fnv1a(const uint8_t* at, Py_ssize_t size) noexcept nogil:
    cdef uint32_t h = 0x811C9DC5
    cdef Py_ssize_t i
    for i in range(size):
        h = (h ^ at[i]) * <uint32_t>0x01000193
    return h


cdef uint32_t hash_crc32(const uint8_t* at, Py_ssize_t size) noexcept nogil:
    cdef uint32_t h = 0xFFFFFFFF
    cdef Py_ssize_t i
    for i in range(size):
        h = h >> 8 ^ crc_table[(h ^ at[i]) & 0xFF]
    return ~h


cdef uint32_t place_murmur2(const uint8_t* at, Py_ssize_t size) noexcept nogil:
    return hash_murmur2(at, size) & 0x7FFFFFFF


cdef uint32_t place_fnv1a(const uint8_t* at, Py_ssize_t size) noexcept nogil:
    cdef uint32_t h = hash_fnv1a(at, size)
    return 0 - h if h >> 31 else h


cdef uint32_t place_fnv1a_reference(const uint8_t* at, Py_ssize_t size) noexcept nogil:
    return hash_fnv1a(at, size) & 0x7FFFFFFF


cdef uint32_t hashed(Hash hash, object key) except? 0xFFFFFFFF:
    cdef Py_buffer view
    cdef uint32_t h
    if PyBytes_Check(key):
        return hash(<const uint8_t*>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key))
    PyObject_GetBuffer(key, &view, PyBUF_SIMPLE)
    h = hash(<const uint8_t*>view.buf, view.len)
    PyBuffer_Release(&view)
    return h


cdef uint32_t counted(object partitions) except 0:
    cdef int overflow = 1
    cdef int64_t count = 0
    if PyLong_Check(partitions):
        count = PyLong_AsLongLongAndOverflow(partitions, &overflow)
    return <uint32_t>count if not overflow and 0 < count <= INT32_MAX else positive(partitions)


cdef int among(Hash place, object key, object partitions) except -1:
    return hashed(place, key) % counted(partitions)


def murmur2(key):
    """See `ottla.codec._loops.murmur2`."""
    return hashed(hash_murmur2, key)


def fnv1a(key):
    """See `ottla.codec._loops.fnv1a`."""
    return hashed(hash_fnv1a, key)


def murmur2_partition(key, partitions):
    """See `ottla.codec.partitioners`."""
    return among(place_murmur2, key, partitions)


def crc32_partition(key, partitions):
    """See `ottla.codec.partitioners`."""
    return among(hash_crc32, key, partitions)


def fnv1a_partition(key, partitions):
    """See `ottla.codec.partitioners`."""
    return among(place_fnv1a, key, partitions)


def fnv1a_reference_partition(key, partitions):
    """See `ottla.codec.partitioners`."""
    return among(place_fnv1a_reference, key, partitions)


cdef Hash hash_named(object partitioner) except NULL:
    if partitioner == "murmur2":
        return place_murmur2
    if partitioner == "crc32":
        return hash_crc32
    if partitioner == "fnv1a":
        return place_fnv1a
    if partitioner == "fnv1a_reference":
        return place_fnv1a_reference
    raise no_partitioner(partitioner)


cdef void sort_rows(
    Hash place, const uint8_t* body, const Row* rows, Py_ssize_t count, uint32_t partitions, int32_t own,
    int32_t* places, int32_t* ends, Row* sorted
) noexcept nogil:
    """Sort rows by the partitions of their keys. Rows without a key have partition `own`, and come last if that does
    not exist. `ends`: where each partition's rows end; has two entries more than there are partitions."""
    cdef uint32_t keyless = min(<uint32_t>own, partitions)
    cdef Py_ssize_t i
    cdef int32_t before = 0, here
    memset(ends, 0, (partitions + 2) * sizeof(int32_t))
    for i in range(count):
        places[i] = <int32_t>keyless
        if rows[i].key_size >= 0:
            places[i] = <int32_t>(place(body + rows[i].key_at, rows[i].key_size) % partitions)
        ends[places[i]] += 1
    for i in range(partitions + 1):  # at first: where they begin
        here = ends[i]
        ends[i] = before
        before += here
    for i in range(count):
        sorted[ends[places[i]]] = rows[i]
        ends[places[i]] += 1


cdef bint place_all(Hash place, Column keys, uint32_t partitions, int32_t* places) noexcept nogil:
    """Hash the keys; return whether all are within the column's data."""
    cdef Bytes key
    cdef Py_ssize_t i
    for i in range(keys.count):
        if not keys.find(i, &key):
            return False
        places[i] = -1 if key.size < 0 else <int32_t>(place(<const uint8_t*>key.at, key.size) % partitions)
    return True


def partition_column(partitioner, keys, partitions):
    """See `ottla.codec._loops.partition_column`."""
    cdef Hash place = hash_named(partitioner)
    cdef uint32_t count = counted(partitions)
    cdef bint fits
    cdef Column column = Column(keys)
    cdef Memory memory = Memory.of(column.count * sizeof(int32_t))
    cdef int32_t* places = <int32_t*>memory.part(column.count * sizeof(int32_t))
    with nogil:
        fits = place_all(place, column, count, places)
    if not fits:
        check_offsets("keys", keys, column.count)
        raise changed_columns()
    return exported(memory, places, column.count, 4)


# ---------------------------------------------------------------------------------------------------------------------
# For the extension of the producer, `ottla.sdk.produce._append`, which calls these functions without Python in between.
# Each is in a capsule, whose name is the function's type: an extension that was built for another type does not load.

cdef Py_ssize_t append_record(object appender, object timestamp, object key, object value) except -1:
    """Add a record without headers to an `Appender`; return how many records that has now.

    The caller has checked that it is an `Appender`.
    """
    (<Appender>appender).add(timestamp, key, value, ())
    return (<Appender>appender).count


cdef Hash find_hash(object partitioner) except? NULL:
    """Return the C function of a partitioner; NULL if there is none."""
    if partitioner is murmur2_partition:
        return place_murmur2
    if partitioner is crc32_partition:
        return hash_crc32
    if partitioner is fnv1a_partition:
        return place_fnv1a
    if partitioner is fnv1a_reference_partition:
        return place_fnv1a_reference
    return NULL


APPEND_RECORD = PyCapsule_New(
    <void*>append_record, b"Py_ssize_t (appender, timestamp, key, value) except -1", NULL
)
FIND_HASH = PyCapsule_New(<void*>find_hash, b"uint32_t (*(partitioner))(const uint8_t*, Py_ssize_t)", NULL)
