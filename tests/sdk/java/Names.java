import java.util.TreeSet;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;

/** Prints the name of every option of Kafka's clients. */
public final class Names {
    public static void main(String[] args) {
        TreeSet<String> names = new TreeSet<>(ProducerConfig.configDef().names());
        names.addAll(ConsumerConfig.configDef().names());
        names.addAll(AdminClientConfig.configDef().names());
        names.forEach(System.out::println);
    }
}
