"""What Apache Kafka 4 offers to new clients, through the proxy: share groups, consumer groups of KIP-848, telemetry."""

import socket
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import confluent_kafka
import pytest

import ottla.sync
from ottla.codec.apis import APIS
from ottla.codec.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.codec.apis.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from ottla.codec.apis.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from ottla.codec.apis.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from ottla.codec.apis.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.codec.apis.share_group_describe import ShareGroupDescribeRequest
from ottla.codec.apis.streams_group_describe import StreamsGroupDescribeRequest
from ottla.codec.apis.streams_group_heartbeat import (
    JOIN,
    Endpoint,
    StreamsGroupHeartbeatRequest,
    Subtopology,
    Topology,
)
from ottla.codec.frames import build_request, parse_response
from ottla.codec.wire import NO_UUID, api
from tests.interop.lines import Message
from tests.interop.members import MemberClient, until
from tests.interop.peers import JAVA, Running, create_topic
from tests.interop.programs import java_classes
from tests.kafka import ApacheKafka, java, start
from tests.patience import HUNG
from tests.proxy.running import ProxyThread, proxied

pytestmark = pytest.mark.slow
GROUP_CONFIG, SET = 32, 0


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    """Apache Kafka with a plugin that receives the metrics of clients: without one, it offers no telemetry."""
    settings = {"metric.reporters": "Telemetry", "share.coordinator.state.topic.num.partitions": "2"}
    kafka = start(tmp_path_factory.mktemp("telemetry"), 1, settings, classes=java_classes())
    try:
        yield kafka
    finally:
        kafka.stop()


@pytest.fixture(scope="module")
def proxy(upstream: ApacheKafka) -> Iterator[ProxyThread]:
    with proxied(upstream.bootstrap, "shared-*=rewrite") as running:
        yield running


def ask(bootstrap: str, request: Any, software: str = "apache-kafka-java") -> Any:
    """The response to one request on a connection of its own, in the newest version."""
    host, _, port = bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=HUNG) as connection:
        hello = ApiVersionsRequest(client_software_name=software, client_software_version="1")
        versions = _exchange(connection, hello, 3)
        assert isinstance(versions, ApiVersionsResponse)
        key = api(type(request)).key
        offered = {each.api_key: each.max_version for each in versions.api_keys}
        return _exchange(connection, request, min(offered[key], api(type(request)).versions.high))


def _exchange(connection: socket.socket, request: Any, version: int) -> Any:
    connection.sendall(build_request(request, version, 1, "raw"))
    size = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
    frame = connection.recv(size, socket.MSG_WAITALL)
    return parse_response(APIS[api(type(request)).key].response, version, frame)[1]


def read_from_the_beginning(bootstrap: str, group: str) -> None:
    """Let a share group begin with the first record: the default is the end."""
    config = AlterableConfig(name="share.auto.offset.reset", config_operation=SET, value="earliest")
    resource = AlterConfigsResource(resource_type=GROUP_CONFIG, resource_name=group, configs=(config,))
    answer = ask(bootstrap, IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False))
    assert [each.error_code for each in answer.responses] == [0]


def filled(bootstrap: str, topic: str, count: int) -> list[bytes]:
    create_topic(bootstrap, topic, 3)
    sent = [Message(topic, b"k%d" % (n % 7), b"%d" % n) for n in range(count)]
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for each in sent:
        producer.produce(topic, key=each.key, value=each.value)
    assert producer.flush(HUNG) == 0
    return sorted(each.value or b"" for each in sent)


class Sharing(Running):
    """Java's share consumer."""

    def __init__(self, *arguments: str) -> None:
        self.values: list[bytes] = []
        self.nodes = ""
        super().__init__(java("Share", *arguments, classes=java_classes()))

    def heard(self, line: str) -> None:
        kind, _, rest = line.partition("\t")
        if kind == "accepted":
            self.values.append(bytes.fromhex(rest))
        else:
            self.nodes = rest


def test_javas_share_consumer_releases_and_accepts_every_record(proxy: ProxyThread) -> None:
    values = filled(proxy.bootstrap, "shared-java", 50)
    read_from_the_beginning(proxy.bootstrap, "sharing-java")
    settings = {
        "bootstrap.servers": proxy.bootstrap,
        "group.id": "sharing-java",
        "share.acknowledgement.mode": "explicit",
    }
    with Sharing("shared-java", "50", *(f"{k}={v}" for k, v in settings.items())) as consumer:
        consumer.close()
    assert sorted(consumer.values) == values
    assert consumer.nodes == proxy.bootstrap, "AdminClient.describeCluster names the proxy"


