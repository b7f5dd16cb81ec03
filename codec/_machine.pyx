# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, binding=False, embedsignature=True
# cython: embedsignature.format=clinic
"""Runs the programs of `program.py` in C, both ways: bytes to objects in `parse`, objects to bytes in `build`.

A program becomes a `Struct`: an array of `Op`s in three parts (fields, tagged fields, absent fields). Values go
straight from the bytes to the slots of the objects and back; the slots' descriptors give their positions.

Rules:
- No byte is read before `need` has checked that it exists, and no memory is allocated for a count before the count has
  been compared with the bytes that are left.
- Parsing keeps a chain of `Step`s on the C stack, one for each struct and array that it is in. Only an error uses it,
  to say where it was.
- Building only notices that a value does not fit, and leaves it to the reference (`reference.build`) to say why. Such a
  value is the caller's mistake and may be slow; bad bytes come from a peer and must not be.
- Building may run foreign code (`__index__`, `__eq__`), which may change the objects that are being built. So each
  value is held by its own reference while it is written, and a list by a copy.
"""

from cpython.buffer cimport PyBUF_SIMPLE, Py_buffer, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memmove

import uuid

from ottla.codec import ops, wire
from ottla.codec import program as programs
from ottla.errors import DecodeError, EncodeError

cdef extern from *:
    """
    #include <structmember.h>

    static inline Py_ssize_t slot_of(PyObject *descriptor) {
        if (!Py_IS_TYPE(descriptor, &PyMemberDescr_Type)
            || ((PyMemberDescrObject *)descriptor)->d_member->type != T_OBJECT_EX) {
            PyErr_Format(PyExc_TypeError, "a slot wanted, not %R: the class was altered", descriptor);
            return -1;
        }
        return ((PyMemberDescrObject *)descriptor)->d_member->offset;
    }
    static inline PyObject *allocate(PyObject *cls) {
        return ((PyTypeObject *)cls)->tp_alloc((PyTypeObject *)cls, 0);
    }
    static inline PyObject **slot_at(PyObject *object, Py_ssize_t slot) {
        return (PyObject **)((char *)object + slot);
    }

    /* Compilers turn these into one load or store and a byte swap. */
    static inline uint64_t load(const uint8_t *at, int size) {
        uint64_t value = 0;
        for (int i = 0; i < size; i++) value = value << 8 | at[i];
        return value;
    }
    static inline void store(uint8_t *at, uint64_t value, int size) {
        for (int i = size - 1; i >= 0; i--, value >>= 8) at[i] = (uint8_t)value;
    }
    static inline double as_double(uint64_t bits) { double value; memcpy(&value, &bits, 8); return value; }
    static inline uint64_t as_bits(double value) { uint64_t bits; memcpy(&bits, &value, 8); return bits; }
    """
    Py_ssize_t slot_of(object) except -1
    object allocate(object)
    PyObject** slot_at(PyObject*, Py_ssize_t) nogil
    uint64_t load(const uint8_t*, int) nogil
    void store(uint8_t*, uint64_t, int) nogil
    double as_double(uint64_t) nogil
    uint64_t as_bits(double) nogil

cdef extern from "Python.h":
    PyObject* PyUnicode_DecodeUTF8(const char*, Py_ssize_t, const char*)
    const char* PyUnicode_AsUTF8AndSize(object, Py_ssize_t*) except NULL
    object PyLong_FromLongLong(long long)
    object PyLong_FromUnsignedLongLong(unsigned long long)
    long long PyLong_AsLongLong(object) except? -1
    bint PyLong_CheckExact(object)
    object PyNumber_Index(object)
    int _PyBytes_Resize(PyObject**, Py_ssize_t) except -1
    void Py_XDECREF(PyObject*)
    object PyList_AsTuple(object)
    object PyMemoryView_FromObject(object)
    Py_buffer* PyMemoryView_GET_BUFFER(object)
    void PyObject_GC_UnTrack(object)
    void PyObject_GC_Track(object)
    double PyFloat_AsDouble(object) except? -1

# The codes of `ops.Code`.
cdef enum:
    INT8, INT16, INT32, INT64, UINT16, UINT32, UNSIGNED, ZIGZAG32, ZIGZAG64
    FLOAT64, BOOL, UUID, STRING, BYTES, WINDOW, ARRAY, STRUCT

