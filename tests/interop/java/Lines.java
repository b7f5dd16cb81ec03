import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Properties;
import java.util.stream.Collectors;
import java.util.stream.StreamSupport;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;

/** Fields of the lines that peer programs exchange with the tests; tests/interop/lines.py describes them. */
final class Lines {
    private Lines() {}

    static String hex(byte[] bytes) {
        return bytes == null ? "-" : HexFormat.of().formatHex(bytes);
    }

    static byte[] bytes(String field) {
        return field.equals("-") ? null : HexFormat.of().parseHex(field);
    }

    static String headers(Iterable<Header> headers) {
        return StreamSupport.stream(headers.spliterator(), false)
                .map(header -> header.key() + "=" + hex(header.value()))
                .collect(Collectors.joining(","));
    }

    static List<Header> headers(String field) {
        List<Header> headers = new ArrayList<>();
        if (!field.isEmpty()) {
            for (String pair : field.split(",")) {
                String[] parts = pair.split("=", 2);
                headers.add(new RecordHeader(parts[0], bytes(parts[1])));
            }
        }
        return headers;
    }

    /** The {@code key=value} arguments from the given one on. */
    static Properties settings(String[] arguments, int from) {
        Properties settings = new Properties();
        for (int i = from; i < arguments.length; i++) {
            String[] parts = arguments[i].split("=", 2);
            settings.put(parts[0], parts[1]);
        }
        String token = settings.getProperty("sasl.oauthbearer.token.endpoint.url");
        if (token != null) {
            System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.urls", token); // Kafka asks no others
        }
        return settings;
    }
}
