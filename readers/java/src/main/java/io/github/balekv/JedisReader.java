package io.github.balekv;

import static java.nio.charset.StandardCharsets.UTF_8;

import io.github.balekv.BaleException.NotFound;
import io.github.balekv.BaleException.Unreadable;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import redis.clients.jedis.UnifiedJedis;
import redis.clients.jedis.util.JedisByteHashMap;

/**
 * Reads plain values through Jedis: JedisPooled, JedisCluster and other UnifiedJedis, which stay the
 * caller's. A cached miss and an expired value are null, and left out of a hash. A value that cannot be
 * read is Unreadable. Replies of pipelines go through {@link #values}. It is safe for concurrent use if
 * the client is.
 */
public final class JedisReader {
  private final UnifiedJedis client;
  private final Reader reader;

  /** Dictionaries come from the registry in the client's Redis. */
  public JedisReader(UnifiedJedis client) {
    this(client, Reader.builder().registry(new Registry(Registry.DEFAULT_PREFIX, source(client))).build());
  }

  public JedisReader(UnifiedJedis client, Reader reader) {
    this.client = client;
    this.reader = reader;
  }

  /** The client as the source of a Registry. */
  public static Registry.Source source(UnifiedJedis client) {
    return (key, end) -> client.getrange(key, 0, end);
  }

  public byte[] get(byte[] key) {
    return value(key, client.get(key));
  }

  public List<byte[]> mget(byte[]... keys) {
    return values(keys, client.mget(keys));
  }

  public byte[] hget(byte[] key, byte[] field) {
    return value(key, client.hget(key, field));
  }

  public List<byte[]> hmget(byte[] key, byte[]... fields) {
    byte[][] keys = new byte[fields.length][];
    Arrays.fill(keys, key);
    return values(keys, client.hmget(key, fields));
  }

  public Map<byte[], byte[]> hgetAll(byte[] key) {
    Map<byte[], byte[]> plain = new JedisByteHashMap();
    Reader.Batch batch = new Reader.Batch();
    client.hgetAll(key).forEach((field, stored) -> {
      byte[] content = value(key, stored, batch);
      if (content != null) {
        plain.put(field, content);
      }
    });
    return plain;
  }

  /** The plain value of a key that a command returned, with a budget of its own. */
  public byte[] value(byte[] key, byte[] stored) {
    return value(key, stored, new Reader.Batch());
  }

  private byte[] value(byte[] key, byte[] stored, Reader.Batch batch) {
    try {
      return stored == null ? null : reader.unpack(stored, Instant.now(), batch);
    } catch (NotFound e) {
      return null;
    } catch (BaleException e) {
      throw new Unreadable("key " + shown(key), e);
    }
  }

  private static final int MAX_NAME = 256; // of a key in a message, which has 512 MB at most

  private static String shown(byte[] key) {
    String start = new String(key, 0, Math.min(key.length, MAX_NAME), UTF_8).replaceAll("[\\p{C}\\u2028\\u2029]", "?");
    return key.length > MAX_NAME ? start + "..." : start;
  }

  /** The plain values of keys, in their order, that a command or pipeline returned, with one budget. */
  public List<byte[]> values(byte[][] keys, List<byte[]> stored) {
    if (keys.length != stored.size()) {
      throw new IllegalArgumentException("%d values of %d keys".formatted(stored.size(), keys.length));
    }
    List<byte[]> plain = new ArrayList<>(keys.length);
    Reader.Batch batch = new Reader.Batch();
    for (int i = 0; i < keys.length; i++) {
      plain.add(value(keys[i], stored.get(i), batch));
    }
    return plain;
  }
}
