package io.github.balekv;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.zip.CRC32C;
import org.junit.jupiter.api.Test;
import redis.clients.jedis.JedisPooled;
import redis.clients.jedis.util.JedisByteHashMap;

/** Values that somebody wrote to do harm. */
class HostileTest {
  private static byte[] frame(int algorithm, int dictionary, int length, byte[] payload) {
    ByteArrayOutputStream rest = new ByteArrayOutputStream();
    for (int i = 0; dictionary != 0 && i < 4; i++) {
      rest.write(dictionary >> 8 * i);
    }
    for (; length > 127; length >>= 7) {
      rest.write(length & 127 | 128);
    }
    rest.write(length);
    byte[] start = {(byte) 0xBA, 0x1E, (byte) (algorithm | (dictionary != 0 ? 0x20 : 0))};
    CRC32C crc = new CRC32C();
    crc.update(start);
    crc.update(rest.toByteArray());
    long check = crc.getValue() >> 16 ^ crc.getValue();
    ByteArrayOutputStream all = new ByteArrayOutputStream();
    all.writeBytes(start);
    all.write((int) check);
    all.write((int) check >> 8);
    all.writeBytes(rest.toByteArray());
    all.writeBytes(payload);
    return all.toByteArray();
  }

  /** A MiB of zstd, in blocks of 128 KiB with four bytes each. */
  private static byte[] mebibyte() {
    ByteArrayOutputStream b = new ByteArrayOutputStream();
    b.write(0);
    b.write(7 << 3);
    for (int i = 0; i < 8; i++) {
      int header = 128 << 10 << 3 | 1 << 1 | (i == 7 ? 1 : 0);
      b.writeBytes(new byte[] {(byte) header, (byte) (header >> 8), (byte) (header >> 16), 'x'});
    }
    return frame(Frame.ZSTD, 0, 1 << 20, b.toByteArray());
  }

  /** A client whose replies have so many of these values. */
  private static JedisPooled client(int values) {
    return new JedisPooled("127.0.0.1", 1) {
      @Override
      public List<byte[]> mget(byte[]... keys) {
        List<byte[]> all = new ArrayList<>();
        for (int i = 0; i < values; i++) {
          all.add(mebibyte());
        }
        return all;
      }

      @Override
      public Map<byte[], byte[]> hgetAll(byte[] key) {
        Map<byte[], byte[]> all = new JedisByteHashMap();
        for (int i = 0; i < values; i++) {
          all.put(new byte[] {(byte) i}, mebibyte());
        }
        return all;
      }
    };
  }

  @Test
  void budget() {
    Reader reader = Reader.builder().maxSize(1 << 20).budget(3 << 20).build();
    byte[][] keys = new byte[4][1];
    try (JedisPooled three = client(3); JedisPooled four = client(4)) {
      JedisReader good = new JedisReader(three, reader), r = new JedisReader(four, reader);
      for (int i = 0; i < 2; i++) { // for each call anew
        assertEquals(3, good.mget(new byte[3][1]).size());
        assertEquals(3, good.hgetAll(keys[0]).size());
      }
      List<byte[]> pipeline = Collections.nCopies(4, mebibyte());
      assertThrows(IllegalArgumentException.class, () -> r.reader().values(keys, pipeline.subList(1, 4)));
      var reads = List.<org.junit.jupiter.api.function.Executable>of(() -> r.mget(keys), () -> r.hgetAll(keys[0]), () -> r.reader().values(keys, pipeline));
      for (var read : reads) {
        String why = assertThrows(BaleException.Unreadable.class, read).getMessage();
        assertTrue(why.endsWith("decoded so far, and budget is 3145728"), why);
      }
    }
    assertEquals(1 << 20, Reader.builder().budget(1).build().unpack(mebibyte()).length, "maxSize bounds a single value");
  }

  @Test
  void namesInErrors() {
    try (JedisPooled client = client(1)) {
      JedisReader r = new JedisReader(client);
      byte[] bad = frame(Frame.ZSTD, 0, 5, new byte[1]);
      String why = assertThrows(BaleException.Unreadable.class, () -> r.reader().value("a\u001b[31m\u202e\u009b\n".getBytes(StandardCharsets.UTF_8), bad)).getMessage();
      assertTrue(why.startsWith("key a?[31m???: "), why);
      why = assertThrows(BaleException.Unreadable.class, () -> r.reader().value("x".repeat(1 << 20).getBytes(StandardCharsets.UTF_8), bad)).getMessage();
      assertTrue(why.startsWith("x".repeat(256) + "...: ", 4) && why.length() < 1000, why);
    }
  }

  @Test
  void fetchedDictionaries() {
    Dictionary[] two = {new Dictionary(new byte[16]), new Dictionary(new byte[17])};
    int[] fetched = {0};
    Registry registry = new Registry("p:", (key, end) -> two[fetched[0]++ % 2].content());
    Reader reader = Reader.builder().cacheSize(16).registry(registry).build(); // which keeps one
    Reader.Batch batch = new Reader.Batch();
    for (int i = 0; i < 256; i++) {
      assertEquals(1, reader.unpack(frame(Frame.ZSTD, two[i % 2].id(), 1, new byte[] {0, 0, 9, 0, 0, 'x'}), null, batch).length);
    }
    String why = assertThrows(BaleException.UnknownDictionary.class, () -> reader.unpack(frame(Frame.ZSTD, two[0].id(), 1, new byte[6]), null, batch)).getMessage();
    assertTrue(why.endsWith("the operation has asked for 256 others"), why);
  }

  @Test
  void tinyDictionaries() {
    Reader reader = Reader.builder().build();
    int[] ids = new int[1000];
    for (int i = 0; i < ids.length; i++) {
      Dictionary d = new Dictionary("%016d".formatted(i).getBytes(StandardCharsets.UTF_8));
      reader.add(d);
      ids[i] = d.id();
    }
    int known = 0;
    for (int id : ids) {
      known += assertThrows(BaleException.class, () -> reader.unpack(frame(Frame.LZ4, id, 5, new byte[1]))) instanceof BaleException.Corrupt ? 1 : 0;
    }
    assertEquals(256, known);
  }
}
