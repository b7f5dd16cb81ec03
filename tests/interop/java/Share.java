import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A member of a share group until it has accepted some records; arguments: topic, how many, {@code key=value} settings.
 * It releases each record at its first delivery, and accepts it at the second. Then it prints the nodes of the cluster.
 */
public final class Share {
    public static void main(String[] arguments) throws Exception {
        var output = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        var bytes = new ByteArrayDeserializer();
        var settings = Lines.settings(arguments, 2);
        try (var consumer = new KafkaShareConsumer<>(settings, bytes, bytes)) {
            consumer.subscribe(List.of(arguments[0]));
            for (int left = Integer.parseInt(arguments[1]); left > 0; ) {
                for (var record : consumer.poll(Duration.ofMillis(100))) {
                    boolean again = record.deliveryCount().orElseThrow() > 1;
                    consumer.acknowledge(record, again ? AcknowledgeType.ACCEPT : AcknowledgeType.RELEASE);
                    if (again) {
                        left--;
                        output.println("accepted\t" + Lines.hex(record.value()));
                    }
                }
                for (var error : consumer.commitSync().values()) {
                    if (error.isPresent()) {
                        throw error.get();
                    }
                }
            }
        }
        settings.keySet().removeIf(name -> !name.equals("bootstrap.servers"));
        try (var admin = Admin.create(settings)) {
            output.println("nodes\t" + admin.describeCluster().nodes().get().stream()
                    .map(node -> node.host() + ":" + node.port()).sorted().collect(Collectors.joining(" ")));
        }
        output.flush();
    }
}
