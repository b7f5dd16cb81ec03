import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A member of a share group until its input ends; arguments: topic, {@code key=value} settings. It prints each delivery
 * and each stored acknowledgement; tests/interop/sharing.py describes the lines.
 */
public final class ShareJoin {
    public static void main(String[] arguments) throws Exception {
        var output = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        var bytes = new ByteArrayDeserializer();
        var running = new AtomicBoolean(true);
        var watch = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {}
            } catch (java.io.IOException ignored) {
                // the test has ended
            }
            running.set(false);
        });
        watch.setDaemon(true);
        watch.start();
        try (var consumer = new KafkaShareConsumer<>(Lines.settings(arguments, 1), bytes, bytes)) {
            consumer.subscribe(List.of(arguments[0]));
            while (running.get()) {
                var accepted = new ArrayList<ConsumerRecord<byte[], byte[]>>();
                for (var record : consumer.poll(Duration.ofMillis(100))) {
                    output.println("delivered\t" + line(record));
                    boolean again = record.deliveryCount().orElseThrow() == 1 && record.offset() % 7 == 0;
                    consumer.acknowledge(record, again ? AcknowledgeType.RELEASE : AcknowledgeType.ACCEPT);
                    if (!again) {
                        accepted.add(record);
                    }
                }
                var results = consumer.commitSync();
                for (var record : accepted) {
                    boolean failed = results.entrySet().stream().anyMatch(each ->
                            each.getKey().partition() == record.partition() && each.getValue().isPresent());
                    output.println((failed ? "failed\t" : "accepted\t") + line(record));
                }
            }
        }
    }

    private static String line(ConsumerRecord<byte[], byte[]> record) {
        return record.partition() + "\t" + record.offset() + "\t" + record.deliveryCount().orElseThrow();
    }
}
