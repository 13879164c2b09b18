package io.github.balekv;

import io.github.balekv.BaleException.NotFound;
import io.lettuce.core.codec.RedisCodec;
import java.nio.ByteBuffer;
import java.time.Instant;

/**
 * A codec of Lettuce that reads plain values, in every command that returns some. A cached miss and an
 * expired value are null. A value that cannot be read fails its command. It packs nothing: values are
 * written as they are. It does not know which values are of one reply: {@link
 * Reader.Builder#maxSize} alone bounds them, and no budget.
 *
 * <p>Lettuce decodes in its threads for input and output, and a dictionary that is not there yet is
 * fetched from there. So the registry of the reader must not need these threads: {@link
 * LettuceRegistry} has its own.
 */
public final class LettuceCodec<K> implements RedisCodec<K, byte[]> {
  private final RedisCodec<K, ?> keys;
  private final Reader reader;

  /** keys encodes keys, and decodes them and the fields of hashes: StringCodec.UTF8, for example. */
  public LettuceCodec(RedisCodec<K, ?> keys, Reader reader) {
    this.keys = keys;
    this.reader = reader;
  }

  @Override
  public K decodeKey(ByteBuffer bytes) {
    return keys.decodeKey(bytes);
  }

  @Override
  public ByteBuffer encodeKey(K key) {
    return keys.encodeKey(key);
  }

  @Override
  public byte[] decodeValue(ByteBuffer bytes) {
    byte[] stored = new byte[bytes.remaining()];
    bytes.get(stored);
    try {
      return reader.unpack(stored, Instant.now());
    } catch (NotFound e) {
      return null;
    }
  }

  @Override
  public ByteBuffer encodeValue(byte[] value) {
    return ByteBuffer.wrap(value);
  }
}
