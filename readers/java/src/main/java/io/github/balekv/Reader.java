package io.github.balekv;

import io.github.balekv.BaleException.Corrupt;
import io.github.balekv.BaleException.NotFound;
import io.github.balekv.BaleException.TooLarge;
import io.github.balekv.BaleException.UnknownAlgorithm;
import io.github.balekv.BaleException.UnknownDictionary;
import java.time.Instant;
import java.util.Arrays;
import java.util.LinkedHashMap;
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
     * How many bytes the packed values of one call of a JedisReader may have together, decoded; at
     * least maxSize. Those beyond are TooLarge. Default 256 MiB.
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