if [BOOL, UUID, STRUCT] != [ops.Code.BOOL, ops.Code.UUID, ops.Code.STRUCT] or STRUCT + 1 != len(ops.Code):
    raise ImportError("this extension was built for another ottla.codec.ops: build it again (make extension)")

cdef int[9] SIZES = [1, 2, 4, 8, 2, 4, 0, 0, 0]

cdef tuple EMPTY = ()
cdef object NO_TAGS = wire.NO_TAGS
cdef str UNKNOWN_TAGS = wire.UNKNOWN_TAGS
cdef object NO_UUID = wire.NO_UUID
cdef object NEW_UUID = uuid.UUID
cdef object UNKNOWN_SAFETY = uuid.SafeUUID.unknown
cdef Py_ssize_t UUID_INT = slot_of(uuid.UUID.__dict__["int"])
cdef Py_ssize_t UUID_IS_SAFE = slot_of(uuid.UUID.__dict__["is_safe"])


cdef struct Op:
    int code
    int length
    bint null
    bint ignorable
    bint late  # the default is a struct, and the slot stays empty
    uint32_t tag
    Py_ssize_t least
    Py_ssize_t slot
    long long longest
    Op* item
    # The Struct keeps these three alive.
    PyObject* struct
    PyObject* name
    PyObject* default


cdef class Struct:
    """A program in C's form."""

    cdef Op* ops
    cdef int fields
    cdef int tagged
    cdef int absent
    cdef bint flexible
    cdef Py_ssize_t tags_slot
    cdef object cls
    cdef dict known
    cdef list kept

    def __cinit__(self, program):
        self.cls = program.cls
        self.kept = []
        self.flexible = program.tagged is not None
        self.known = {each.tag: each.name for each in program.tagged or ()}
        self.tags_slot = slot_of(program.cls.__dict__[wire.UNKNOWN_TAGS])
        self.fields = len(program.fields)
        self.tagged = len(program.tagged or ())
        self.absent = len(program.absent)
        self.ops = <Op*>PyMem_Calloc(max(1, self.fields + self.tagged + self.absent), sizeof(Op))
        if self.ops == NULL:
            raise MemoryError
        cdef Op* op = self.ops
        for name, each in program.fields:
            self.place(op, name)
            self.fill(op, each)
            op += 1
        for each in program.tagged or ():
            self.place(op, each.name)
            self.fill(op, each.op)
            self.give_default(op, each.default)
            op.tag = each.tag
            op += 1
        for each in program.absent:
            self.place(op, each.name)
            self.give_default(op, each.default)
            op.ignorable = each.ignorable
            op += 1

    def __dealloc__(self):
        cdef int i
        cdef Op* item
        cdef Op* inner
        if self.ops == NULL:
            return
        for i in range(self.fields + self.tagged):
            item = self.ops[i].item
            while item != NULL:
                inner = item.item
                PyMem_Free(item)
                item = inner
        PyMem_Free(self.ops)

    cdef PyObject* keep(self, object value):
        self.kept.append(value)
        return <PyObject*>value

    cdef int place(self, Op* op, str name) except -1:
        op.name = self.keep(name)
        op.slot = slot_of(self.cls.__dict__[name])
        return 0

    cdef int give_default(self, Op* op, object default) except -1:
        op.default = self.keep(default)
        op.late = hasattr(default, "__wire__")
        return 0

    cdef int fill(self, Op* op, object each) except -1:
        op.code = each.code
        op.length = each.length
        op.null = each.null
        op.least = each.least
        op.longest = each.longest
        if each.program is not None:
            op.struct = self.keep(struct_of(each.program))
        if each.item is not None:
            op.item = <Op*>PyMem_Calloc(1, sizeof(Op))
            if op.item == NULL:
                raise MemoryError
            self.fill(op.item, each.item)
        return 0


cdef dict structs = {}
cdef dict messages = {}


cdef Struct struct_of(object program):
    cdef object made = structs.get(program)
    if made is None:
        made = structs[program] = Struct(program)
    return <Struct>made


cdef Struct message(object cls, object version):
    cdef object found = messages.get(cls)
    if found is not None and type(version) is int:
        found = (<dict>found).get(version)
        if found is not None:
            return <Struct>found
    made = struct_of(programs.program(cls, version))
    messages.setdefault(cls, {})[version] = made
    return made


