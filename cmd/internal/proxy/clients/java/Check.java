import static java.nio.charset.StandardCharsets.UTF_8;

import java.util.Arrays;
import java.util.Objects;
import java.util.Random;

/** What both programs of Java share. clients_test.go runs them, and expects a line for each check. */
final class Check {
  static final String VALUE = System.getenv("BALE_VALUE");

  interface Body {
    void run() throws Exception;
  }

  static void run(String name, Body body) throws Exception {
    body.run();
    System.out.println(name);
  }

  static String value(int n) {
    return n + " " + VALUE;
  }

  static byte[] bytes(String s) {
    return s.getBytes(UTF_8);
  }

  /** Values of bytes, with a frame, which a user could upload. */
  static byte[][] binaries(byte[] frame) {
    byte[] all = new byte[1024];
    for (int i = 0; i < all.length; i++) {
      all[i] = (byte) i;
    }
    byte[] random = new byte[5000];
    new Random(1).nextBytes(random);
    return new byte[][] {{}, {0}, all, bytes("\r\n$5\r\n*1\r\n".repeat(20)), {(byte) 0xBA, 0x1E}, frame, random};
  }

  static byte[] big() {
    return bytes(VALUE.repeat((8 << 20) / VALUE.length()));
  }

  static void is(boolean ok, String what) {
    if (!ok) {
      throw new AssertionError(what);
    }
  }

  static void packed(byte[] stored) {
    is(stored[0] == (byte) 0xBA && stored[1] == 0x1E && stored.length < VALUE.length(), "packed");
  }

  static void equal(Object got, Object want) {
    boolean same = got instanceof byte[] g && want instanceof byte[] w ? Arrays.equals(g, w) : Objects.equals(got, want);
    is(same, got + ", want " + want);
  }

  static void refused(String command, Body body) throws Exception {
    try {
      body.run();
    } catch (RuntimeException e) {
      String why = String.valueOf(e.getMessage());
      is(why.startsWith("BALE " + command + " on a key in scope: "), why);
      return;
    }
    throw new AssertionError(command + " on a key in scope");
  }

  private Check() {}
}
