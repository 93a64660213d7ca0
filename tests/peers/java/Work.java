// Does one program of real work through spymemcached: Work.java text|binary HOST PORT. Prints the Test Anything Protocol.

import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import net.spy.memcached.CASResponse;
import net.spy.memcached.CASValue;
import net.spy.memcached.ConnectionFactoryBuilder;
import net.spy.memcached.ConnectionFactoryBuilder.Protocol;
import net.spy.memcached.MemcachedClient;
import net.spy.memcached.transcoders.SerializingTranscoder;

public class Work {
    static final int MEBIBYTE = 1 << 20;
    static final String SEED = System.getenv().getOrDefault("VERACACHE_SEED", "20");
    static Protocol protocol;
    static InetSocketAddress address;

    interface Test {
        void run(MemcachedClient client) throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        System.setProperty("net.spy.log.LoggerImpl", "net.spy.memcached.compat.log.SunLogger");
        java.util.logging.Logger.getLogger("net.spy.memcached").setLevel(java.util.logging.Level.OFF);
        protocol = arguments[0].equals("binary") ? Protocol.BINARY : Protocol.TEXT;
        address = new InetSocketAddress(arguments[1], Integer.parseInt(arguments[2]));
        Map<String, Test> tests = tests();
        System.out.println("# seed " + SEED + "\n1.." + tests.size());
        int number = 0;
        boolean failed = false;
        for (Map.Entry<String, Test> test : tests.entrySet()) {
            number++;
            MemcachedClient client = make();
            try {
                test.getValue().run(client);
                System.out.println("ok " + number + " - " + test.getKey());
            } catch (Throwable error) {
                failed = true;
                String where = Arrays.stream(error.getStackTrace())
                    .filter(frame -> frame.getClassName().startsWith("Work")).map(Object::toString).skip(1).findFirst().orElse("");
                System.out.println("not ok " + number + " - " + test.getKey() + ": " + error + " " + where);
            } finally {
                client.shutdown(5, TimeUnit.SECONDS);
            }
        }
        System.exit(failed ? 1 : 0);
    }

    static MemcachedClient make() throws Exception {
        SerializingTranscoder transcoder = new SerializingTranscoder(20 * MEBIBYTE);
        // Compressed values would be smaller than the tests mean them to be.
        transcoder.setCompressionThreshold(Integer.MAX_VALUE);
        ConnectionFactoryBuilder builder = new ConnectionFactoryBuilder()
            .setProtocol(protocol).setTranscoder(transcoder).setOpTimeout(10_000).setDaemon(true);
        return new MemcachedClient(builder.build(), List.of(address));
    }

    static Map<String, Test> tests() {
        Map<String, Test> tests = new LinkedHashMap<>();
        tests.put("values of many sizes", Work::sizes);
        tests.put("keys of many lengths", Work::keys);
        tests.put("objects and their flags", Work::objects);
        tests.put("add, replace and delete", Work::conditions);
        tests.put("append and prepend", Work::joining);
        tests.put("compare and swap", Work::swap);
        tests.put("counters", Work::counters);
        tests.put("expiry, touch, get and touch", Work::expiry);
        tests.put("many at once", Work::many);
        tests.put("a value that is too large", Work::large);
        tests.put("several connections at once", Work::connections);
        tests.put("version and stats", Work::stats);
        tests.put("flush", Work::flush);
        return tests;
    }

    static void sizes(MemcachedClient client) throws Exception {
        int[] sizes = {0, 1, 2, 30, 100, 1000, 1023, 1024, 1025, 4096, 16384, 65535, 65536, 250000, 524288, MEBIBYTE - 600};
        for (int size : sizes) {
            check(client.set("size-" + size, 0, bytes("size-" + size, size)).get(), "set");
        }
        for (int size : sizes) {
            same(client.get("size-" + size), bytes("size-" + size, size));
        }
    }

    static void keys(MemcachedClient client) throws Exception {
        int[] lengths = {1, 2, 7, 8, 9, 63, 64, 100, 249, 250};
        for (int length : lengths) {
            check(client.set("k".repeat(length), 0, "value " + length).get(), "set");
        }
        for (int length : lengths) {
            same(client.get("k".repeat(length)), "value " + length);
        }
    }

    static void objects(MemcachedClient client) throws Exception {
        Object[] objects = {0, -1, 1L << 60, "text", "ünïcödé ✓", 1.5, true, 'c' + 0, new ArrayList<>(List.of(1, "two"))};
        for (Object object : objects) {
            check(client.set("object", 0, object).get(), "set");
            same(client.get("object"), object);
        }
    }

    static void conditions(MemcachedClient client) throws Exception {
        check(!client.replace("conditional", 0, "none").get(), "replaced nothing");
        check(client.get("conditional") == null, "there");
        check(client.add("conditional", 0, "first").get(), "add");
        check(!client.add("conditional", 0, "second").get(), "added twice");
        same(client.get("conditional"), "first");
        check(client.replace("conditional", 0, "third").get(), "replace");
        same(client.get("conditional"), "third");
        check(client.delete("conditional").get(), "delete");
        check(!client.delete("conditional").get(), "deleted twice");
        check(client.get("conditional") == null, "still there");
    }

    static void joining(MemcachedClient client) throws Exception {
        check(!client.append("joined", "x").get(), "appended to nothing");
        check(client.set("joined", 0, "middle").get(), "set");
        check(client.append("joined", " end").get(), "append");
        check(client.prepend("joined", "start ").get(), "prepend");
        same(client.get("joined"), "start middle end");
    }

