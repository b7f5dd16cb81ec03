"""Similar complaints from one host are logged once a minute, with their count."""

from ottla.complaints import INTERVAL, KINDS, OF_SOURCE, Complaints

HOST = "192.0.2.7"


def test_the_first_is_written_and_those_that_follow_are_counted() -> None:
    complaints = Complaints()
    assert [complaints.is_new(float(n) / 1000, HOST, f"a frame of {n} bytes is too long") for n in range(9000)] == [
        True,
        *[False] * 8999,
    ]
    assert complaints.counted(INTERVAL - 0.1) == []
    assert complaints.counted(INTERVAL) == [f"a frame of 0 bytes is too long: 8999 more from {HOST} in 60 s"]
    assert complaints.counted(2 * INTERVAL) == [], "no new complaint since"


def test_another_kind_or_another_host_is_another_complaint() -> None:
    complaints = Complaints()
    assert complaints.is_new(0, HOST, "no Kafka") and complaints.is_new(0, HOST, "too long")
    assert complaints.is_new(0, "192.0.2.8", "no Kafka")
    assert not complaints.is_new(0, HOST, "no Kafka")


def test_while_it_goes_on_there_is_a_line_in_each_interval() -> None:
    complaints = Complaints()
    lines = 0
    for second in range(600):
        lines += complaints.is_new(second, HOST, "no Kafka") + len(complaints.counted(second))
    assert lines == 10


def test_what_comes_again_after_a_quiet_while_is_written() -> None:
    complaints = Complaints()
    assert complaints.is_new(0, HOST, "no Kafka")
    assert complaints.deadline == INTERVAL
    complaints.counted(INTERVAL)
    assert complaints.deadline is None
    assert complaints.is_new(INTERVAL, HOST, "no Kafka")


def test_many_kinds_are_counted_as_one_so_that_memory_and_lines_are_bounded() -> None:
    complaints = Complaints()
    written = sum(complaints.is_new(0, f"host-{n}-{'x' * n}", "no Kafka") for n in range(3 * KINDS))
    assert written == KINDS + 1
    [line] = complaints.counted(INTERVAL)
    assert f"{2 * KINDS - 1} more" in line


def test_a_source_of_many_kinds_silences_only_itself() -> None:
    complaints = Complaints()
    written = sum(complaints.is_new(0, HOST, f"bad name {'x' * n}") for n in range(3 * KINDS))
    assert written == OF_SOURCE
    assert complaints.is_new(0, "192.0.2.8", "no Kafka")
    assert complaints.is_new(0, HOST, "denied", source="User:alice") and complaints.is_new(
        0, HOST, "denied", source="b"
    )
    [line] = complaints.counted(INTERVAL)
    assert line == f"other complaints: {3 * KINDS - OF_SOURCE} more from {HOST} in 60 s"
    complaints.counted(2 * INTERVAL), complaints.counted(3 * INTERVAL)
    assert complaints.is_new(3 * INTERVAL, HOST, "bad name")


def test_texts_of_clients_need_not_make_kinds() -> None:
    complaints = Complaints()
    assert [complaints.is_new(0, HOST, f"no user {each}", kind="no user") for each in "abc"] == [True, False, False]
    assert complaints.is_new(0, HOST, "no user a")


def test_at_the_end_everything_that_was_counted_is_told() -> None:
    complaints = Complaints()
    assert [complaints.is_new(0, HOST, "no Kafka") for _ in range(3)] == [True, False, False]
    assert complaints.counted(1, after=0) == [f"no Kafka: 2 more from {HOST} in 1 s"]