# ---------------------------------------------------------------------------------------------------------------------
# Parsing.


cdef struct Step:
    Step* outer
    PyObject* name  # name of the field; NULL in an array
    Py_ssize_t index


cdef struct Cursor:
    const uint8_t* start
    const uint8_t* at
    const uint8_t* end
    Step* step
    PyObject* data
    PyObject* view  # view of data, created for the first window


cdef str path(Step* step):
    cdef list parts = []
    while step != NULL:
        parts.append(f"[{step.index}]" if step.name == NULL else f".{<object>step.name}")
        step = step.outer
    return "".join(reversed(parts))[1:]


cdef int broken(Cursor* c, const uint8_t* at, str reason) except -1:
    raise DecodeError(reason, path(c.step), at - c.start)


cdef int short(Cursor* c, Py_ssize_t size) except -1:
    broken(c, c.at, f"{size} bytes wanted, {c.end - c.at} left")


cdef inline int need(Cursor* c, Py_ssize_t size) except -1:
    if c.end - c.at < size:
        short(c, size)
    return 0


cdef inline uint64_t varint(Cursor* c, int bits) except? 77:
    cdef const uint8_t* start = c.at
    cdef uint64_t value = 0
    cdef uint64_t byte
    cdef int shift = 0
    while shift < bits:
        need(c, 1)
        byte = c.at[0]
        c.at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if byte >> (bits - shift) if bits - shift < 7 else 0:
                break
            return value
        shift += 7
    broken(c, start, f"varint of more than {bits} bits")


cdef inline long long integer(Cursor* c, int code) except? -77:
    cdef int size
    cdef uint64_t value
    if code >= UNSIGNED:
        if code == UNSIGNED:
            return <long long>varint(c, 32)
        value = varint(c, 32 if code == ZIGZAG32 else 64)
        return <long long>(value >> 1) ^ -<long long>(value & 1)
    size = SIZES[code]
    need(c, size)
    c.at += size
    if code == INT32:
        return <int32_t>load(c.at - 4, 4)
    if code == INT16:
        return <int16_t>load(c.at - 2, 2)
    if code == INT64:
        return <int64_t>load(c.at - 8, 8)
    if code == INT8:
        return <int8_t>(c.at - 1)[0]
    return <long long>load(c.at - size, size)


cdef inline Py_ssize_t length(Cursor* c, Op* op, str unit) except -2:
    """Read the length in front of a string, bytes or an array; -1 for null."""
    cdef const uint8_t* start = c.at
    cdef long long size = integer(c, op.length)
    if op.length == UNSIGNED:
        size -= 1
    if (size < 0 and not (size == -1 and op.null)) or size > op.longest:
        broken(c, start, f"{unit} length of {size}")
    return size


cdef object text(Cursor* c, Py_ssize_t size):
    need(c, size)
    cdef PyObject* made = PyUnicode_DecodeUTF8(<const char*>c.at, size, NULL)
    if made == NULL:
        bad_text(c)
    c.at += size
    cdef object value = <object>made
    Py_XDECREF(made)
    return value


cdef int bad_text(Cursor* c) except -1:
    try:
        reraise()
    except UnicodeDecodeError as error:
        reason, start = error.reason, error.start
    broken(c, c.at + <Py_ssize_t>start, f"not UTF-8: {reason}")


cdef inline int reraise() except -1:
    """Propagate an exception that the C API has set."""
    return -1


cdef object window(Cursor* c, Py_ssize_t size):
    need(c, size)
    if c.view == NULL:
        view = memoryview(<object>c.data).cast("B")
        if PyMemoryView_GET_BUFFER(view).buf != c.start:
            raise BufferError("this buffer is another one each time it is asked for")
        Py_INCREF(view)
        c.view = <PyObject*>view
    # The same as slicing a memoryview, in half the time: another view of the same memory, made smaller.
    made = PyMemoryView_FromObject(<object>c.view)
    cdef Py_buffer* buffer = PyMemoryView_GET_BUFFER(made)
    buffer.buf = <void*>c.at
    buffer.len = buffer.shape[0] = size
    c.at += size
    return made


