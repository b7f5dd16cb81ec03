import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Prints what a topic holds from its beginning to the end it has now; arguments: topic, {@code key=value} settings. */
public final class Consume {
    public static void main(String[] arguments) {
        var output = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        var bytes = new ByteArrayDeserializer();
        try (var consumer = new KafkaConsumer<>(Lines.settings(arguments, 1), bytes, bytes)) {
            List<TopicPartition> partitions = consumer.partitionsFor(arguments[0]).stream()
                    .map(info -> new TopicPartition(info.topic(), info.partition()))
                    .toList();
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            while (ends.entrySet().stream().anyMatch(end -> consumer.position(end.getKey()) < end.getValue())) {
                for (var record : consumer.poll(Duration.ofMillis(100))) {
                    output.println(String.join("\t",
                            String.valueOf(record.partition()), String.valueOf(record.offset()), String.valueOf(record.timestamp()),
                            Lines.hex(record.key()), Lines.hex(record.value()), Lines.headers(record.headers())));
                }
            }
        }
        output.flush();
    }
}
