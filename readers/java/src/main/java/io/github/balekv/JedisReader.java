package io.github.balekv;

import java.util.Arrays;
import java.util.List;
import java.util.Map;
import redis.clients.jedis.UnifiedJedis;
import redis.clients.jedis.util.JedisByteHashMap;

/**
 * Reads plain values through Jedis: JedisPooled, JedisCluster and other UnifiedJedis, which stay the
 * caller's. A cached miss and an expired value are null, and left out of a hash. A value that cannot be
 * read is Unreadable. Replies of other commands and of pipelines go through {@link #reader}. It is safe
 * for concurrent use if the client is.
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

  public Reader reader() {
    return reader;
  }

  public byte[] get(byte[] key) {
    return reader.value(key, client.get(key));
  }

  public List<byte[]> mget(byte[]... keys) {
    return reader.values(keys, client.mget(keys));
  }

  public byte[] hget(byte[] key, byte[] field) {
    return reader.value(key, client.hget(key, field));
  }

  public List<byte[]> hmget(byte[] key, byte[]... fields) {
    byte[][] keys = new byte[fields.length][];
    Arrays.fill(keys, key);
    return reader.values(keys, client.hmget(key, fields));
  }

  public Map<byte[], byte[]> hgetAll(byte[] key) {
    Map<byte[], byte[]> plain = new JedisByteHashMap();
    plain.putAll(reader.hash(key, client.hgetAll(key)));
    return plain;
  }
}
