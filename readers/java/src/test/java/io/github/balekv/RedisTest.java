package io.github.balekv;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.lettuce.core.RedisClient;
import io.lettuce.core.api.sync.RedisHashCommands;
import io.lettuce.core.api.sync.RedisStringCommands;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.codec.ByteArrayCodec;
import java.net.URI;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Supplier;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisCluster;
import redis.clients.jedis.JedisPooled;
import redis.clients.jedis.UnifiedJedis;

/** What a Go program writes through a roll-out of dictionaries, read through the real clients. */
class RedisTest {
  static final class Entry {
    String key, field, content, error;

    /** Null for a miss. */
    byte[] want() {
      return error != null ? null : HexFormat.of().parseHex(content);
    }

    boolean readable() {
      return error == null || error.equals("not found");
    }
  }

  static final class Phase {
    String phase, url;
    List<Entry> values;

    Map<String, List<Entry>> hashes() {
      return values.stream().filter(e -> e.field != null).collect(Collectors.groupingBy(e -> e.key));
    }
  }

  private static byte[] b(String s) {
    return s.getBytes(UTF_8);
  }

  private static void check(Entry e, Class<? extends Exception> unreadable, Supplier<byte[]> read) {
    if (e.readable()) {
      assertArrayEquals(e.want(), read.get(), e.key);
    } else {
      Exception failed = assertThrows(unreadable, read::get, e.key);
      assertTrue(failed.toString().contains("unknown dictionary"), failed.toString());
    }
  }

  private static void checkJedis(UnifiedJedis client, Phase phase, boolean cluster) {
    JedisReader r = new JedisReader(client);
    for (Entry e : phase.values) {
      check(e, BaleException.Unreadable.class, () -> e.field == null ? r.get(b(e.key)) : r.hget(b(e.key), b(e.field)));
    }
    phase.hashes().forEach((key, entries) -> {
      if (!entries.stream().allMatch(Entry::readable)) {
        assertThrows(BaleException.Unreadable.class, () -> r.hgetAll(b(key)));
        return;
      }
      Map<byte[], byte[]> plain = r.hgetAll(b(key));
      assertEquals(entries.size(), plain.size());
      List<byte[]> some = r.hmget(b(key), entries.stream().map(e -> b(e.field)).toArray(byte[][]::new));
      for (int i = 0; i < entries.size(); i++) {
        assertArrayEquals(entries.get(i).want(), plain.get(b(entries.get(i).field)));
        assertArrayEquals(entries.get(i).want(), some.get(i));
      }
    });
    if (cluster) {
      return; // the keys are in many slots
    }
    List<Entry> good = phase.values.stream().filter(e -> e.field == null && e.readable()).toList();
    List<byte[]> plain = r.mget(good.stream().map(e -> b(e.key)).toArray(byte[][]::new));
    try (var pipe = client.pipelined()) {
      var replies = good.stream().map(e -> pipe.get(b(e.key))).toList();
      pipe.sync();
      byte[][] keys = good.stream().map(e -> b(e.key)).toArray(byte[][]::new);
      List<byte[]> piped = r.reader().values(keys, replies.stream().map(Supplier::get).toList());
      for (int i = 0; i < good.size(); i++) {
        assertArrayEquals(good.get(i).want(), plain.get(i));
        assertArrayEquals(good.get(i).want(), piped.get(i));
      }
    }
  }

  private static <C extends RedisStringCommands<byte[], byte[]> & RedisHashCommands<byte[], byte[]>> void checkLettuce(
      C client, C registry, Phase phase) {
    Registry.Source source = (key, end) -> registry.getrange(key, 0, end);
    Reader r = Reader.builder().registry(new Registry(Registry.DEFAULT_PREFIX, source)).build();
    for (Entry e : phase.values) {
      byte[] key = b(e.key);
      check(e, BaleException.Unreadable.class, () -> r.value(key, e.field == null ? client.get(key) : client.hget(key, b(e.field))));
    }
    phase.hashes().forEach((key, entries) -> {
      Map<byte[], byte[]> stored = client.hgetall(b(key));
      if (!entries.stream().allMatch(Entry::readable)) {
        assertThrows(BaleException.Unreadable.class, () -> r.hash(b(key), stored));
        return;
      }
      Map<String, byte[]> plain = new HashMap<>();
      r.hash(b(key), stored).forEach((field, value) -> plain.put(new String(field, UTF_8), value));
      assertEquals(entries.size(), plain.size());
      entries.forEach(e -> assertArrayEquals(e.want(), plain.get(e.field)));
    });
    byte[][] keys = {b("never written"), b(phase.values.get(0).key)};
    if (phase.values.get(0).field == null && phase.values.get(0).readable()) {
      List<byte[]> plain = r.values(keys, client.mget(keys).stream().map(v -> v.getValueOrElse(null)).toList());
      assertNull(plain.get(0));
      assertArrayEquals(phase.values.get(0).want(), plain.get(1));
    }
  }

  @Test
  void jedis() throws Exception {
    int phases = Testdata.run(Phase.class, phase -> {
      try (JedisPooled client = new JedisPooled(URI.create(phase.url))) {
        checkJedis(client, phase, false);
        if (phase.phase.equals("the first dictionary")) {
          assertEquals((byte) 0xBA, client.get(b("first:5"))[0], "it was packed");
          Reader elsewhere = Reader.builder().registry(new Registry("another:", JedisReader.source(client))).build();
          assertThrows(BaleException.Unreadable.class, () -> new JedisReader(client, elsewhere).get(b("first:5")));
          Registry.Source down = (key, end) -> {
            throw new IllegalStateException("down");
          };
          Reader mirrored = Reader.builder().registry(new Registry(Registry.DEFAULT_PREFIX, down, JedisReader.source(client))).build();
          assertEquals('{', new JedisReader(client, mirrored).get(b("first:5"))[0]);
        }
      }
    }, "fleet");
    assertEquals(7, phases);
  }

  @Test
  void jedisCluster() throws Exception {
    Testdata.run(Phase.class, phase -> {
      URI url = URI.create(phase.url);
      try (JedisCluster client = new JedisCluster(Set.of(new HostAndPort(url.getHost(), url.getPort())))) {
        checkJedis(client, phase, true);
      }
    }, "fleet", "cluster");
  }

  @Test
  void lettuce() throws Exception {
    int phases = Testdata.run(Phase.class, phase -> {
      RedisClient client = RedisClient.create(phase.url);
      RedisClient registry = RedisClient.create(phase.url);
      try {
        checkLettuce(client.connect(ByteArrayCodec.INSTANCE).sync(), registry.connect(ByteArrayCodec.INSTANCE).sync(), phase);
      } finally {
        client.shutdown();
        registry.shutdown();
      }
    }, "fleet");
    assertEquals(7, phases);
  }

  @Test
  void lettuceCluster() throws Exception {
    Testdata.run(Phase.class, phase -> {
      RedisClusterClient client = RedisClusterClient.create(phase.url);
      try {
        var commands = client.connect(ByteArrayCodec.INSTANCE).sync();
        checkLettuce(commands, commands, phase);
      } finally {
        client.shutdown();
      }
    }, "fleet", "cluster");
  }
}