cdef object uuid_at(const uint8_t* at):
    cdef uint64_t high = load(at, 8)
    cdef uint64_t low = load(at + 8, 8)
    if high == 0 and low == 0:
        return NO_UUID
    # The same as UUID.__init__, in a tenth of the time.
    cdef object value = (PyLong_FromUnsignedLongLong(high) << 64) | PyLong_FromUnsignedLongLong(low)
    cdef object made = allocate(NEW_UUID)
    set_slot(made, UUID_INT, value)
    set_slot(made, UUID_IS_SAFE, UNKNOWN_SAFETY)
    return made


cdef inline void set_slot(object target, Py_ssize_t slot, object value) noexcept:
    """Fill an empty slot."""
    Py_INCREF(value)
    slot_at(<PyObject*>target, slot)[0] = <PyObject*>value


cdef object parse_value(Cursor* c, Op* op):
    cdef Py_ssize_t size
    cdef int code = op.code
    if code <= ZIGZAG64:
        return PyLong_FromLongLong(integer(c, code))
    if code == STRING:
        size = length(c, op, "string")
        return None if size < 0 else text(c, size)
    if code == ARRAY:
        return parse_array(c, op)
    if code == STRUCT:
        if op.null and integer(c, op.length) - (op.length == UNSIGNED) < 0:
            return None
        return parse_struct(c, <Struct>op.struct)
    if code == BOOL:
        need(c, 1)
        c.at += 1
        return (c.at - 1)[0] != 0
    if code == UUID:
        need(c, 16)
        c.at += 16
        return uuid_at(c.at - 16)
    if code == FLOAT64:
        need(c, 8)
        c.at += 8
        return as_double(load(c.at - 8, 8))
    size = length(c, op, "bytes")
    if size < 0:
        return None
    if code == WINDOW:
        return window(c, size)
    need(c, size)
    c.at += size
    return PyBytes_FromStringAndSize(<const char*>c.at - size, size)


cdef object parse_array(Cursor* c, Op* op):
    cdef Py_ssize_t count = length(c, op, "array")
    cdef Op* item = op.item
    cdef object value
    cdef tuple values
    cdef Step step
    if count < 0:
        return None
    if count > (c.end - c.at) // item.least:
        broken(c, c.at, f"array of {count} elements with {c.end - c.at} bytes left")
    if count == 0:
        return EMPTY
    values = PyTuple_New(count)
    PyObject_GC_UnTrack(values)
    step.outer = c.step
    step.name = NULL
    step.index = 0
    c.step = &step
    while step.index < count:
        if item.code == INT32:  # the count was checked: all of them are in the data
            value = PyLong_FromLongLong(<int32_t>load(c.at, 4))
            c.at += 4
        elif item.code == STRUCT and not item.null:
            value = parse_struct(c, <Struct>item.struct)
        else:
            value = parse_value(c, item)
        Py_INCREF(value)
        PyTuple_SET_ITEM(values, step.index, value)
        step.index += 1
    c.step = step.outer
    if item.code > BOOL:
        PyObject_GC_Track(values)
    return values


cdef object parse_struct(Cursor* c, Struct struct):
    cdef object made = allocate(struct.cls)
    cdef Op* op = struct.ops
    cdef Op* end = op + struct.fields
    cdef Step step
    step.outer = c.step
    c.step = &step
    while op < end:
        step.name = op.name
        set_slot(made, op.slot, parse_value(c, op))
        op += 1
    if struct.flexible:
        parse_tags(c, struct, made)
    else:
        set_slot(made, struct.tags_slot, NO_TAGS)
    op = struct.ops + struct.fields
    end = op + struct.tagged + struct.absent
    while op < end:
        if not op.late and slot_at(<PyObject*>made, op.slot)[0] == NULL:
            set_slot(made, op.slot, <object>op.default)
        op += 1
    c.step = step.outer
    return made


cdef int parse_tags(Cursor* c, Struct struct, object made) except -1:
    cdef Step* step = c.step
    cdef long long tag
    cdef long long previous = -1
    cdef long long size
    cdef const uint8_t* start
    cdef Op* op
    cdef Op* end = struct.ops + struct.fields + struct.tagged
    cdef dict unknown = None
    step.name = <PyObject*>UNKNOWN_TAGS
    cdef long long count = <long long>varint(c, 32)
    while count > 0:
        step.name = <PyObject*>UNKNOWN_TAGS
        tag = <long long>varint(c, 32)
        size = <long long>varint(c, 32)
        start = c.at
        if tag <= previous:
            broken(c, start, f"tag {tag} after tag {previous}")
        previous = tag
        op = struct.ops + struct.fields
        while op < end and op.tag != tag:
            op += 1
        if op < end:
            step.name = op.name
            set_slot(made, op.slot, parse_value(c, op))
            if c.at - start != size:
                broken(c, start, f"tagged field of {size} bytes took {c.at - start}")
        else:
            need(c, size)
            if unknown is None:
                unknown = {}
            unknown[tag] = PyBytes_FromStringAndSize(<const char*>start, size)
            c.at += size
        count -= 1
    set_slot(made, struct.tags_slot, NO_TAGS if unknown is None else unknown)
    return 0


