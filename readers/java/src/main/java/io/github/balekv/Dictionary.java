package io.github.balekv;

import com.github.luben.zstd.ZstdDictDecompress;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;

/** The bytes that packed values have in common, named by their content. It is immutable. */
public final class Dictionary {
  static final int MAX_SIZE = 1 << 20;

  private final byte[] content;
  private final int id;
  private ZstdDictDecompress zstd; // made on first use; its finalizer frees it

  /** Copies 16 bytes to 1 MiB; otherwise an IllegalArgumentException. */
  public Dictionary(byte[] content) {
    if (content.length < 16 || content.length > MAX_SIZE) {
      throw new IllegalArgumentException("a dictionary of %d bytes, must be 16 to %d".formatted(content.length, MAX_SIZE));
    }
    this.content = content.clone();
    this.id = idOf(content);
  }

  /** The first 32 bits of the SHA-256 that are not zero, little endian and without a sign. */
  public int id() {
    return id;
  }

  byte[] content() {
    return content;
  }

  synchronized ZstdDictDecompress zstd() {
    if (zstd == null) {
      zstd = new ZstdDictDecompress(content);
    }
    return zstd;
  }

  private static int idOf(byte[] content) {
    try {
      ByteBuffer sum = ByteBuffer.wrap(MessageDigest.getInstance("SHA-256").digest(content)).order(ByteOrder.LITTLE_ENDIAN);
      while (sum.hasRemaining()) {
        int id = sum.getInt();
        if (id != 0) {
          return id;
        }
      }
      return 1;
    } catch (NoSuchAlgorithmException e) {
      throw new IllegalStateException(e); // every Java has it
    }
  }
}
