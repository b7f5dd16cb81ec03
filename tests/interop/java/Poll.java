import java.time.Duration;
import java.util.List;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Many members of a group in one JVM, a consumer and a thread each, until standard input ends.
 *
 * <p>Arguments: topic; the number of members; the milliseconds of a poll; {@code key=value} settings.
 */
public final class Poll {
    public static void main(String[] arguments) throws Exception {
        var topics = List.of(arguments[0]);
        var timeout = Duration.ofMillis(Long.parseLong(arguments[2]));
        var bytes = new ByteArrayDeserializer();
        for (int i = Integer.parseInt(arguments[1]); i > 0; i--) {
            // One after the other: on a busy machine, a hundred constructors at once exceed their time limit.
            var consumer = new KafkaConsumer<>(Lines.settings(arguments, 3), bytes, bytes);
            var member = new Thread(() -> {
                consumer.subscribe(topics);
                while (true) {
                    consumer.poll(timeout);
                }
            });
            // Otherwise the others would go on without it.
            member.setUncaughtExceptionHandler((thread, error) -> {
                error.printStackTrace();
                Runtime.getRuntime().halt(1);
            });
            member.start();
        }
        while (System.in.read() >= 0) {}
        Runtime.getRuntime().halt(0);
    }
}
