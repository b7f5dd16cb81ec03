import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricsReporter;
import org.apache.kafka.server.telemetry.ClientTelemetry;
import org.apache.kafka.server.telemetry.ClientTelemetryReceiver;

/** A broker's plugin that prints which clients push metrics (KIP-714), and whether their producers' metrics came. */
@SuppressWarnings("removal")
public final class Telemetry implements MetricsReporter, ClientTelemetry {
    @Override
    public ClientTelemetryReceiver clientReceiver() {
        return (context, payload) -> {
            var metrics = StandardCharsets.ISO_8859_1.decode(payload.data()).toString();
            System.out.println("TELEMETRY\t" + context.clientId() + "\t" + payload.isTerminating() + "\t"
                    + metrics.contains("org.apache.kafka.producer."));
        };
    }

    @Override
    public void init(List<KafkaMetric> metrics) {}

    @Override
    public void metricChange(KafkaMetric metric) {}

    @Override
    public void metricRemoval(KafkaMetric metric) {}

    @Override
    public void close() {}

    @Override
    public void configure(Map<String, ?> configs) {}
}
