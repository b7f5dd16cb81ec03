import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.record.TimestampType;

/**
 * Reads and builds record sets as Apache Kafka does, a line each.
 *
 * <p>A record is "offset:timestamp:key:value", key and value in hexadecimal digits or "-" for null.
 *
 * <ul>
 *   <li>"read SET" is answered with its records, or with "! " and the exception.
 *   <li>"build MAGIC COMPRESSION STAMP RECORD…" is answered with a record set; STAMP is the time of the broker, or -1
 *       for CreateTime.
 * </ul>
 */
public final class MessageSets {
    private static String hex(ByteBuffer buffer) {
        if (buffer == null) {
            return "-";
        }
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return HexFormat.of().formatHex(bytes);
    }

    private static byte[] bytes(String field) {
        return field.equals("-") ? null : HexFormat.of().parseHex(field);
    }

    private static String read(String set) {
        StringBuilder line = new StringBuilder();
        for (RecordBatch batch : MemoryRecords.readableRecords(ByteBuffer.wrap(bytes(set))).batches()) {
            batch.ensureValid();
            for (Record record : batch) {
                record.ensureValid();
                line.append(record.offset()).append(':').append(record.timestamp()).append(':');
                line.append(hex(record.key())).append(':').append(hex(record.value())).append(' ');
            }
        }
        return line.toString();
    }

    private static String build(String[] words) {
        long stamp = Long.parseLong(words[3]);
        MemoryRecordsBuilder builder = MemoryRecords.builder(
                ByteBuffer.allocate(1024),
                Byte.parseByte(words[1]),
                Compression.of(CompressionType.forName(words[2])).build(),
                stamp < 0 ? TimestampType.CREATE_TIME : TimestampType.LOG_APPEND_TIME,
                Long.parseLong(words[4].split(":")[0]),
                stamp);
        for (int i = 4; i < words.length; i++) {
            String[] fields = words[i].split(":", -1);
            builder.appendWithOffset(
                    Long.parseLong(fields[0]), Long.parseLong(fields[1]), bytes(fields[2]), bytes(fields[3]));
        }
        return hex(builder.build().buffer());
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            String answer;
            try {
                answer = words[0].equals("read") ? read(words.length > 1 ? words[1] : "") : build(words);
            } catch (RuntimeException exception) {
                answer = "! " + exception.toString().replace('\n', ' ');
            }
            System.out.println(answer);
            System.out.flush();
        }
    }
}
