package io.github.balekv;

import io.lettuce.core.AbstractRedisClient;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.api.sync.RedisStringCommands;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.codec.ByteArrayCodec;
import java.util.function.Supplier;

/** A source of dictionaries with a client and threads of its own: see {@link LettuceCodec}. */
public final class LettuceRegistry implements Registry.Source, AutoCloseable {
  private final AbstractRedisClient client;
  private final RedisStringCommands<byte[], byte[]> commands;

  private LettuceRegistry(AbstractRedisClient client, Supplier<RedisStringCommands<byte[], byte[]>> connect) {
    this.client = client;
    try {
      commands = connect.get();
    } catch (RuntimeException e) {
      client.shutdown();
      throw e;
    }
  }

  /** Connects to the registry in a Redis. The URI's timeout bounds each fetch. */
  public static LettuceRegistry of(RedisURI uri) {
    RedisClient client = RedisClient.create(uri);
    return new LettuceRegistry(client, () -> client.connect(ByteArrayCodec.INSTANCE).sync());
  }

  /** Connects to the registry in a Redis Cluster. */
  public static LettuceRegistry ofCluster(RedisURI uri) {
    RedisClusterClient client = RedisClusterClient.create(uri);
    return new LettuceRegistry(client, () -> client.connect(ByteArrayCodec.INSTANCE).sync());
  }

  @Override
  public byte[] getrange(byte[] key, long end) {
    return commands.getrange(key, 0, end);
  }

  @Override
  public void close() {
    client.shutdown();
  }
}
