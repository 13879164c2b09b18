package io.github.balekv;

import com.github.luben.zstd.ZstdDecompressCtx;
import io.github.balekv.Testdata.Vector;
import java.nio.file.Files;
import java.util.Arrays;
import java.util.HexFormat;

/**
 * Microseconds a value of the reader and of the bare library, in turn: mvn -q test-compile
 * dependency:build-classpath -Dmdep.outputFile=target/classpath, and java -cp
 * target/classes:target/test-classes:$(cat target/classpath) io.github.balekv.Bench
 */
final class Bench {
  private static final int ROUNDS = 51, VALUES = 20_000;

  public static void main(String[] args) throws Exception {
    for (String name : new String[] {"zstd", "zstd with the trained dictionary"}) {
      Vector v = Testdata.vectors("vectors.ndjson").stream().filter(x -> x.name.equals(name)).findFirst().orElseThrow();
      byte[] stored = v.bytes();
      byte[] payload = Arrays.copyOfRange(stored, Frame.parse(stored).payload(), stored.length);
      byte[] frame = HexFormat.of().parseHex("28b52ffd" + HexFormat.of().formatHex(payload));
      Reader reader = Reader.builder().build();
      Testdata.addDictionaries(reader);
      try (ZstdDecompressCtx library = new ZstdDecompressCtx()) {
        if (!name.equals("zstd")) {
          library.loadDict(Files.readAllBytes(Testdata.ROOT.resolve("frame/testdata/trained.dict")));
        }
        int length = v.content.length() / 2;
        check(v, reader.unpack(stored));
        check(v, library.decompress(frame, length));
        double[][] times = new double[2][ROUNDS];
        for (int i = -ROUNDS; i < ROUNDS; i++) { // the first half warms up
          int at = Math.max(i, 0);
          times[0][at] = took(() -> reader.unpack(stored));
          times[1][at] = took(() -> library.decompress(frame, length));
        }
        Arrays.stream(times).forEach(Arrays::sort);
        System.out.printf("%s: %.2f µs, library %.2f µs%n", name, times[0][ROUNDS / 2], times[1][ROUNDS / 2]);
      }
    }
  }

  private static void check(Vector v, byte[] content) {
    if (!HexFormat.of().formatHex(content).equals(v.content)) {
      throw new IllegalStateException(v.name);
    }
  }

  private static double took(Runnable work) {
    long start = System.nanoTime();
    for (int i = 0; i < VALUES; i++) {
      work.run();
    }
    return (System.nanoTime() - start) / 1e3 / VALUES;
  }

  private Bench() {}
}
