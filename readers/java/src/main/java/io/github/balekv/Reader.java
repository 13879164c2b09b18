package io.github.balekv;

import static java.nio.charset.StandardCharsets.UTF_8;

import io.github.balekv.BaleException.Corrupt;
import io.github.balekv.BaleException.NotFound;
import io.github.balekv.BaleException.TooLarge;
import io.github.balekv.BaleException.UnknownAlgorithm;
import io.github.balekv.BaleException.UnknownDictionary;
import io.github.balekv.BaleException.Unreadable;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Turns stored values into plain ones. It is safe for concurrent use. */
public final class Reader {
  private static final int LAST_VERSION = 2;
  private static final int MOST_DICTIONARIES = 256; // zstd prepares 27 KB and more, however small a dictionary

  private final int maxSize;
  private final boolean strict;
  private final int cacheSize;
  private final long budget;
  private final Registry registry;
  private final Map<Integer, Dictionary> dictionaries = new LinkedHashMap<>(16, 0.75f, true);
  private int bytes; // of the dictionaries

  /** The settings of a Reader. */
  public static final class Builder {
    private int maxSize = 64 << 20;
    private boolean strict;
    private int cacheSize = 16 << 20;
    private long budget = 256 << 20;
    private Registry registry;

    private Builder() {}

    /** The largest decoded value in bytes; a larger one is TooLarge. Default 64 MiB. */
    public Builder maxSize(int bytes) {
      maxSize = bytes;
      return this;
    }

    /**
     * A value that starts with BA 1E but has no valid header is Corrupt. Use it where every writer
     * packs. Default false: it is a plain one.
     */
    public Builder strict(boolean is) {
      strict = is;
      return this;
    }

    /**
     * How many bytes of dictionaries to keep, at most 256 dictionaries. The least recently used ones
     * go first; the last one stays. A dictionary in use takes several times its bytes. Default 16 MiB.
     */
    public Builder cacheSize(int bytes) {
      cacheSize = bytes;
      return this;
    }

    /**
     * How many bytes the packed values of one call of {@link Reader#values} or {@link Reader#hash}
     * may have together, decoded; at least maxSize. Those beyond are TooLarge. Default 256 MiB.
     */
    public Builder budget(long bytes) {
      budget = bytes;
      return this;
    }

    /** Where dictionaries come from. Default: from {@link Reader#add} alone. */
    public Builder registry(Registry from) {
      registry = from;
      return this;
    }

    public Reader build() {
      return new Reader(this);
    }
  }

  public static Builder builder() {
    return new Builder();
  }

  private Reader(Builder b) {
    maxSize = Math.min(b.maxSize, Integer.MAX_VALUE - 16); // the longest array
    strict = b.strict;
    cacheSize = b.cacheSize;
    budget = Math.max(b.budget, maxSize);
    registry = b.registry;
  }

  /** The packed values of one operation. */
  static final class Batch {
    private long decoded; // bytes
    private int fetched; // dictionaries
  }

  /** Keeps a dictionary, and drops others beyond cacheSize. */
  public void add(Dictionary d) {
    synchronized (dictionaries) {
      if (dictionaries.putIfAbsent(d.id(), d) != null) {
        return;
      }
      bytes += d.content().length;
      for (var oldest = dictionaries.values().iterator(); dictionaries.size() > (bytes > cacheSize ? 1 : MOST_DICTIONARIES); ) {
        bytes -= oldest.next().content().length;
        oldest.remove();
      }
    }
  }

  /**
   * The content of a stored value, ignoring its expiry. A value that is no frame is returned as it
   * is. A cached miss is NotFound.
   */
  public byte[] unpack(byte[] stored) {
    return unpack(stored, null);
  }

  /** The same; a value that has expired by now is NotFound, as for Cache.Get of Go. */
  public byte[] unpack(byte[] stored, Instant now) {
    return unpack(stored, now, new Batch());
  }

  byte[] unpack(byte[] stored, Instant now, Batch batch) {
    Frame.Header header = Frame.parse(stored);
    if (header == null) {
      if (strict && Frame.hasMagic(stored)) {
        throw new Corrupt("starts like a frame, but its header check is wrong");
      }
      return stored;
    }
    byte[] payload = Arrays.copyOfRange(stored, header.payload(), stored.length);
    Instant expires = null;
    if (header.version() == 2) {
      Frame.Trailer trailer = Frame.parseTrailer(payload);
      if (trailer.absent()) {
        throw new NotFound("the frame says that there is no value");
      }
      expires = trailer.expires();
      payload = Arrays.copyOf(payload, payload.length - Frame.Trailer.SIZE);
    }
    byte[] content = decode(header, payload, batch);
    if (now != null && expires != null && !now.isBefore(expires)) {
      throw new NotFound("the value has expired");
    }
    return content;
  }

