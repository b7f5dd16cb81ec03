import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Carries out the commands on standard input, one a line; tests/interop/transacting.py describes them. */
public final class Transact {
    private static final Set<String> FATAL = Set.of(
            "ProducerFencedException", "OutOfOrderSequenceException", "AuthorizationException", "UnsupportedVersionException",
            "ApplicationRecoverableException", "InvalidConfigurationException", "IllegalStateException");
    private static final Set<String> RETRIABLE = Set.of("TimeoutException", "InterruptException");

    private KafkaProducer<byte[], byte[]> producer;
    private KafkaConsumer<byte[], byte[]> consumer;
    private final Map<TopicPartition, OffsetAndMetadata> positions = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        var input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var output = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        var peer = new Transact();
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String answer;
            try {
                answer = "ok" + peer.carryOut(line.split("\t", -1));
            } catch (RuntimeException error) {
                String why = error.getCause() == null ? "" : ": " + error.getCause();
                String message = (error.getMessage() + why).replaceAll("\\s+", " ");
                answer = String.join("\t", "error", kind(error), error.getClass().getSimpleName(), message);
            }
            output.println(answer);
        }
        System.exit(0); // whatever a producer still wants to do
    }

    private String carryOut(String[] fields) {
        switch (fields[0]) {
            case "open" -> {
                if (producer != null) {
                    producer.close(Duration.ZERO);
                }
                var bytes = new ByteArraySerializer();
                producer = new KafkaProducer<>(Lines.settings(fields, 1), bytes, bytes);
            }
            case "init" -> producer.initTransactions();
            case "begin" -> producer.beginTransaction();
            case "send" -> producer.send(new ProducerRecord<>(
                    fields[1], Integer.valueOf(fields[2]), Lines.bytes(fields[3]), Lines.bytes(fields[4])));
            case "flush" -> producer.flush();
            case "commit" -> producer.commitTransaction();
            case "abort" -> producer.abortTransaction();
            case "subscribe" -> subscribe(fields);
            case "poll" -> {
                return poll();
            }
            case "rewind" -> rewind();
            case "offsets" -> producer.sendOffsetsToTransaction(Map.copyOf(positions), consumer.groupMetadata());
            default -> throw new IllegalArgumentException(fields[0]);
        }
        return "";
    }

    private void subscribe(String[] fields) {
        if (consumer != null) {
            consumer.close();
        }
        positions.clear();
        var bytes = new ByteArrayDeserializer();
        consumer = new KafkaConsumer<>(Lines.settings(fields, 2), bytes, bytes);
        consumer.subscribe(List.of(fields[1]));
    }

    private String poll() {
        var told = new StringBuilder();
        positions.clear();
        for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(500))) {
            told.append("\t").append(String.join(" ",
                    String.valueOf(record.partition()), String.valueOf(record.offset()),
                    Lines.hex(record.key()), Lines.hex(record.value())));
            positions.put(new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
        }
        return told.toString();
    }

    private void rewind() {
        consumer.committed(consumer.assignment()).forEach((partition, committed) -> {
            if (committed == null) {
                consumer.seekToBeginning(List.of(partition));
            } else {
                consumer.seek(partition, committed.offset());
            }
        });
    }

    /** What the documentation of KafkaProducer says that one can do about an error. */
    private static String kind(Throwable error) {
        for (Class<?> type = error.getClass(); type != null; type = type.getSuperclass()) {
            if (FATAL.contains(type.getSimpleName())) {
                return "fatal";
            }
            if (RETRIABLE.contains(type.getSimpleName())) {
                return "retriable";
            }
        }
        return "abortable";
    }
}