    static void swap(MemcachedClient client) throws Exception {
        check(client.gets("swap") == null, "there");
        check(client.set("swap", 0, "one").get(), "set");
        CASValue<Object> read = client.gets("swap");
        same(read.getValue(), "one");
        same(client.cas("swap", read.getCas(), "two"), CASResponse.OK);
        same(client.cas("swap", read.getCas(), "three"), CASResponse.EXISTS);
        same(client.cas("never-set", read.getCas(), "four"), CASResponse.NOT_FOUND);
        same(client.get("swap"), "two");
    }

    static void counters(MemcachedClient client) throws Exception {
        same(client.incr("no-counter", 1), -1L);
        same(client.incr("counter", 5, 10), 10L);
        same(client.incr("counter", 5), 15L);
        same(client.decr("counter", 1), 14L);
        same(client.decr("counter", 100), 0L);
        same(client.decr("other", 1, 7), 7L);
    }

    static void expiry(MemcachedClient client) throws Exception {
        check(client.set("short", 1, "x").get(), "set");
        check(client.set("long", 1000, "y").get(), "set");
        check(client.set("forever", 0, "z").get(), "set");
        check(client.set("touched", 1, "v").get(), "set");
        check(client.touch("touched", 1000).get(), "touch");
        check(!client.touch("never-set", 1000).get(), "touched nothing");
        if (protocol == Protocol.BINARY) {
            check(client.set("fetched", 1, "w").get(), "set");
            same(client.getAndTouch("fetched", 1000).getValue(), "w");
            check(client.getAndTouch("never-set", 1000) == null, "got nothing");
        }
        long deadline = System.nanoTime() + 4_000_000_000L;
        while (client.get("short") != null) {
            check(System.nanoTime() < deadline, "does not expire");
            Thread.sleep(50);
        }
        Thread.sleep(1000);
        same(client.get("long"), "y");
        same(client.get("forever"), "z");
        same(client.get("touched"), "v");
        if (protocol == Protocol.BINARY) {
            same(client.get("fetched"), "w");
        }
    }

    static void many(MemcachedClient client) throws Exception {
        Map<String, byte[]> values = new HashMap<>();
        List<Future<Boolean>> stores = new ArrayList<>();
        for (int n = 0; n < 500; n++) {
            values.put("multi-" + n, bytes("multi-" + n, n * 13 % 3000));
            stores.add(client.set("multi-" + n, 0, values.get("multi-" + n)));
        }
        for (Future<Boolean> store : stores) {
            check(store.get(), "set");
        }
        Collection<String> keys = new ArrayList<>(values.keySet());
        for (int n = 0; n < 200; n++) {
            keys.add("absent-" + n);
        }
        Map<String, Object> got = client.getBulk(keys);
        same(got.size(), 500);
        for (Map.Entry<String, byte[]> entry : values.entrySet()) {
            same(got.get(entry.getKey()), entry.getValue());
        }
    }

    static void large(MemcachedClient client) throws Exception {
        check(client.set("large", 0, "small").get(), "set");
        boolean stored;
        try {
            stored = client.set("large", 0, bytes("large", MEBIBYTE + 10)).get();
        } catch (java.util.concurrent.ExecutionException refused) {
            stored = false;
        }
        check(!stored, "stored");
        check(client.get("large") == null, "the old value is still there");
        check(client.set("large", 0, "small again").get(), "set");
        same(client.get("large"), "small again");
    }

    static void connections(MemcachedClient client) throws Exception {
        client.delete("shared").get();
        same(client.incr("shared", 1, 0), 0L);
        List<Throwable> failures = java.util.Collections.synchronizedList(new ArrayList<>());
        List<Thread> threads = new ArrayList<>();
        for (int number = 0; number < 8; number++) {
            int mine = number;
            threads.add(new Thread(() -> {
                try {
                    MemcachedClient own = make();
                    for (int turn = 0; turn < 200; turn++) {
                        byte[] value = bytes(mine + "-" + turn, turn * 31 % 4000);
                        check(own.set("mine-" + mine, 0, value).get(), "set");
                        same(own.get("mine-" + mine), value);
                        own.incr("shared", 1);
                    }
                    own.shutdown(5, TimeUnit.SECONDS);
                } catch (Throwable failure) {
                    failures.add(failure);
                }
            }));
        }
        for (Thread thread : threads) {
            thread.start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        check(failures.isEmpty(), failures.toString());
        same(client.incr("shared", 1), 8 * 200 + 1L);
    }

    static void stats(MemcachedClient client) throws Exception {
        check(client.getVersions().values().iterator().next().matches("\\d+\\.\\d+\\.\\d+.*"), "version");
        Map<String, String> stats = client.getStats().values().iterator().next();
        check(Long.parseLong(stats.get("cmd_set")) > 1000, "cmd_set");
        check(Long.parseLong(stats.get("curr_items")) > 500, "curr_items");
        check(client.getStats("settings").values().iterator().next().containsKey("maxconns"), "stats settings");
    }

    static void flush(MemcachedClient client) throws Exception {
        check(client.set("flushed", 0, "x").get(), "set");
        check(client.flush().get(), "flush");
        check(client.get("flushed") == null, "still there");
    }

    // Bytes that follow from a name.
    static byte[] bytes(String name, int length) {
        byte[] bytes = new byte[length];
        new Random((SEED + "/" + name).hashCode()).nextBytes(bytes);
        return bytes;
    }

    static void check(boolean condition, String what) {
        if (!condition) {
            throw new AssertionError(what);
        }
    }

    static void same(Object got, Object wanted) {
        boolean equal = wanted instanceof byte[] bytes ? got instanceof byte[] other && Arrays.equals(bytes, other) : wanted.equals(got);
        check(equal, "got " + got + ", wanted " + wanted);
    }
}