  /**
   * The plain value of a key that a client returned: null for a cached miss, an expired value and
   * null. A value that cannot be read is Unreadable.
   */
  public byte[] value(byte[] key, byte[] stored) {
    return value(key, stored, new Batch());
  }

  /** The plain values of keys, in their order, that a command or pipeline returned. They have one budget. */
  public List<byte[]> values(byte[][] keys, List<byte[]> stored) {
    if (keys.length != stored.size()) {
      throw new IllegalArgumentException("%d values of %d keys".formatted(stored.size(), keys.length));
    }
    List<byte[]> plain = new ArrayList<>(keys.length);
    Batch batch = new Batch();
    for (int i = 0; i < keys.length; i++) {
      plain.add(value(keys[i], stored.get(i), batch));
    }
    return plain;
  }

  /** The plain fields of a hash, in their order, without cached misses and expired ones. They have one budget. */
  public <F> Map<F, byte[]> hash(byte[] key, Map<F, byte[]> stored) {
    Map<F, byte[]> plain = new LinkedHashMap<>();
    Batch batch = new Batch();
    stored.forEach((field, value) -> {
      byte[] content = value(key, value, batch);
      if (content != null) {
        plain.put(field, content);
      }
    });
    return plain;
  }

  private byte[] value(byte[] key, byte[] stored, Batch batch) {
    try {
      return stored == null ? null : unpack(stored, Instant.now(), batch);
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

  private byte[] decode(Frame.Header header, byte[] payload, Batch batch) {
    int algorithm = header.algorithm();
    if (header.length() > maxSize) {
      throw new TooLarge("%d bytes decoded, and maxSize is %d".formatted(header.length(), maxSize));
    }
    if (header.version() > LAST_VERSION) {
      throw new UnknownAlgorithm("frame version %d: upgrade balekv".formatted(header.version()));
    }
    if (algorithm == Frame.CHUNKS) {
      throw new UnknownAlgorithm("the value is a stream, in chunks under other keys, which only Go reads");
    }
    int length = (int) header.length();
    if (algorithm < Frame.CHUNKS && payload.length > length + length / 6L + 1024) {
      throw new Corrupt("a payload of %d bytes for %d decoded".formatted(payload.length, length));
    }
    if (algorithm < Frame.CHUNKS && algorithm != Frame.STORED && length == 0) {
      throw new Corrupt("no bytes, and compressed all the same"); // no writer does so
    }
    Dictionary dictionary = header.dictionaryId() == 0 ? null : dictionary(header.dictionaryId(), algorithm, batch);
    if (length > budget - batch.decoded) {
      throw new TooLarge("%d bytes more than the %d decoded so far, and budget is %d".formatted(length, batch.decoded, budget));
    }
    batch.decoded += length;
    byte[] content;
    try {
      content = Decoders.decode(algorithm, payload, length, dictionary);
    } catch (BaleException e) {
      throw e;
    } catch (Exception e) { // each library has its own
      throw new Corrupt(Frame.NAMES[algorithm] + ": " + e.getMessage(), e);
    }
    if (content.length != length) {
      throw new Corrupt("%d bytes decoded, %d expected".formatted(content.length, length));
    }
    if (header.checksum() != null && Frame.checksum(content) != header.checksum()) {
      throw new Corrupt("the checksum of the content differs");
    }
    return content;
  }

  private Dictionary dictionary(int id, int algorithm, Batch batch) {
    if (algorithm < Frame.CHUNKS && !Decoders.takesDictionary(algorithm)) {
      throw new UnknownDictionary(id, Frame.NAMES[algorithm] + " takes none", null);
    }
    synchronized (dictionaries) {
      Dictionary d = dictionaries.get(id);
      if (d != null || algorithm > Frame.CHUNKS) {
        return d; // an unknown algorithm is reported as that
      }
    }
    if (registry == null) {
      throw new UnknownDictionary(id, "add it to the reader, or read with a registry", null);
    }
    if (++batch.fetched > MOST_DICTIONARIES) { // each value would fetch one again
      throw new UnknownDictionary(id, "the operation has asked for " + MOST_DICTIONARIES + " others", null);
    }
    Dictionary d = registry.fetch(id);
    add(d);
    return d;
  }
}
