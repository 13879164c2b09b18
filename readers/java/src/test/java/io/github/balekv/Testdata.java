package io.github.balekv;

import static org.junit.jupiter.api.Assumptions.assumeTrue;

import com.google.gson.Gson;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.io.Writer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.function.Consumer;

/** What the readers in all languages are tested with. */
final class Testdata {
  static final Path ROOT = Path.of("../..").toAbsolutePath().normalize();
  static final Gson JSON = new Gson();

  /** A line of frame/testdata: see its README. */
  static final class Vector {
    String name, stored, content, error;
    boolean strict;
    Integer max_size;

    byte[] bytes() {
      return HexFormat.of().parseHex(stored);
    }

    String want() {
      return error != null ? error : content != null ? content : "";
    }
  }

  static List<Vector> vectors(String file) throws IOException {
    List<Vector> all = new ArrayList<>();
    for (String line : Files.readAllLines(ROOT.resolve("frame/testdata").resolve(file))) {
      all.add(JSON.fromJson(line, Vector.class));
    }
    return all;
  }

  static void addDictionaries(Reader reader) throws IOException {
    for (String file : List.of("raw.dict", "trained.dict")) {
      reader.add(new Dictionary(Files.readAllBytes(ROOT.resolve("frame/testdata").resolve(file))));
    }
  }

  /** The content in hexadecimal, or the name of the error. */
  static String verdict(Reader reader, byte[] stored) {
    try {
      return HexFormat.of().formatHex(reader.unpack(stored));
    } catch (BaleException.Corrupt e) {
      return "corrupt";
    } catch (BaleException.TooLarge e) {
      return "too large";
    } catch (BaleException.NotFound e) {
      return "not found";
    } catch (BaleException.UnknownDictionary e) {
      return "unknown dictionary";
    } catch (BaleException.UnknownAlgorithm e) {
      return "unknown algorithm";
    }
  }

  /** Whether a verdict is Go's. S2 cannot be decoded here, and reported only that. */
  static boolean expected(Vector v, String got) {
    if (got.equals(v.want())) {
      Frame.Header h = Frame.parse(v.bytes());
      return v.error != null || h == null || h.algorithm() != Frame.S2;
    }
    Frame.Header h = Frame.parse(v.bytes());
    return h != null && h.algorithm() == Frame.S2 && got.equals("unknown algorithm");
  }

  /** Runs the Go program that writes, testkit/campaign/writer, and asks for each next line. */
  static <T> int run(Class<T> type, Consumer<T> line, String... args) throws Exception {
    String writer = System.getenv("BALE_WRITER");
    assumeTrue(writer != null || System.getenv("BALE_REQUIRE_READERS") != null, "BALE_WRITER is not set: run readers/test");
    List<String> command = new ArrayList<>(List.of(String.valueOf(writer)));
    command.addAll(List.of(args));
    Process process = new ProcessBuilder(command).directory(ROOT.toFile()).redirectError(ProcessBuilder.Redirect.INHERIT).start();
    int lines = 0;
    try (Writer in = process.outputWriter();
        BufferedReader out = new BufferedReader(new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8))) {
      for (String text; (text = out.readLine()) != null; lines++) {
        line.accept(JSON.fromJson(text, type));
        if (args[0].equals("fleet")) { // else nobody reads what is written
          next(in);
        }
      }
    } catch (UncheckedIOException | IOException e) {
      if (process.isAlive()) {
        throw e;
      }
    } finally {
      if (process.waitFor() != 0) {
        throw new IllegalStateException("writer ended with " + process.exitValue());
      }
    }
    return lines;
  }

  private static void next(Writer in) {
    try {
      in.write("\n");
      in.flush();
    } catch (IOException e) {
      // it has ended
    }
  }

  private Testdata() {}
}
