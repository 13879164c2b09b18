package io.github.balekv;

import static java.nio.charset.StandardCharsets.UTF_8;

import io.github.balekv.BaleException.UnknownDictionary;
import java.time.Duration;
import java.time.Instant;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * Where dictionaries come from: the registry of bale's package dict, which it never changes. It is
 * safe for concurrent use if its sources are. A dictionary that could not be had is not asked for
 * again within a second.
 */
public final class Registry {
  /** The default prefix of the registry's keys. */
  public static final String DEFAULT_PREFIX = "bale:dict:";

  private static final Duration RETRY_AFTER = Duration.ofSeconds(1);
  private static final int REMEMBERED = 1000; // forged frames can name as many as they like

  /** A Redis with a registry. */
  @FunctionalInterface
  public interface Source {
    /** GETRANGE from the start of a key to an offset, which is included. */
    byte[] getrange(byte[] key, long end);
  }

  private record Missing(Instant until, UnknownDictionary why) {}

  private final String prefix;
  private final List<Source> sources;
  private final Map<Integer, Missing> missing = new HashMap<>();

  /** The sources are asked in turn for what those before do not have. */
  public Registry(String prefix, Source... sources) {
    this.prefix = prefix;
    this.sources = List.of(sources);
  }

  Dictionary fetch(int id) {
    synchronized (missing) {
      Missing m = missing.get(id);
      if (m != null && Instant.now().isBefore(m.until)) {
        throw m.why;
      }
    }
    String why = "the registry (prefix " + prefix + ") does not hold it";
    Throwable cause = null;
    for (Source source : sources) {
      for (String kind : List.of("data", "quarantine")) {
        String key = "%s%s:%08x".formatted(prefix, kind, id);
        try {
          // A dictionary, and one byte more, by which a longer value is found out.
          byte[] content = source.getrange(key.getBytes(UTF_8), Dictionary.MAX_SIZE);
          if (content == null || content.length == 0) {
            continue;
          }
          Dictionary d = new Dictionary(content);
          if (d.id() == id) {
            return d;
          }
          why = "key " + key + " holds other bytes";
        } catch (RuntimeException e) { // of the client, and of a size that no dictionary has
          why = "it could not be fetched: " + e.getMessage();
          cause = e;
        }
      }
    }
    UnknownDictionary e = new UnknownDictionary(id, why, cause);
    synchronized (missing) {
      if (missing.size() >= REMEMBERED) {
        missing.clear();
      }
      missing.put(id, new Missing(Instant.now().plus(RETRY_AFTER), e));
    }
    throw e;
  }
}
