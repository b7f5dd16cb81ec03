import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Set;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** A member of a group until standard input ends; arguments: topic, {@code key=value} settings. */
public final class Join {
    public static void main(String[] arguments) throws Exception {
        var output = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        var bytes = new ByteArrayDeserializer();
        var over = new AtomicBoolean();
        var watch = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {}
            } catch (java.io.IOException error) {
                // then it has ended, too
            }
            over.set(true);
        });
        watch.setDaemon(true);
        watch.start();
        try (var consumer = new KafkaConsumer<>(Lines.settings(arguments, 1), bytes, bytes)) {
            consumer.subscribe(List.of(arguments[0]));
            Set<TopicPartition> known = Set.of();
            while (!over.get()) {
                var records = consumer.poll(Duration.ofMillis(100));
                if (!consumer.assignment().equals(known)) {
                    known = Set.copyOf(consumer.assignment());
                    output.println("assigned\t" + known.stream()
                            .map(partition -> String.valueOf(partition.partition())).sorted().collect(Collectors.joining(" ")));
                }
                for (var record : records) {
                    output.println("record\t" + String.join("\t",
                            String.valueOf(record.partition()), String.valueOf(record.offset()), String.valueOf(record.timestamp()),
                            Lines.hex(record.key()), Lines.hex(record.value()), Lines.headers(record.headers())));
                }
                output.flush();
                if (!records.isEmpty()) {
                    try {
                        consumer.commitSync();
                    } catch (CommitFailedException | RebalanceInProgressException error) {
                        System.err.println(error);  // somebody else reads them again
                    }
                }
            }
        }
    }
}
