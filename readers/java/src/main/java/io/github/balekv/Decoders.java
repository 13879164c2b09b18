package io.github.balekv;

import com.github.luben.zstd.Zstd;
import com.github.luben.zstd.ZstdDecompressCtx;
import io.github.balekv.BaleException.Corrupt;
import io.github.balekv.BaleException.UnknownAlgorithm;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.commons.compress.compressors.gzip.GzipCompressorInputStream;
import org.apache.commons.compress.compressors.lz4.BlockLZ4CompressorInputStream;
import org.xerial.snappy.Snappy;

/**
 * Payloads, each decoded by its algorithm's stock library. A decoder takes a payload, the length that
 * the header claims, and a dictionary, null for none. It allocates no more than the length, and may
 * return fewer bytes, or one more.
 */
final class Decoders {
  private static final int ZSTD_MAGIC = 0xFD2FB528, LZ4_DICTIONARY = 64 << 10;

  static byte[] decode(int algorithm, byte[] payload, int length, Dictionary dictionary) throws IOException {
    try {
      return switch (algorithm) {
        case Frame.STORED -> payload;
        case Frame.SNAPPY -> snappy(payload, length);
        case Frame.LZ4 -> lz4(payload, length, dictionary);
        case Frame.GZIP -> gzip(payload, length);
        case Frame.ZSTD -> zstd(payload, length, dictionary);
        case Frame.S2 -> throw new UnknownAlgorithm("packed with s2, which no Java library reads: pack with zstd, or read through bale proxy");
        default -> throw new UnknownAlgorithm("algorithm %d: upgrade balekv".formatted(algorithm));
      };
    } catch (NoClassDefFoundError e) { // the libraries of all but zstd are optional
      String library = algorithm == Frame.SNAPPY ? "org.xerial.snappy:snappy-java" : "org.apache.commons:commons-compress";
      throw new UnknownAlgorithm("packed with %s: add %s to the dependencies".formatted(Frame.NAMES[algorithm], library));
    }
  }

  static boolean takesDictionary(int algorithm) {
    return algorithm == Frame.S2 || algorithm == Frame.LZ4 || algorithm == Frame.ZSTD;
  }

  // A context serves one thread at a time, and is not freed by the garbage collector.
  private static final ConcurrentLinkedQueue<ZstdDecompressCtx> idle = new ConcurrentLinkedQueue<>();
  private static final int MOST_IDLE = Runtime.getRuntime().availableProcessors();

  private static byte[] zstd(byte[] payload, int length, Dictionary dictionary) {
    byte[] frame = zstdFrame(payload, length);
    if (Zstd.findFrameCompressedSize(frame) != frame.length) { // the library would look for further frames
      throw new Corrupt("the zstd frame does not end where the payload does");
    }
    ZstdDecompressCtx context = idle.poll();
    if (context == null) {
      context = new ZstdDecompressCtx();
    }
    try {
      if (dictionary != null) {
        context.loadDict(dictionary.zstd());
      }
      byte[] content = new byte[length];
      int size = context.decompressByteArray(content, 0, length, frame, 0, frame.length);
      return size == length ? content : Arrays.copyOf(content, size);
    } finally {
      context.reset();
      if (idle.size() < MOST_IDLE) {
        idle.add(context);
      } else {
        context.close();
      }
    }
  }

  /** A standard frame that states the length, so that the library expects just that. */
  private static byte[] zstdFrame(byte[] payload, int length) {
    int descriptor = payload.length > 0 ? payload[0] & 0xFF : 0;
    int single = descriptor >> 5 & 1;
    int size = new int[] {single, 2, 4, 8}[descriptor >> 6];
    int at = 2 - single + new int[] {0, 1, 2, 4}[descriptor & 3];
    if (payload.length < at + size) {
      throw new Corrupt("the zstd frame is cut short");
    }
    long stated = size == 2 ? 256 : 0;
    for (int i = 0; i < size; i++) {
      stated += (payload[at + i] & 0xFFL) << 8 * i;
    }
    if (size > 0 && stated != length) {
      throw new Corrupt("the zstd frame holds %d bytes, %d expected".formatted(stated, length));
    }
    ByteBuffer frame = ByteBuffer.allocate(4 + at + 8 + payload.length - at - size).order(ByteOrder.LITTLE_ENDIAN);
    frame.putInt(ZSTD_MAGIC).put((byte) (descriptor | 0xC0)).put(payload, 1, at - 1);
    return frame.putLong(length).put(payload, at + size, payload.length - at - size).array();
  }

  private static byte[] lz4(byte[] payload, int length, Dictionary dictionary) throws IOException {
    ByteArrayInputStream in = new ByteArrayInputStream(payload);
    try (BlockLZ4CompressorInputStream block = new BlockLZ4CompressorInputStream(in)) {
      if (dictionary != null) {
        byte[] b = dictionary.content();
        block.prefill(Arrays.copyOfRange(b, Math.max(0, b.length - LZ4_DICTIONARY), b.length));
      }
      byte[] content = block.readNBytes(length);
      if (in.available() > 0 || block.read() >= 0) {
        throw new Corrupt("lz4: the block does not end where the payload does");
      }
      return content;
    }
  }

  private static byte[] gzip(byte[] payload, int length) throws IOException {
    ByteArrayInputStream in = new ByteArrayInputStream(payload);
    try (GzipCompressorInputStream member = new GzipCompressorInputStream(in)) {
      byte[] content = member.readNBytes(length + 1);
      if (in.available() > 0) {
        throw new Corrupt("gzip: the member does not end where the payload does");
      }
      return content;
    }
  }

  private static byte[] snappy(byte[] payload, int length) throws IOException {
    if (length > 22L * payload.length) { // a copy of 64 bytes takes 3
      throw new Corrupt("snappy: %d bytes cannot hold %d".formatted(payload.length, length));
    }
    return Snappy.uncompress(payload);
  }

  private Decoders() {}
}