def test_librdkafkas_share_consumer_reads_every_record(upstream: ApacheKafka, proxy: ProxyThread) -> None:
    values = filled(proxy.bootstrap, "shared-rd", 50)
    read_from_the_beginning(proxy.bootstrap, "sharing-rd")
    consumer = confluent_kafka.ShareConsumer({"bootstrap.servers": proxy.bootstrap, "group.id": "sharing-rd"})
    consumer.subscribe(["shared-rd"])
    found: list[bytes] = []
    while len(found) < len(values) and (messages := consumer.poll(HUNG)):
        found += [message.value() or b"" for message in messages]
    during = ShareGroupDescribeRequest(group_ids=("sharing-rd",), include_authorized_operations=False)
    assert ask(proxy.bootstrap, during) == ask(upstream.bootstrap, during)
    consumer.commit_sync()
    consumer.close()
    assert sorted(found) == values
    groups = (DescribeShareGroupOffsetsRequestGroup(group_id="sharing-rd", topics=None),)
    (described,) = ask(proxy.bootstrap, DescribeShareGroupOffsetsRequest(groups=groups)).groups
    assert [each.lag for topic in described.topics for each in topic.partitions] == [0, 0, 0], "all are acknowledged"
    delete = DeleteShareGroupOffsetsRequest(
        group_id="sharing-rd", topics=(DeleteShareGroupOffsetsRequestTopic(topic_name="shared-rd"),)
    )
    deleted = ask(proxy.bootstrap, delete)
    assert [deleted.error_code, *(each.error_code for each in deleted.responses)] == [0, 0]


def test_ottlas_share_consumer_accepts_every_record(proxy: ProxyThread) -> None:
    values = filled(proxy.bootstrap, "shared-ottla", 50)
    read_from_the_beginning(proxy.bootstrap, "sharing-ottla")
    found: list[bytes] = []
    with (
        ottla.sync.connect(proxy.bootstrap) as client,
        client.share_consumer("shared-ottla", group="sharing-ottla") as consumer,
    ):
        while len(found) < len(values) and (record := consumer.poll(HUNG)) is not None:
            with record:
                found.append(record.value or b"")
    assert sorted(found) == values


def test_a_java_consumer_of_the_consumer_protocol_is_a_member(proxy: ProxyThread) -> None:
    values = filled(proxy.bootstrap, "shared-848", 50)
    member = MemberClient("java", JAVA.command, {"auto.offset.reset": "earliest", "enable.auto.commit": "false"}, {})
    with member.join(proxy.bootstrap, "shared-848", "new", config={"group.protocol": "consumer"}) as joined:
        until(lambda: len(joined.records) >= len(values), (joined,))
        joined.leave()
    assert sorted(record.value or b"" for record in joined.records) == values


def test_a_streams_group_is_joined_and_described(upstream: ApacheKafka, proxy: ProxyThread) -> None:
    create_topic(proxy.bootstrap, "streamed", 2)
    subtopology = Subtopology(
        subtopology_id="0",
        source_topics=("streamed",),
        source_topic_regex=(),
        state_changelog_topics=(),
        repartition_sink_topics=(),
        repartition_source_topics=(),
        copartition_groups=(),
    )
    join = StreamsGroupHeartbeatRequest(
        group_id="application",
        member_id=str(uuid.UUID(int=7)),
        member_epoch=JOIN,
        endpoint_information_epoch=0,
        rebalance_timeout_ms=60_000,
        topology=Topology(epoch=1, subtopologies=(subtopology,)),
        active_tasks=(),
        standby_tasks=(),
        warmup_tasks=(),
        process_id="one",
        user_endpoint=Endpoint(host="instance.example", port=8080),
        client_tags=(),
    )
    joined = ask(proxy.bootstrap, join)
    assert joined.error_code == 0, joined
    describe = StreamsGroupDescribeRequest(group_ids=("application",), include_authorized_operations=False)
    through, direct = ask(proxy.bootstrap, describe), ask(upstream.bootstrap, describe)
    assert through == direct
    [member] = through.groups[0].members
    assert member.user_endpoint.host == "instance.example", "the application's own address passes"


def test_clients_of_the_proxy_push_the_metrics_that_they_push_to_a_broker(
    upstream: ApacheKafka, proxy: ProxyThread
) -> None:
    tool = "org.apache.kafka.tools.ClientMetricsCommand"
    what = ("--name", "java", "--metrics", "org.apache.kafka.producer.", "--interval", "100")
    upstream.run(
        tool,
        "--bootstrap-server",
        proxy.bootstrap,
        "--alter",
        *what,
        "--match",
        "client_software_name=apache-kafka-java",
    )
    request = GetTelemetrySubscriptionsRequest(client_instance_id=NO_UUID)
    direct, through = ask(upstream.bootstrap, request), ask(proxy.bootstrap, request)
    assert direct.requested_metrics == ("org.apache.kafka.producer.",)
    own = {"client_instance_id": NO_UUID, "subscription_id": 0}  # each client has an id of its own
    assert replace(through, **own) == replace(direct, **own)
    assert ask(proxy.bootstrap, request, software="other").requested_metrics == ()
    create_topic(upstream.bootstrap, "measured")
    for bootstrap, name in ((upstream.bootstrap, "direct"), (proxy.bootstrap, "through")):
        with JAVA.producing(bootstrap, {"client.id": name}) as producer:
            producer.send(Message("measured", b"k", b"v"))
            producer.flush()
            await_push(upstream, name)
            producer.finish()


def await_push(upstream: ApacheKafka, client_id: str) -> None:
    """Wait until the broker's plugin has got a producer's metrics from a client."""
    log, deadline = upstream.nodes[0].log, time.monotonic() + HUNG
    wanted = f"TELEMETRY\t{client_id}\tfalse\ttrue\n"
    while wanted not in log.read_text(errors="replace"):
        assert time.monotonic() < deadline, f"{client_id} pushes nothing"
        time.sleep(0.1)