def parse(cls, version, data, offset=0):
    """Parse a message of ``cls`` from ``data[offset:]``; return it and the offset of its end.

    See `ottla.codec.reference.parse`.
    """
    cdef Struct struct = message(cls, version)
    cdef Py_buffer buffer
    cdef Cursor c
    cdef Step step
    PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
    c.view = NULL
    try:
        if not 0 <= offset <= buffer.len:
            raise ValueError(f"offset {offset} lies outside of the {buffer.len} bytes")
        c.start = <const uint8_t*>buffer.buf
        c.at = c.start + <Py_ssize_t>offset
        c.end = c.start + buffer.len
        c.data = <PyObject*>data
        name = cls.__name__
        step.outer = NULL
        step.name = <PyObject*>name
        c.step = &step
        return parse_struct(&c, struct), c.at - c.start
    finally:
        Py_XDECREF(c.view)
        PyBuffer_Release(&buffer)


# ---------------------------------------------------------------------------------------------------------------------
# Building.


cdef struct Writer:
    PyObject* out  # bytes, longer than what has been written so far
    uint8_t* start
    uint8_t* at
    uint8_t* end
    PyObject* apart  # list of (bytes written before it, large field); NULL: fields are not kept apart
    Py_ssize_t least  # minimal size of fields that are kept apart


cdef int refuse() except -1:
    """Report that the value does not fit; the reference says why."""
    raise EncodeError("")


cdef int grow(Writer* w, Py_ssize_t size) except -1:
    cdef Py_ssize_t used = w.at - w.start
    cdef Py_ssize_t room = 2 * (w.end - w.start) + size
    _PyBytes_Resize(&w.out, room)
    w.start = <uint8_t*>PyBytes_AS_STRING(<object>w.out)
    w.at = w.start + used
    w.end = w.start + room
    return 0


cdef inline int ensure(Writer* w, Py_ssize_t size) except -1:
    if w.end - w.at < size:
        grow(w, size)
    return 0


cdef inline int build_varint(Writer* w, uint64_t value) except -1:
    ensure(w, 10)
    while value > 0x7F:
        w.at[0] = <uint8_t>(value & 0x7F | 0x80)
        w.at += 1
        value >>= 7
    w.at[0] = <uint8_t>value
    w.at += 1
    return 0


cdef inline int build_integer(Writer* w, int code, long long value) except -1:
    if code == INT32:
        if value != <int32_t>value:
            refuse()
    elif code == INT16:
        if value != <int16_t>value:
            refuse()
    elif code == INT8:
        if value != <int8_t>value:
            refuse()
    elif code == UINT16:
        if value != <uint16_t>value:
            refuse()
    elif code == UINT32 or code == UNSIGNED:
        if value != <uint32_t>value:
            refuse()
        if code == UNSIGNED:
            return build_varint(w, <uint64_t>value)
    elif code == ZIGZAG32 or code == ZIGZAG64:
        if code == ZIGZAG32 and value != <int32_t>value:
            refuse()
        return build_varint(w, (<uint64_t>value << 1) ^ <uint64_t>(value >> 63))
    ensure(w, 8)
    store(w.at, <uint64_t>value, SIZES[code])
    w.at += SIZES[code]
    return 0


cdef inline int build_length(Writer* w, Op* op, Py_ssize_t size) except -1:
    if (size < 0 and not op.null) or size > op.longest:
        refuse()
    return build_integer(w, op.length, size + 1 if op.length == UNSIGNED else size)


cdef inline int build_raw(Writer* w, const void* data, Py_ssize_t size) except -1:
    ensure(w, size)
    memcpy(w.at, data, size)
    w.at += size
    return 0


