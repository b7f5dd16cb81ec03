import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Sends the messages on standard input as the Java client does by default; arguments: {@code key=value} settings. */
public final class Produce {
    private static final Future<RecordMetadata> END = CompletableFuture.completedFuture(null);

    public static void main(String[] arguments) throws Exception {
        BlockingQueue<Future<RecordMetadata>> sent = new LinkedBlockingQueue<>();
        Thread printer = new Thread(() -> print(sent));
        printer.setDaemon(true); // if there can be no producer, the program ends
        printer.start();
        var bytes = new ByteArraySerializer();
        try (var producer = new KafkaProducer<>(Lines.settings(arguments, 0), bytes, bytes)) {
            send(producer, sent);
        }
        sent.put(END);
        printer.join();
    }

    private static void send(KafkaProducer<byte[], byte[]> producer, BlockingQueue<Future<RecordMetadata>> sent)
            throws IOException, InterruptedException {
        var input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] fields = line.split("\t", -1);
            Integer partition = fields[1].isEmpty() ? null : Integer.valueOf(fields[1]);
            Long timestamp = fields[5].isEmpty() ? null : Long.valueOf(fields[5]);
            var record = new ProducerRecord<>(
                    fields[0], partition, timestamp, Lines.bytes(fields[2]), Lines.bytes(fields[3]), Lines.headers(fields[4]));
            try {
                sent.put(producer.send(record));
            } catch (KafkaException thrown) { // a few errors are thrown, most come with the future
                sent.put(CompletableFuture.failedFuture(thrown));
            }
        }
    }

    private static void print(BlockingQueue<Future<RecordMetadata>> sent) {
        var output = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        try {
            for (Future<RecordMetadata> future = sent.take(); future != END; future = sent.take()) {
                output.println(outcome(future));
                if (sent.isEmpty()) {
                    output.flush();
                }
            }
        } catch (InterruptedException end) {
            Thread.currentThread().interrupt();
        }
        output.flush();
    }

    private static String outcome(Future<RecordMetadata> future) throws InterruptedException {
        try {
            RecordMetadata metadata = future.get();
            return "ok\t" + metadata.partition() + "\t" + (metadata.hasOffset() ? metadata.offset() : -1);
        } catch (ExecutionException error) {
            Throwable cause = error.getCause();
            return "error\t" + cause.getClass().getSimpleName() + "\t" + String.valueOf(cause.getMessage()).replaceAll("\\s+", " ");
        }
    }
}
