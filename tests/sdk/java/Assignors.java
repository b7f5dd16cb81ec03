import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.AbstractPartitionAssignor;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.TopicPartition;

/**
 * Divides partitions among members as Kafka's assignors do, a line each.
 *
 * <p>"ASSIGNOR TOPIC=COUNT… MEMBER/INSTANCE/SUBSCRIPTION…", subscriptions in hexadecimal digits, an instance of "-" for
 * none, is answered with "MEMBER/ASSIGNMENT…", or with "! " and the exception.
 */
public final class Assignors {
    private static AbstractPartitionAssignor assignor(String name) {
        return switch (name) {
            case "range" -> new RangeAssignor();
            case "roundrobin" -> new RoundRobinAssignor();
            case "sticky" -> new StickyAssignor();
            default -> new CooperativeStickyAssignor();
        };
    }

    private static String answer(String[] words) {
        Map<String, Integer> partitions = new HashMap<>();
        Map<String, Subscription> members = new HashMap<>();
        for (int i = 1; i < words.length; i++) {
            if (words[i].contains("=")) {
                String[] topic = words[i].split("=");
                partitions.put(topic[0], Integer.valueOf(topic[1]));
            } else {
                String[] member = words[i].split("/");
                Subscription subscription =
                        ConsumerProtocol.deserializeSubscription(ByteBuffer.wrap(HexFormat.of().parseHex(member[2])));
                subscription.setGroupInstanceId(Optional.of(member[1]).filter(instance -> !instance.equals("-")));
                members.put(member[0], subscription);
            }
        }
        List<String> answers = new ArrayList<>();
        for (Map.Entry<String, List<TopicPartition>> each : assignor(words[0]).assign(partitions, members).entrySet()) {
            ByteBuffer assignment = ConsumerProtocol.serializeAssignment(new Assignment(each.getValue()));
            byte[] bytes = new byte[assignment.remaining()];
            assignment.get(bytes);
            answers.add(each.getKey() + "/" + HexFormat.of().formatHex(bytes));
        }
        return String.join(" ", answers);
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String answer;
            try {
                answer = answer(line.split(" "));
            } catch (RuntimeException exception) {
                answer = "! " + exception.toString().replace('\n', ' ');
            }
            System.out.println(answer);
            System.out.flush();
        }
    }
}