cdef int build_value(Writer* w, Op* op, object value) except -1:
    cdef int code = op.code
    cdef Py_ssize_t size
    cdef const char* data
    cdef double number
    if code <= ZIGZAG64:
        return build_integer(w, code, PyLong_AsLongLong(value if PyLong_CheckExact(value) else PyNumber_Index(value)))
    if code == STRING:
        if value is None:
            return build_length(w, op, -1)
        if not isinstance(value, str):
            refuse()
        data = PyUnicode_AsUTF8AndSize(value, &size)
        build_length(w, op, size)
        return build_raw(w, data, size)
    if code == ARRAY:
        return build_array(w, op, value)
    if code == STRUCT:
        if op.null:
            ensure(w, 1)
            w.at[0] = 1 if value is not None else 0 if op.length == UNSIGNED else 255
            w.at += 1
            if value is None:
                return 0
        return build_struct(w, <Struct>op.struct, value)
    if code == BOOL:
        if value is not True and value is not False:
            refuse()
        ensure(w, 1)
        w.at[0] = value is True
        w.at += 1
        return 0
    if code == UUID:
        return build_uuid(w, value)
    if code == FLOAT64:
        if not isinstance(value, (int, float)):
            refuse()
        number = PyFloat_AsDouble(value)
        ensure(w, 8)
        store(w.at, as_bits(number), 8)
        w.at += 8
        return 0
    return build_bytes(w, op, value)


cdef int build_bytes(Writer* w, Op* op, object value) except -1:
    cdef Py_buffer buffer
    if value is None:
        return build_length(w, op, -1)
    if type(value) is bytes:
        build_length(w, op, len(<bytes>value))
        if w.apart != NULL and len(<bytes>value) >= w.least:
            (<list>w.apart).append((w.at - w.start, value))
            return 0
        return build_raw(w, PyBytes_AS_STRING(value), len(<bytes>value))
    if isinstance(value, wire.Unread):
        if w.apart != NULL and len(value) >= w.least:
            build_length(w, op, len(value))
            (<list>w.apart).append((w.at - w.start, value))
            return 0
        return build_bytes(w, op, bytes(value))
    if not isinstance(value, (bytes, bytearray, memoryview)):
        refuse()
    PyObject_GetBuffer(value, &buffer, PyBUF_SIMPLE)
    try:
        build_length(w, op, buffer.len)
        if w.apart != NULL and buffer.len >= w.least and type(value) is memoryview:
            (<list>w.apart).append((w.at - w.start, value.cast("B")))
            return 0
        return build_raw(w, buffer.buf, buffer.len)
    finally:
        PyBuffer_Release(&buffer)


cdef int build_uuid(Writer* w, object value) except -1:
    if not isinstance(value, NEW_UUID):
        refuse()
    cdef bytes data = int.to_bytes(value.int, 16, "big")
    return build_raw(w, PyBytes_AS_STRING(data), 16)


cdef int build_array(Writer* w, Op* op, object value) except -1:
    cdef tuple values
    cdef object each
    if value is None:
        return build_length(w, op, -1)
    if type(value) is tuple:
        values = value
    elif isinstance(value, (tuple, list)):
        values = tuple(value)
    else:
        refuse()
    build_length(w, op, len(values))
    for each in values:
        build_value(w, op.item, each)
    if len(value) != len(values):
        refuse()  # the list was changed meanwhile
    return 0


cdef inline object attribute(object value, Op* op):
    cdef PyObject* found = slot_at(<PyObject*>value, op.slot)[0]
    if found == NULL:
        return <object>op.default if op.late else getattr(value, <object>op.name)
    return <object>found


cdef int build_struct(Writer* w, Struct struct, object value) except -1:
    cdef Op* op = struct.ops + struct.fields + struct.tagged
    cdef Op* end = op + struct.absent
    cdef object each
    if type(value) is not struct.cls:
        refuse()
    while op < end:
        each = attribute(value, op)
        if not op.ignorable and differs(op, each, <object>op.default):
            refuse()
        op += 1
    op = struct.ops
    end = op + struct.fields
    while op < end:
        build_value(w, op, attribute(value, op))
        op += 1
    return build_tags(w, struct, value)


