"""The additional promises of the blocking client: threads, callbacks, signals, forks, the end of the program."""

import inspect
import logging
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

import ottla.sync
from ottla.brokerlite.machines.groups.groups import Groups
from ottla.codec import engine
from ottla.errors import Closed, LocalProtocolError, OttlaError, TimeoutExpired
from ottla.sdk import client as awaiting_client
from ottla.sdk import client_parts as awaiting_client_parts
from ottla.sdk import consumer as awaiting_consumer
from ottla.sdk import producer as awaiting_producer
from ottla.sdk.outcome import Outcome
from ottla.sdk.steps import Shielded, Steps
from ottla.sdk.sync.client_parts import ClientParts
from ottla.sync import ConsumerInterceptor, RebalanceListener
from ottla.testing import Broker
from tests.patience import FAR, HUNG
from tests.sdk.scripted import scripted
from tools import faces

PAIRS = [
    (awaiting_client.Client, ottla.sync.Client),
    (awaiting_client_parts.ClientParts, ClientParts),
    (awaiting_producer.Producer, ottla.sync.Producer),
    (awaiting_consumer.Consumer, ottla.sync.Consumer),
    (awaiting_consumer.Batch, ottla.sync.Batch),
    (awaiting_consumer.RebalanceListener, RebalanceListener),
    (awaiting_consumer.ConsumerInterceptor, ConsumerInterceptor),
]


# -- the faces ---------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not faces.RUFF.exists(), reason="ruff lays out what is made")
@pytest.mark.parametrize("name", list(faces.TAKEN))
def test_the_blocking_faces_are_made_of_those_that_await(name: str) -> None:
    made = faces.made(name)
    assert (faces.FOLDER / f"{name}.py").read_text() == made, "the faces have changed: make faces"


@pytest.mark.parametrize(("awaits", "blocks"), PAIRS, ids=lambda each: f"{each.__module__}.{each.__name__}")
def test_each_method_has_the_name_the_arguments_and_the_errors_of_the_one_that_awaits(
    awaits: type, blocks: type
) -> None:
    def methods(of: type) -> dict[str, Any]:
        kinds = (property, type(lambda: None))
        names = {"__aenter__": "__enter__", "__aexit__": "__exit__", "__aiter__": "__iter__", "__anext__": "__next__"}
        names |= {"aclose": "close"}
        return {names.get(name, name): each for name, each in vars(of).items() if isinstance(each, kinds)}

    ours, theirs = methods(blocks), methods(awaits)
    assert list(ours) == list(theirs)
    for name, method in ours.items():
        if isinstance(method, property):
            continue
        assert not inspect.iscoroutinefunction(method)
        other = inspect.signature(theirs[name])
        assert [(each.name, each.kind, each.default) for each in inspect.signature(method).parameters.values()] == [
            (each.name, each.kind, each.default) for each in other.parameters.values()
        ]
        about, says = inspect.getdoc(theirs[name]) or "", inspect.getdoc(method) or ""
        assert bool(about) == bool(says)
        for word in ("await", "async ", "task", "loop's thread"):
            assert word not in says.replace("that awaits", ""), f"{name}: {says}"


# -- threads -----------------------------------------------------------------------------------------------------------


