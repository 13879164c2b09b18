package io.github.balekv;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Instant;
import java.util.Arrays;
import java.util.zip.CRC32C;

/** The header and the trailer of a frame, as the comment of bale's Go package frame has them. */
final class Frame {
  static final int STORED = 0, SNAPPY = 1, S2 = 2, LZ4 = 3, GZIP = 4, ZSTD = 5, CHUNKS = 6;
  static final String[] NAMES = {"none", "snappy", "s2", "lz4", "gzip", "zstd", "chunks"};

  private static final int TRAILER_SIZE = 11, FRESHNESS = 1, ABSENT = 0xFFFF;

  /**
   * @param checksum of the content, CRC-32C; null for none
   * @param dictionaryId 0 for none
   * @param length of the content, in bytes
   * @param payload where it begins
   */
  record Header(int version, int algorithm, Integer checksum, int dictionaryId, long length, int payload) {}

  /** @param expires null for never */
  record Trailer(Instant expires, boolean absent) {
    static final int SIZE = TRAILER_SIZE;
  }

  static boolean hasMagic(byte[] b) {
    return b.length >= 2 && b[0] == (byte) 0xBA && b[1] == 0x1E;
  }

  /** The header of a frame, null for a value that was stored without bale. */
  static Header parse(byte[] stored) {
    if (stored.length <= 5 || !hasMagic(stored)) {
      return null;
    }
    int tag = stored[2] & 0xFF;
    boolean hasChecksum = (tag & 0x10) != 0, hasDictionary = (tag & 0x20) != 0;
    int at = 5 + (hasChecksum ? 4 : 0) + (hasDictionary ? 4 : 0);
    if (stored.length <= at) {
      return null;
    }
    ByteBuffer fields = ByteBuffer.wrap(stored).order(ByteOrder.LITTLE_ENDIAN).position(5);
    Integer checksum = hasChecksum ? (Integer) fields.getInt() : null;
    int dictionary = hasDictionary ? fields.getInt() : 0;
    if (hasDictionary && dictionary == 0) {
      return null;
    }
    long length = 0;
    int end = at;
    for (byte b = -1; b < 0; ) {
      if (end == stored.length || end - at == 9) {
        return null;
      }
      b = stored[end];
      if (b == 0 && end > at) {
        return null; // not the shortest form
      }
      length |= (b & 127L) << (7 * (end - at));
      end++;
    }
    CRC32C crc = new CRC32C();
    crc.update(stored, 0, 3);
    crc.update(stored, 5, end - 5);
    if (fold(crc) != fields.getShort(3)) {
      return null;
    }
    int algorithm = tag & 15;
    if (algorithm == SNAPPY || algorithm == S2) {
      end = at; // the length is the payload's own first field
    }
    return new Header((tag >> 6) + 1, algorithm, checksum, dictionary, length, end);
  }

  /** The trailer at the end of the payload of version 2. */
  static Trailer parseTrailer(byte[] payload) {
    int n = payload.length;
    if (n >= 3 && payload[n - 3] != FRESHNESS) {
      throw new BaleException.UnknownAlgorithm("the frame has a trailer of kind %d: upgrade balekv".formatted(payload[n - 3] & 0xFF));
    }
    ByteBuffer t = ByteBuffer.wrap(Arrays.copyOfRange(payload, Math.max(0, n - TRAILER_SIZE), n)).order(ByteOrder.LITTLE_ENDIAN);
    CRC32C crc = new CRC32C();
    crc.update(t.array(), 0, Math.max(0, t.capacity() - 2));
    if (t.capacity() < TRAILER_SIZE || fold(crc) != t.getShort(TRAILER_SIZE - 2)) {
      throw new BaleException.Corrupt("trailer checksum mismatch: the value is damaged, or cut");
    }
    long expires = t.getLong(0) & (1L << 48) - 1;
    return new Trailer(expires == 0 ? null : Instant.ofEpochMilli(expires), (t.getShort(6) & 0xFFFF) == ABSENT);
  }

  static int checksum(byte[] content) {
    CRC32C crc = new CRC32C();
    crc.update(content);
    return (int) crc.getValue();
  }

  private static short fold(CRC32C crc) {
    long c = crc.getValue();
    return (short) (c >> 16 ^ c);
  }

  private Frame() {}
}
