import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.stream.Stream;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.AbstractPartitionAssignor;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;

/**
 * Runs Kafka's assignors: reads one case from each line, and answers it with one line.
 *
 * <p>A line is "ASSIGNOR TOPIC=RACKS;RACKS;… MEMBER/INSTANCE/SUBSCRIPTION…", with the racks of each partition's replicas
 * separated by commas, subscriptions in hexadecimal digits, and "-" for a member without an instance id. The answer is
 * "MEMBER/ASSIGNMENT…", or "! " and the exception.
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

    private static PartitionInfo partition(String topic, int partition, String racks) {
        Node[] replicas = Stream.of(racks.split(",")).filter(rack -> !rack.isEmpty())
                .map(rack -> new Node(rack.hashCode(), "", 0, rack)).toArray(Node[]::new);
        return new PartitionInfo(topic, partition, null, replicas, replicas);
    }

    private static String answer(String[] words) {
        List<PartitionInfo> partitions = new ArrayList<>();
        Map<String, Subscription> members = new HashMap<>();
        for (int i = 1; i < words.length; i++) {
            if (words[i].contains("=")) {
                String[] topic = words[i].split("=", 2);
                String[] racks = topic[1].split(";", -1);
                for (int each = 0; each < racks.length; each++)
                    partitions.add(partition(topic[0], each, racks[each]));
            } else {
                String[] member = words[i].split("/");
                Subscription subscription =
                        ConsumerProtocol.deserializeSubscription(ByteBuffer.wrap(HexFormat.of().parseHex(member[2])));
                subscription.setGroupInstanceId(Optional.of(member[1]).filter(instance -> !instance.equals("-")));
                members.put(member[0], subscription);
            }
        }
        Cluster cluster = new Cluster("c", List.of(), partitions, Set.of(), Set.of());
        Map<String, Assignment> assigned =
                assignor(words[0]).assign(cluster, new GroupSubscription(members)).groupAssignment();
        List<String> answers = new ArrayList<>();
        for (Map.Entry<String, Assignment> each : assigned.entrySet()) {
            ByteBuffer assignment = ConsumerProtocol.serializeAssignment(each.getValue());
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
