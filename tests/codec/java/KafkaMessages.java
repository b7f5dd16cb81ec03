import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Method;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.jar.JarFile;

import static java.nio.charset.StandardCharsets.UTF_8;

/**
 * The message classes that Kafka generates, of several releases in one process, each release in a class loader of its own.
 *
 * Arguments: {@code release=jar:jar:...}. A line of input is a question, a line of output its answer; tabs separate.
 *
 * <pre>
 * release read  name version base64   ->  ok json base64    what was read, and the same built again
 * release build name version json     ->  ok json base64    what was built; json is empty
 * release errors                      ->  ok json           [code, name, retriable, stale metadata] of every error
 *                                     ->  error text        for any of them
 * </pre>
 */
public final class KafkaMessages {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        Map<String, Release> releases = new HashMap<>();
        for (String arg : args) {
            String[] parts = arg.split("=", 2);
            releases.put(parts[0], new Release(parts[1].split(File.pathSeparator)));
        }
        PrintStream out = new PrintStream(System.out, true, UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.print(answer(releases, line.split("\t", -1)) + "\n");
            out.flush();
        }
    }

    private static String answer(Map<String, Release> releases, String[] question) {
        try {
            Release release = releases.get(question[0]);
            if (question[1].equals("errors")) {
                return "ok\t" + JSON.writeValueAsString(release.errors());
            }
            Generated message = release.message(question[2]);
            short version = Short.parseShort(question[3]);
            if (question[1].equals("build")) {
                Object built = message.fromJson.invoke(null, JSON.readTree(question[4]), version);
                return "ok\t\t" + message.bytes(built, version);
            }
            Object read = message.read(Base64.getDecoder().decode(question[4]), version);
            Object json = message.toJson.invoke(null, read, version, false);
            return "ok\t" + JSON.writeValueAsString(json) + "\t" + message.bytes(read, version);
        } catch (Throwable error) { // whatever it is belongs to whoever asked
            Throwable cause = error.getCause() == null ? error : error.getCause();
            return "error\t" + cause.toString().replaceAll("\\s+", " ");
        }
    }

    /** The generated classes in the jars of one release. */
    private static final class Release {
        private final URLClassLoader loader;
        private final Map<String, String> converters = new HashMap<>();
        private final Map<String, Generated> messages = new HashMap<>();

        Release(String[] jars) throws Exception {
            List<URL> urls = new ArrayList<>();
            for (String jar : jars) {
                urls.add(new File(jar).toURI().toURL());
                try (JarFile opened = new JarFile(jar)) {
                    opened.stream().map(entry -> entry.getName()).filter(name -> name.endsWith("JsonConverter.class"))
                        .map(name -> name.replace(".class", "").replace('/', '.'))
                        .forEach(name -> converters.put(name.substring(name.lastIndexOf('.') + 1), name));
                }
            }
            loader = new URLClassLoader(urls.toArray(URL[]::new), KafkaMessages.class.getClassLoader());
        }

        Generated message(String name) throws Exception {
            if (!messages.containsKey(name)) {
                String data = converters.get(name + "DataJsonConverter"); // so of requests, responses and headers
                String converter = data == null ? converters.get(name + "JsonConverter") : data;
                messages.put(name, new Generated(loader, converter));
            }
            return messages.get(name);
        }

        ArrayNode errors() throws Exception {
            ArrayNode all = JSON.createArrayNode();
            Class<?> errors = loader.loadClass("org.apache.kafka.common.protocol.Errors");
            Class<?> retriable = loader.loadClass("org.apache.kafka.common.errors.RetriableException");
            Class<?> stale = loader.loadClass("org.apache.kafka.common.errors.InvalidMetadataException");
            for (Object error : errors.getEnumConstants()) {
                Object exception = errors.getMethod("exception").invoke(error);
                all.addArray().add((short) errors.getMethod("code").invoke(error)).add(((Enum<?>) error).name())
                    .add(retriable.isInstance(exception)).add(stale.isInstance(exception));
            }
            return all;
        }
    }

    /** One message class. */
    private static final class Generated {
        private final Class<?> message;
        private final Class<?> accessor;
        private final Class<?> readable;
        private final Class<?> cache;
        private final Method size;
        private final Method write;
        final Method toJson;
        final Method fromJson;

        Generated(ClassLoader loader, String converter) throws Exception {
            message = loader.loadClass(converter.replace("JsonConverter", ""));
            accessor = loader.loadClass("org.apache.kafka.common.protocol.ByteBufferAccessor");
            readable = loader.loadClass("org.apache.kafka.common.protocol.Readable");
            cache = loader.loadClass("org.apache.kafka.common.protocol.ObjectSerializationCache");
            size = message.getMethod("size", cache, short.class);
            write = message.getMethod(
                "write", loader.loadClass("org.apache.kafka.common.protocol.Writable"), cache, short.class);
            toJson = loader.loadClass(converter).getMethod("write", message, short.class, boolean.class);
            fromJson = loader.loadClass(converter).getMethod("read", JsonNode.class, short.class);
        }

        Object read(byte[] data, short version) throws Exception {
            ByteBuffer buffer = ByteBuffer.wrap(data);
            Object wrapped = accessor.getConstructor(ByteBuffer.class).newInstance(buffer);
            Object read = message.getConstructor(readable, short.class).newInstance(wrapped, version);
            if (buffer.hasRemaining()) {
                throw new IllegalArgumentException(buffer.remaining() + " bytes left over");
            }
            return read;
        }

        String bytes(Object value, short version) throws Exception {
            Object sizes = cache.getConstructor().newInstance();
            ByteBuffer buffer = ByteBuffer.allocate((int) size.invoke(value, sizes, version));
            write.invoke(value, accessor.getConstructor(ByteBuffer.class).newInstance(buffer), sizes, version);
            return Base64.getEncoder().encodeToString(buffer.array());
        }
    }
}
