package io.github.balekv;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.balekv.Testdata.Vector;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class ReaderTest {
  /** The vectors of the format, and the damaged ones with Go's verdicts. */
  @ParameterizedTest
  @CsvSource({"vectors.ndjson,44", "damaged.ndjson,400"})
  void vectors(String file, int least) throws Exception {
    List<Vector> all = Testdata.vectors(file);
    assertTrue(all.size() >= least);
    List<String> wrong = new ArrayList<>();
    for (Vector v : all) {
      Reader.Builder b = Reader.builder().strict(v.strict);
      Reader reader = (v.max_size == null ? b : b.maxSize(v.max_size)).build();
      Testdata.addDictionaries(reader);
      String got = Testdata.verdict(reader, v.bytes());
      if (!Testdata.expected(v, got)) {
        wrong.add(v.name + ": " + got.substring(0, Math.min(60, got.length())));
      }
    }
    assertEquals(List.of(), wrong);
  }

  /** Values that were changed as faults do, with Go's verdicts. */
  @Test
  void fuzz() throws Exception {
    String n = System.getenv().getOrDefault("BALE_FUZZ_N", "20000"), seed = System.getenv().getOrDefault("BALE_FUZZ_SEED", "1");
    Reader reader = Reader.builder().maxSize(1 << 20).build();
    Testdata.addDictionaries(reader);
    int[] differ = {0};
    int verdicts = Testdata.run(Vector.class, v -> {
      String got = Testdata.verdict(reader, v.bytes());
      boolean error = got.matches(".*[g-z].*");
      Frame.Header h = Frame.parse(v.bytes());
      boolean overlooked = "corrupt".equals(v.error) && (h.algorithm() == Frame.LZ4 || h.algorithm() == Frame.ZSTD);
      if (error) {
        differ[0] += v.error == null && h.algorithm() != Frame.S2 ? 1 : 0;
      } else if (overlooked) {
        differ[0]++; // these libraries overlook bits that Go's look at
      } else {
        assertEquals(v.want(), got, v.stored);
      }
    }, "fuzz", n, seed);
    assertEquals(Integer.parseInt(n), verdicts);
    assertTrue(differ[0] <= verdicts / 1000, differ[0] + " differ");
  }

  @Test
  void boundedCache() throws Exception {
    Reader reader = Reader.builder().cacheSize(2141).build(); // of the second one
    Testdata.addDictionaries(reader);
    for (Vector v : Testdata.vectors("vectors.ndjson")) {
      if (v.name.equals("zstd with the trained dictionary")) {
        assertEquals(v.content, Testdata.verdict(reader, v.bytes()));
      } else if (v.name.equals("zstd with the raw dictionary")) {
        assertThrows(BaleException.UnknownDictionary.class, () -> reader.unpack(v.bytes()));
      }
    }
  }
}