cdef bint differs(Op* op, object value, object default) except -1:
    """Whether a field has to be sent because it differs from its default; a list equals the same tuple."""
    if value is default:
        return False
    if op.struct != NULL and type(value) is (<Struct>op.struct).cls and type(default) is type(value):
        return structs_differ(<Struct>op.struct, value, default)
    if op.late:
        return wire.differs(value, default)
    if type(value) is list:
        value = PyList_AsTuple(value)
    return value != default


cdef bint structs_differ(Struct struct, object value, object default) except -1:
    cdef Op* op = struct.ops
    cdef Op* end = op + struct.fields + struct.tagged + struct.absent
    while op < end:
        if differs(op, attribute(value, op), attribute(default, op)):
            return True
        op += 1
    tags = unknown_tags(struct, value)
    return tags is not NO_TAGS and wire.differs(tags, NO_TAGS)


cdef int build_tags(Writer* w, Struct struct, object value) except -1:
    cdef object tags = unknown_tags(struct, value)
    cdef Op* op = struct.ops + struct.fields
    cdef Op* end = op + struct.tagged
    cdef object each
    cdef list sent = None  # pairs of a tag, and an op's index or an unknown tag's bytes; keeps the values alive
    cdef list values = None
    if tags is not NO_TAGS:
        sent = [(tag, data) for tag, data in wire.unknown_tags_of(tags, struct.known).items()]
        values = [None] * len(sent)
    if not struct.flexible:
        return refuse() if sent else 0
    while op < end:
        each = attribute(value, op)
        if differs(op, each, <object>op.default):
            if sent is None:
                sent, values = [], []
            sent.append((op.tag, len(values)))
            values.append((op - struct.ops, each))
        op += 1
    if not sent:
        return build_varint(w, 0)
    build_varint(w, len(sent))
    for tag, data in sorted(sent):
        build_varint(w, tag)
        if isinstance(data, bytes):
            build_varint(w, len(<bytes>data))
            build_raw(w, PyBytes_AS_STRING(data), len(<bytes>data))
        else:
            at, each = values[data]
            build_sized(w, struct.ops + <int>at, each)
    return 0


cdef object unknown_tags(Struct struct, object value):
    cdef PyObject* found = slot_at(<PyObject*>value, struct.tags_slot)[0]
    if found == NULL:
        refuse()
    return <object>found


cdef int build_sized(Writer* w, Op* op, object value) except -1:
    """Write a value with its size in front. The size is known only afterwards; then the value is moved to make room."""
    cdef Py_ssize_t start = w.at - w.start
    cdef Py_ssize_t size
    cdef Py_ssize_t shift
    cdef PyObject* apart = w.apart
    w.apart = NULL  # the value will be moved
    build_value(w, op, value)
    w.apart = apart
    size = w.at - w.start - start
    build_varint(w, size)
    shift = w.at - w.start - start - size
    cdef uint8_t[10] head
    memcpy(head, w.at - shift, shift)
    memmove(w.start + start + shift, w.start + start, size)
    memcpy(w.start + start, head, shift)
    return 0


def build(value, version):
    """Build ``value`` at ``version``; see `ottla.codec.reference.build`."""
    return written(value, version, None, 0)


def build_parts(value, version, Py_ssize_t least):
    """Build ``value`` in parts; see `ottla.codec.machine.build_parts`."""
    cdef list apart = []
    cdef bytes whole = written(value, version, apart, least)
    cdef list parts = []
    cdef Py_ssize_t start = 0
    for at, data in apart:
        parts += [whole[start:at], data]
        start = at
    parts.append(whole[start:])
    return parts


cdef bytes written(object value, object version, list apart, Py_ssize_t least):
    cdef Struct struct = message(type(value), version)
    cdef Writer w
    cdef object out = PyBytes_FromStringAndSize(NULL, 256)
    w.start = w.at = <uint8_t*>PyBytes_AS_STRING(out)
    w.apart = NULL if apart is None else <PyObject*>apart
    w.least = least
    w.end = w.start + 256
    Py_INCREF(out)
    w.out = <PyObject*>out
    out = None
    try:
        build_struct(&w, struct, value)
        _PyBytes_Resize(&w.out, w.at - w.start)
        return <bytes>w.out
    except MemoryError:
        raise
    except Exception:  # a value that does not fit, or an error in a foreign `__index__` or `__eq__`
        from ottla.codec import reference  # only for an error: it needs construct

        raise reference.misfit(value, version) from None
    finally:
        Py_XDECREF(w.out)