def test_many_threads_share_a_producer_and_no_record_is_lost(ottla_broker: Broker) -> None:
    ottla_broker.create_topic("t", partitions=3)
    count, each = 8, 2000 if engine == "c" else 100

    def send(number: int) -> None:
        for record in range(each):
            producer.send_soon("t", b"%d %d" % (number, record), key=b"%d" % number)

    with ottla.sync.connect(ottla_broker.bootstrap) as client:
        with client.producer(batch_size=4000) as producer:
            threads = [threading.Thread(target=send, args=(number,)) for number in range(count)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        seen: dict[int, list[int]] = {number: [] for number in range(count)}
        with client.consumer("t") as consumer:
            for batch in consumer:
                for record in batch:
                    number, sent = map(int, (record.value or b"").split())
                    seen[number].append(sent)
                if sum(map(len, seen.values())) == count * each:
                    break
    assert all(sent == list(range(each)) for sent in seen.values()), "each thread's records are in order"


def test_threads_that_call_at_once_each_get_their_own_answer(ottla_broker: Broker) -> None:
    answers: dict[int, str] = {}
    with ottla.sync.connect(ottla_broker.bootstrap) as client:

        def ask(number: int) -> None:
            client.create_topic(f"t{number}", partitions=1)
            answers[number] = client.describe_topic(f"t{number}").name

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert answers == {number: f"t{number}" for number in range(10)}


def test_a_second_thread_is_refused_by_a_consumer_that_another_waits_for(ottla_broker: Broker) -> None:
    ottla_broker.create_topic("t")
    with ottla.sync.connect(ottla_broker.bootstrap) as client, client.consumer("t") as consumer:
        ended: list[Exception] = []

        def read() -> None:
            try:
                next(consumer)
            except Exception as error:
                ended.append(error)

        thread = threading.Thread(target=read, name="first")
        thread.start()
        with pytest.raises(LocalProtocolError, match="'first' waits for a batch of this consumer"):
            _repeat_until_refused(consumer)
        consumer.__exit__(None, None, None)
        thread.join(HUNG)
        assert [type(each) for each in ended] == [Closed], "a waiting thread gets the error at once"


def _repeat_until_refused(consumer: ottla.sync.Consumer) -> None:
    while not consumer._core._asking._task:
        time.sleep(0.001)
    next(consumer)


# -- callbacks ---------------------------------------------------------------------------------------------------------


def test_callbacks_are_called_in_the_thread_that_flushes_and_before_it_returns(ottla_broker: Broker) -> None:
    called: list[threading.Thread] = []
    with ottla.sync.connect(ottla_broker.bootstrap) as client, client.producer() as producer:
        for _ in range(10):
            producer.send_soon("t", b"v", on_delivery=lambda result: called.append(threading.current_thread()))
        producer.flush()
        assert called == [threading.current_thread()] * 10


def test_the_end_of_a_block_calls_what_is_left_to_be_called(ottla_broker: Broker) -> None:
    called: list[threading.Thread] = []
    with ottla.sync.connect(ottla_broker.bootstrap) as client:
        with client.producer(linger=60) as producer:
            producer.send_soon("t", b"v", on_delivery=lambda result: called.append(threading.current_thread()))
        assert called == [threading.current_thread()]


def test_a_callback_waits_for_the_next_call_of_the_client(ottla_broker: Broker) -> None:
    called = threading.Event()
    with ottla.sync.connect(ottla_broker.bootstrap) as client, client.producer(linger=0.01) as producer:
        producer.send("t", b"the topic is known")
        producer.send_soon("t", b"v", on_delivery=lambda result: called.set())
        with ottla.sync.connect(ottla_broker.bootstrap) as other:
            while other.offsets({("t", 0): "end"})["t", 0] < 2:
                pass
        while not client._driver._callers._callbacks:
            time.sleep(0.001)
        assert not called.is_set(), "callbacks run only in their thread's own calls"
        producer.send_soon("t", b"w")
        assert called.is_set()


def test_a_thread_that_waits_calls_the_callbacks_of_one_that_computes(ottla_broker: Broker) -> None:
    ottla_broker.create_topic("empty")
    called: list[str] = []
    done = threading.Event()

    def told(result: object) -> None:
        called.append(threading.current_thread().name)
        done.set()

    with ottla.sync.connect(ottla_broker.bootstrap) as client:
        consumer = client.consumer("empty").__enter__()

        def read() -> None:
            with pytest.raises(Closed):
                next(consumer)

        reader = threading.Thread(target=read, name="reader")
        reader.start()
        with client.producer() as producer:
            producer.send_soon("t", b"v", on_delivery=told)
            assert done.wait(HUNG)
        consumer.__exit__(None, None, None)
        reader.join(HUNG)
    assert called == ["reader"]


def test_a_callback_may_send_but_cannot_wait_for_what_waits_for_callbacks(ottla_broker: Broker) -> None:
    refused: list[Exception] = []
    with ottla.sync.connect(ottla_broker.bootstrap) as client:
        with client.producer() as producer:

            def told(result: object) -> None:
                producer.send_soon("t", b"again")
                for call in (producer.flush, lambda: producer.send("t", b"no")):
                    try:
                        call()
                    except LocalProtocolError as error:
                        refused.append(error)

            producer.send_soon("t", b"v", on_delivery=told)
            producer.flush()
        assert len(refused) == 2 and all("made within one" in str(each) for each in refused)
        assert client.offsets({("t", 0): "end"})["t", 0] == 2, "a refused record is not sent"


def test_a_refused_end_of_a_producer_ends_nothing(ottla_broker: Broker) -> None:
    refused: list[Exception] = []
    with ottla.sync.connect(ottla_broker.bootstrap) as client:
        with client.producer(linger=0.2) as producer:

            def told(result: object) -> None:
                producer.send_many("t", [b"pending"] * 100)
                for end in (producer.close, lambda: producer.__exit__(None, None, None)):
                    with pytest.raises(LocalProtocolError) as caught:
                        end()
                    refused.append(caught.value)

            producer.send_soon("t", b"v", on_delivery=told)
            producer.flush()
            producer.send_soon("t", b"still open")
        assert len(refused) == 2 and all("made within one" in str(each) for each in refused)
        assert client.offsets({("t", 0): "end"})["t", 0] == 102


def test_a_transaction_cannot_begin_in_a_callback_because_its_end_would_wait_for_that(ottla_broker: Broker) -> None:
    refused: list[Exception] = []
    with ottla.sync.connect(ottla_broker.bootstrap) as client:
        with client.producer() as producer, client.producer(transactional_id="x") as transactional:

            def told(result: object) -> None:
                try:
                    with transactional.transaction() as transaction:
                        transaction.send_soon("t", b"no")
                except LocalProtocolError as error:
                    refused.append(error)

            producer.send_soon("t", b"v", on_delivery=told)
            producer.flush()
        assert len(refused) == 1 and "made within one" in str(refused[0])


def test_a_callback_that_does_not_return_keeps_no_other_thread_waiting_for_ever(ottla_broker: Broker) -> None:
    back, called = threading.Event(), threading.Event()

    def told(result: object) -> None:
        called.set()
        assert back.wait(HUNG)

    with (
        ottla.sync.connect(ottla_broker.bootstrap, delivery_timeout=1.5, request_timeout=0.5) as client,
        client.producer(linger=0.3) as producer,
    ):

        def hang() -> None:
            producer.send_soon("t", b"1", on_delivery=told)
            with pytest.raises(TimeoutExpired):
                producer.flush()

        hung = threading.Thread(target=hang, name="hung")
        hung.start()
        try:
            assert called.wait(HUNG)
            producer.send_soon("t", b"2", on_delivery=lambda result: None)
            assert producer.send("t", b"3").offset == 2, "its batch is stored, and needs no callback of the user's"
            with pytest.raises(TimeoutExpired, match=r"not returned within 1.5 s: one that thread 'hung' .* in told"):
                producer.flush()
            assert "callbacks wait for one that thread 'hung' has been calling for" in client.explain()
        finally:
            back.set()
        hung.join(HUNG)
        producer.flush()
        assert not client.explain()


def test_what_a_callback_raises_is_raised_by_the_next_call(ottla_broker: Broker) -> None:
    def told(result: object) -> None:
        raise ZeroDivisionError("mine")

    with ottla.sync.connect(ottla_broker.bootstrap) as client, client.producer() as producer:
        producer.send_soon("t", b"v", on_delivery=told)
        with pytest.raises(ZeroDivisionError, match="mine"):
            producer.flush()
        producer.send("t", b"the client is whole")


def test_ctrl_c_in_a_callback_is_raised_in_the_call_that_called_it_and_the_others_are_called(
    ottla_broker: Broker,
) -> None:
    called: list[int] = []

    def told(number: int, result: object) -> None:
        called.append(number)
        if number == 1:
            raise KeyboardInterrupt

    with ottla.sync.connect(ottla_broker.bootstrap) as client, client.producer() as producer:
        for number in range(3):
            producer.send_soon("t", b"v", partition=0, on_delivery=partial(told, number))
        with pytest.raises(KeyboardInterrupt):
            producer.flush()
        producer.send("t", b"the client is whole", partition=0)  # by now the last is settled, in whichever batch it was
        assert called == [0, 1, 2]


def test_listeners_and_interceptors_are_called_in_the_thread_that_reads(ottla_broker: Broker) -> None:
    ottla_broker.create_topic("t")
    called: dict[str, threading.Thread] = {}

    class Listener(RebalanceListener):
        def assigned(self, consumer: ottla.sync.Consumer, places: Sequence[tuple[str, int]]) -> None:
            called["assigned"] = threading.current_thread()
            assert consumer.position("t", 0) == 0, "the position may be read here"
            consumer.seek({("t", 0): "beginning"})

    class Interceptor(ConsumerInterceptor):
        def on_consume(self, batch: ottla.sync.Batch) -> None:
            called["on_consume"] = threading.current_thread()

        def on_commit(self, offsets: Any) -> None:
            called["on_commit"] = threading.current_thread()

    with ottla.sync.connect(ottla_broker.bootstrap) as client:
        with client.producer() as producer:
            producer.send("t", b"v")
        consumer = client.consumer("t", group="g", listener=Listener(), interceptors=[Interceptor()])
        with consumer:
            next(consumer).commit()
    assert called == dict.fromkeys(("assigned", "on_consume", "on_commit"), threading.current_thread())


# -- the I/O thread ----------------------------------------------------------------------------------------------------


def test_heartbeats_go_on_while_the_caller_computes(ottla_broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    heartbeat, heard = Groups.heartbeat, [0]

    def counted(groups: Groups, *request: Any) -> None:
        heard[0] += 1
        heartbeat(groups, *request)

    monkeypatch.setattr(Groups, "heartbeat", counted)
    with ottla.sync.connect(ottla_broker.bootstrap) as client:
        with client.producer() as producer:
            producer.send("t", b"v")
        with client.consumer("t", group="g", heartbeat_interval=0.05) as consumer:
            batch = next(consumer)
            until, enough = time.monotonic() + HUNG, heard[0] + 20
            while heard[0] < enough and time.monotonic() < until:
                sum(range(1000))
            assert heard[0] >= enough
            batch.commit()


def test_an_error_of_the_io_thread_is_logged_and_raised_in_callers_and_at_the_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(now: float) -> None:
        raise ZeroDivisionError("a bug in a machine")

    with (
        scripted() as (address, _),
        pytest.raises(ZeroDivisionError, match="a bug in a machine"),
        ottla.sync.connect(address) as client,
    ):
        client._driver.do(lambda: client._driver.core.later(client._driver.now(), broken))
        with pytest.raises(OttlaError, match="stopped because of a bug in ottla") as raised:
            while True:
                client.list_topics()
        assert isinstance(raised.value.__cause__, ZeroDivisionError)
    assert "the client has stopped because of a bug in ottla" in caplog.text


def test_a_handler_of_the_log_may_send_from_the_clients_own_thread(ottla_broker: Broker) -> None:
    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            names.append(threading.current_thread().name)
            producer.send_nowait("log", record.getMessage().encode())
            with pytest.raises(LocalProtocolError, match="move it to a thread of yours"):
                client.list_topics()

    names: list[str] = []
    ottla_broker.create_topic("log")
    with ottla.sync.connect(ottla_broker.bootstrap) as client, client.producer() as producer:
        producer.send("log", b"first")
        log = logging.getLogger("ottla.sdk.test")
        log.propagate = False
        handler = Handler()
        log.addHandler(handler)
        client._driver.do(lambda: client._driver.core.run(lambda: log.error("a line")))
        while not names:
            time.sleep(0.001)
        log.removeHandler(handler)
        producer.flush()
        values = [each.value for each in client.fetch("log", 0, 0)]
    assert names == ["ottla"] and values == [b"first", b"a line"]


def test_a_record_that_a_handler_of_the_log_may_not_send_is_not_sent(ottla_broker: Broker) -> None:
    refused: list[Exception] = []
    with ottla.sync.connect(ottla_broker.bootstrap) as client, client.producer() as producer:
        producer.send("t", b"the topic is known")

        class Sending(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                try:
                    producer.send("t", b"refused")
                except LocalProtocolError as error:
                    refused.append(error)

        handler = Sending()
        logging.getLogger("ottla.sdk").addHandler(handler)
        try:
            client._driver.do(lambda: logging.getLogger("ottla.sdk").warning("in the client's own thread"))
        finally:
            logging.getLogger("ottla.sdk").removeHandler(handler)
        assert refused and "in the client's own thread" in str(refused[0])
        producer.flush()
        assert client.offsets({("t", 0): "end"})["t", 0] == 1


def test_a_client_that_is_left_in_its_own_thread_refuses_and_goes_on(ottla_broker: Broker) -> None:
    refused: list[Exception] = []
    with ottla.sync.connect(ottla_broker.bootstrap) as client:

        class Leaving(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                try:
                    client.__exit__(None, None, None)
                except LocalProtocolError as error:
                    refused.append(error)

        handler = Leaving()
        logging.getLogger("ottla.sdk").addHandler(handler)
        try:
            client._driver.do(lambda: logging.getLogger("ottla.sdk").warning("in the client's own thread"))
        finally:
            logging.getLogger("ottla.sdk").removeHandler(handler)
        assert len(refused) == 1 and "in the client's own thread" in str(refused[0])
        client.list_topics()


def test_a_call_that_nothing_ends_ends_with_the_client(ottla_broker: Broker) -> None:
    ended: list[Exception] = []
    waits = threading.Event()

    def steps() -> Steps[None]:
        waits.set()
        yield Shielded(Outcome())

    def call() -> None:
        try:
            client._driver.run(steps())
        except Closed as error:
            ended.append(error)

    thread = threading.Thread(target=call)
    with ottla.sync.connect(ottla_broker.bootstrap) as client:
        thread.start()
        assert waits.wait(HUNG)
    thread.join(HUNG)
    assert len(ended) == 1


def test_no_thread_is_left_behind(ottla_broker: Broker) -> None:
    before = set(threading.enumerate())
    with ottla.sync.connect(ottla_broker.bootstrap) as client:
        client.list_topics()
    assert set(threading.enumerate()) == before
    with pytest.raises(Closed):
        client.list_topics()


# -- programs ----------------------------------------------------------------------------------------------------------


def program(broker: Broker, body: str) -> subprocess.CompletedProcess[str]:
    """Run a program that begins with ``head``.

    ``ctrl_c_in(seconds)`` presses Ctrl-C, and ``ctrl_c_where(client, …)`` once for each of its conditions, when a call
    waits that fulfils it: a condition is given whether the wait is shielded.
    """
    head = f"""
        import os, signal, sys, threading, time
        import ottla.sync
        from ottla.errors import *
        ADDRESS = {broker.bootstrap!r}

        def ctrl_c_in(seconds):
            threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT)).start()

        def ctrl_c_where(client, *conditions):
            def waits(condition):
                found = [call._waits for call in list(client._driver._callers._calls)]
                return any(condition(each[2]) for each in found if each is not None)

            def watch():
                for condition in conditions:
                    while not waits(condition):
                        time.sleep(0.01)
                    os.kill(os.getpid(), signal.SIGINT)

            threading.Thread(target=watch, daemon=True).start()
    """
    code = textwrap.dedent(head) + textwrap.dedent(body)
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code]
    return subprocess.run(command, capture_output=True, text=True, timeout=HUNG)


CALLS = {
    "a batch": "consumer.__next__()",
    "a send": "producer.send('t', b'interrupted')",
    "room": "[producer.send_soon('t', bytes(1000)) for _ in range(10_000)]",
    "a flush": "(producer.send_soon('t', b'x'), producer.flush())",
    "a list": "producer.send_many('t', [bytes(1000)] * 10_000)",
    "an answer": "client.list_groups()",
}


@pytest.mark.slow
@pytest.mark.parametrize("what", list(CALLS))
def test_ctrl_c_is_raised_at_once_whatever_is_waited_for_and_the_client_goes_on(what: str) -> None:
    body = f"""
        sys.path.insert(0, {str(faces.ROOT)!r})
        from tests.sdk.scripted import scripted
        with scripted() as (address, broker):
            with ottla.sync.connect(
                address, request_timeout=0.5, api_timeout={FAR}, delivery_timeout={FAR}
            ) as client:
                with client.producer(buffer_memory=50_000) as producer, client.consumer("t") as consumer:
                    producer.send("t", b"before")
                    next(consumer)
                    broker.mute = {what != "a batch"}
                    try:
                        ctrl_c_where(client, lambda shielded: True)
                        {CALLS[what]}
                    except KeyboardInterrupt:
                        print("raised")
                    broker.mute = False
                    producer.send("t", b"after")
                    while b"after" not in [each.value for each in next(consumer)]:
                        pass
                    print("whole")
    """
    done = program(_Nowhere(), body)  # type: ignore[arg-type]
    assert done.stdout == "raised\nwhole\n", done.stderr


class _Nowhere:
    bootstrap = "localhost:1"


@pytest.mark.slow
def test_ctrl_c_while_connecting_ends_the_program_and_its_threads(ottla_broker: Broker) -> None:
    body = f"""
        import socket
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            silent.listen()
            ctrl_c_in(0.2)
            with ottla.sync.connect("127.0.0.1:%d" % silent.getsockname()[1], connect_timeout={FAR}):
                pass
    """
    done = program(ottla_broker, body)
    assert done.returncode == -signal.SIGINT and "KeyboardInterrupt" in done.stderr


@pytest.mark.slow
def test_a_second_ctrl_c_does_not_wait_for_what_the_first_has_left_to_do(ottla_broker: Broker) -> None:
    body = f"""
        sys.path.insert(0, {str(faces.ROOT)!r})
        import ottla.sdk.produce.producer_leaving
        from tests.sdk.scripted import scripted
        ottla.sdk.produce.producer_leaving.CLOSE_TIMEOUT = {FAR}
        with scripted() as (address, broker):
            client = ottla.sync.connect(address).__enter__()
            producer = client.producer().__enter__()
            producer.send("t", b"first")
            broker.mute = True
            producer.send_soon("t", b"second")
            try:
                ctrl_c_where(client, lambda shielded: True, lambda shielded: shielded)
                producer.__exit__(None, None, None)
            except KeyboardInterrupt:
                print("at once")
            broker.mute = False
            print(client.list_topics())
            client.__exit__(None, None, None)
    """
    done = program(ottla_broker, body)
    assert done.stdout == "at once\n['t']\n", done.stderr


def test_what_a_handler_of_a_signal_raises_ends_a_call_as_ctrl_c_does(ottla_broker: Broker) -> None:
    class Late(Exception):
        pass

    def ring(*_: object) -> None:
        raise Late

    ottla_broker.create_topic("t")
    with ottla.sync.connect(ottla_broker.bootstrap) as client, client.consumer("t") as consumer:
        before = signal.signal(signal.SIGUSR2, ring)
        try:
            timer = threading.Timer(0.1, signal.pthread_kill, (threading.get_ident(), signal.SIGUSR2))
            with pytest.raises(Late):
                timer.start()
                next(consumer)
        finally:
            signal.signal(signal.SIGUSR2, before)
        with client.producer() as producer:
            producer.send("t", b"v")
        assert [each.value for each in next(consumer)] == [b"v"]


def test_a_batch_that_does_not_reach_its_caller_because_of_ctrl_c_is_the_next_one(
    ottla_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    ottla_broker.create_topic("t")
    with ottla.sync.connect(ottla_broker.bootstrap) as client:
        with client.producer() as producer:
            producer.send("t", b"first")
        with client.consumer("t", group="g", auto_commit=60) as consumer:
            attend = client._driver._attend

            def interrupted(call: Any) -> None:
                attend(call)
                monkeypatch.undo()
                raise KeyboardInterrupt

            monkeypatch.setattr(client._driver, "_attend", interrupted)
            with pytest.raises(KeyboardInterrupt):
                next(consumer)
            batch = next(consumer)
            assert [each.value for each in batch] == [b"first"]
            batch.commit()
            assert client.committed("g")["t", 0].offset == 1


@pytest.mark.parametrize("ask", [next, lambda consumer: consumer.poll(HUNG)], ids=["next", "poll"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_a_batch_whose_interceptor_is_cut_short_is_the_next_one(
    ask: Any, error: type[BaseException], ottla_broker: Broker
) -> None:
    ottla_broker.create_topic("t")
    seen: list[list[bytes | None]] = []

    class Interceptor(ConsumerInterceptor):
        def on_consume(self, batch: ottla.sync.Batch) -> None:
            seen.append([each.value for each in batch])
            if len(seen) == 1:
                raise error

    with ottla.sync.connect(ottla_broker.bootstrap) as client:
        with client.producer(linger=0.0) as producer:
            producer.send("t", b"first")
            producer.send("t", b"second")
        options: Any = {"group": "g", "auto_commit": 60, "max_records": 1, "interceptors": [Interceptor()]}
        with client.consumer("t", **options) as consumer:
            with pytest.raises(error):
                ask(consumer)
            consumer.commit()  # commits nothing of the batch, which never reached the loop
            assert consumer.position("t", 0) == client.committed("g")["t", 0].offset == 0
            batch = ask(consumer)
            assert [each.value for each in batch] == [b"first"]
            batch.commit()
            assert client.committed("g")["t", 0].offset == 1
            assert [each.value for each in ask(consumer)] == [b"second"]
    assert seen == [[b"first"], [b"first"], [b"second"]]


@pytest.mark.slow
def test_after_a_fork_each_call_of_the_child_says_what_to_do_and_the_parent_goes_on(ottla_broker: Broker) -> None:
    body = """
        with ottla.sync.connect(ADDRESS) as client, client.producer() as producer:
            producer.send("t", b"before")
            consumer = client.consumer("t", group="g").__enter__()
            next(consumer)
            if (child := os.fork()) == 0:
                try:
                    calls = [lambda: producer.send("t", b"x"), lambda: producer.send_soon("t", b"x"), producer.flush]
                    calls += [lambda: producer.send_nowait("t", b"x"), lambda: producer.send_many("t", [b"x"])]
                    calls += [client.list_topics, client.metrics, client.explain, lambda: next(consumer)]
                    calls += [consumer.commit, lambda: consumer.assignment, lambda: client.producer().__enter__()]
                    calls += [lambda: consumer.__exit__(None, None, None), lambda: client.__exit__(None, None, None)]
                    for call in calls:
                        try:
                            call()
                        except LocalProtocolError as error:
                            assert "open a client in each process, after the fork" in str(error), error
                        else:
                            raise AssertionError(call)
                    with ottla.sync.connect(ADDRESS) as own:
                        assert own.list_topics() == ["t"]
                    print("refused", flush=True)
                finally:
                    sys.exit()  # through all blocks, and what is done at exit
            assert os.waitpid(child, 0)[1] == 0
            for number in range(100):
                producer.send_soon("t", b"after")
            producer.flush()
            consumer.__exit__(None, None, None)
        print("whole")
    """
    done = program(ottla_broker, body)
    assert done.stdout == "refused\nwhole\n", done.stderr
    assert done.stderr == ""


@pytest.mark.slow
@pytest.mark.parametrize("where", ["callback", "handler", "listener"])
def test_a_child_that_is_forked_within_a_call_is_told_what_to_do(where: str, ottla_broker: Broker) -> None:
    body = f"""
        where, children = {where!r}, []

        def fork(*_):
            if not children:
                children.append(os.fork())

        class Listener(ottla.sync.RebalanceListener):
            def assigned(self, *_):
                fork()

        try:
            with ottla.sync.connect(ADDRESS) as client, client.producer() as producer:
                if where == "handler":
                    signal.signal(signal.SIGALRM, fork)
                    signal.setitimer(signal.ITIMER_REAL, 0.2)
                    producer.send("t", b"first")
                    with client.consumer("t", start="end") as consumer:
                        consumer.poll(1.0)
                producer.send_soon("t", b"x", on_delivery=fork if where == "callback" else None)
                producer.flush()
                with client.consumer("t", group="g", listener=Listener() if where == "listener" else None) as consumer:
                    next(consumer)
        except LocalProtocolError as error:
            assert children == [0] and "open a client in each process, after the fork" in str(error), error
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == 7
        print("both are told")
    """
    done = program(ottla_broker, body)
    assert done.stdout == "both are told\n", done.stderr


@pytest.mark.slow
def test_a_program_that_leaves_no_block_ends_and_says_what_is_lost(ottla_broker: Broker) -> None:
    body = """
        client = ottla.sync.connect(ADDRESS).__enter__()
        producer = client.producer(linger=60).__enter__()
        producer.send_soon("t", b"lost")
        consumer = client.consumer("t", group="g").__enter__()
        print("end")
    """
    done = program(ottla_broker, body)
    assert done.stdout == "end\n" and done.returncode == 0
    assert "a client's block never ended, so records that its producers accepted may be lost" in done.stderr
