package io.github.balekv;

/** Why a stored value cannot be read. No message holds the value. */
public abstract class BaleException extends RuntimeException {
  private static final long serialVersionUID = 1;

  BaleException(String message, Throwable cause) {
    super(message, cause);
  }

  /** The value is a frame, but its content does not match its header. */
  public static final class Corrupt extends BaleException {
    Corrupt(String message) {
      this(message, null);
    }

    Corrupt(String message, Throwable cause) {
      super(message, cause);
    }
  }

  /** The decoded value is larger than maxSize, or than what budget leaves. Nothing was allocated for it. */
  public static final class TooLarge extends BaleException {
    TooLarge(String message) {
      super(message, null);
    }
  }

  /** The frame is a cached miss, or has expired. */
  public static final class NotFound extends BaleException {
    NotFound(String message) {
      super(message, null);
    }
  }

  /** This reader cannot decode the value: the message says what to add or upgrade. */
  public static final class UnknownAlgorithm extends BaleException {
    UnknownAlgorithm(String message) {
      super(message, null);
    }
  }

  /** The reader does not have the dictionary of the value. */
  public static final class UnknownDictionary extends BaleException {
    private final int id;

    UnknownDictionary(int id, String why, Throwable cause) {
      super("unknown dictionary %08x: %s".formatted(id, why), cause);
      this.id = id;
    }

    /** The dictionary's id, 32 bits without a sign. */
    public int dictionaryId() {
      return id;
    }
  }

  /** A value in Redis cannot be read: it names the key, and the cause is another BaleException. */
  public static final class Unreadable extends BaleException {
    Unreadable(String at, BaleException cause) {
      super(at + ": " + cause.getMessage(), cause);
    }
  }
}
