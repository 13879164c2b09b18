import io.lettuce.core.ClientOptions;
import io.lettuce.core.GetExArgs;
import io.lettuce.core.KeyValue;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisFuture;
import io.lettuce.core.ScanCursor;
import io.lettuce.core.SetArgs;
import io.lettuce.core.TrackingArgs;
import io.lettuce.core.TransactionResult;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.api.async.RedisAsyncCommands;
import io.lettuce.core.api.sync.RedisCommands;
import io.lettuce.core.codec.ByteArrayCodec;
import io.lettuce.core.protocol.ProtocolVersion;
import io.lettuce.core.pubsub.RedisPubSubAdapter;
import io.lettuce.core.pubsub.StatefulRedisPubSubConnection;
import io.lettuce.core.support.caching.CacheAccessor;
import io.lettuce.core.support.caching.CacheFrontend;
import io.lettuce.core.support.caching.ClientSideCaching;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

public final class LettuceProgram {
  private static RedisClient client(String address, String protocol) {
    RedisClient c = RedisClient.create("redis://" + address);
    ProtocolVersion v = protocol.equals("3") ? ProtocolVersion.RESP3 : ProtocolVersion.RESP2;
    c.setOptions(ClientOptions.builder().protocolVersion(v).autoReconnect(false).build());
    return c;
  }

  public static void main(String[] args) throws Exception {
    String protocol = args[2], prefix = args[3];
    String a = prefix + "a", b = prefix + "b", h = prefix + "h", t = prefix + "t", l = prefix + "l", other = "other:" + prefix;
    RedisClient proxied = client(args[0], protocol), past = client(args[1], protocol);
    StatefulRedisConnection<String, String> connection = proxied.connect();
    RedisCommands<String, String> r = connection.sync(), second = proxied.connect().sync(), direct = past.connect().sync();
    RedisCommands<byte[], byte[]> raw = proxied.connect(ByteArrayCodec.INSTANCE).sync(), stored = past.connect(ByteArrayCodec.INSTANCE).sync();
    Check.run("strings", () -> {
      Check.equal(r.set(a, Check.value(1), SetArgs.Builder.ex(1000)), "OK");
      Check.is(r.ttl(a) > 0, "TTL");
      Check.packed(stored.get(Check.bytes(a)));
      Check.equal(r.get(a), Check.value(1));
      Check.equal(r.setGet(a, Check.value(2)), Check.value(1));
      Check.equal(r.getset(a, Check.value(3)), Check.value(2));
      Check.equal(r.getex(a, GetExArgs.Builder.ex(500)), Check.value(3));
      r.mset(Map.of(a, Check.value(4), b, Check.value(5), other, Check.value(6)));
      Check.packed(stored.get(Check.bytes(b)));
      Check.equal(direct.get(other), Check.value(6));
      List<KeyValue<String, String>> many = r.mget(b, prefix + "none", other, a);
      Check.equal(many.stream().map(v -> v.getValueOrElse("none")).toList(), List.of(Check.value(5), "none", Check.value(6), Check.value(4)));
      Check.equal(r.setnx(a, Check.value(7)), false);
      r.setex(b, 1000, Check.value(8));
      Check.equal(r.getdel(b), Check.value(8));
      Check.equal(r.get(b), null);
      r.set(b, "41");
      Check.equal(r.incr(b), 42L);
      Check.equal(direct.get(b), "42");
    });
    Check.run("hashes", () -> {
      Map<String, String> want = new HashMap<>(Map.of("f", Check.value(1), "g", Check.value(2), "n", "1"));
      Check.equal(r.hset(h, want), 3L);
      Check.packed(stored.hget(Check.bytes(h), Check.bytes("f")));
      Check.equal(r.hget(h, "f"), Check.value(1));
      Check.equal(r.hmget(h, "g", "none", "f").stream().map(v -> v.getValueOrElse("none")).toList(), List.of(Check.value(2), "none", Check.value(1)));
      Check.equal(r.hincrby(h, "n", 2), 3L);
      want.put("n", "3");
      Check.equal(r.hgetall(h), want);
      Check.equal(new TreeSet<>(r.hvals(h)), new TreeSet<>(want.values()));
      Check.equal(r.hscan(h, ScanCursor.INITIAL).getMap(), want);
      Check.equal(r.hsetnx(h, "f", Check.value(3)), false);
    });
    Check.run("pipeline", () -> {
      RedisAsyncCommands<String, String> async = connection.async();
      connection.setAutoFlushCommands(false);
      List<RedisFuture<String>> replies = new ArrayList<>();
      for (int i = 0; i < 200; i++) {
        async.set(prefix + "p" + i, Check.value(i));
        replies.add(async.get(prefix + "p" + i));
      }
      connection.flushCommands();
      connection.setAutoFlushCommands(true);
      for (int i = 0; i < 200; i++) {
        Check.equal(replies.get(i).get(30, TimeUnit.SECONDS), Check.value(i));
        Check.packed(stored.get(Check.bytes(prefix + "p" + i)));
      }
    });
    Check.run("transaction", () -> {
      r.multi();
      r.set(t, Check.value(1));
      r.get(t);
      r.hgetall(h);
      r.get(prefix + "none");
      TransactionResult got = r.exec();
      Check.equal(got.size(), 4);
      Check.equal(got.get(1), Check.value(1));
      Check.equal(((Map<?, ?>) got.get(2)).get("f"), Check.value(1));
      Check.equal(got.get(3), null);
      Check.packed(stored.get(Check.bytes(t)));
    });
    Check.run("watch", () -> {
      second.watch(t);
      Check.equal(second.get(t), Check.value(1));
      direct.set(t, "changed");
      second.multi();
      second.set(t, Check.value(2));
      Check.is(second.exec().wasDiscarded(), "EXEC in spite of a change");
      Check.equal(r.get(t), "changed");
    });
    Check.run("blocking", () -> {
      Thread pusher = new Thread(() -> {
        try {
          Thread.sleep(50);
          r.rpush(l, Check.value(1));
        } catch (InterruptedException e) {
          throw new IllegalStateException(e);
        }
      });
      pusher.start();
      Check.equal(second.blpop(30, l), KeyValue.just(l, Check.value(1)));
      pusher.join();
      Check.equal(second.blpop(0.05, l), null);
    });
    Check.run("pubsub", () -> {
      LinkedBlockingQueue<String> messages = new LinkedBlockingQueue<>();
      try (StatefulRedisPubSubConnection<String, String> sub = proxied.connectPubSub()) {
        sub.addListener(new RedisPubSubAdapter<>() {
          @Override
          public void message(String channel, String message) {
            messages.add(message);
          }

          @Override
          public void message(String pattern, String channel, String message) {
            messages.add(message);
          }
        });
        sub.sync().subscribe(prefix + "ch");
        sub.sync().psubscribe(prefix + "c*");
        Check.equal(r.publish(prefix + "ch", Check.value(1)), 2L);
        Check.equal(messages.poll(30, TimeUnit.SECONDS), Check.value(1));
        Check.equal(messages.poll(30, TimeUnit.SECONDS), Check.value(1));
      }
    });
    Check.run("binary", () -> {
      byte[][] all = Check.binaries(stored.get(Check.bytes(prefix + "p0")));
      for (int i = 0; i < all.length; i++) {
        byte[] key = Check.bytes(prefix + "bin" + i);
        raw.set(key, all[i]);
        Check.equal(raw.get(key), all[i]);
      }
    });
    Check.run("big", () -> {
      byte[] key = Check.bytes(prefix + "big"), v = Check.big();
      raw.set(key, v);
      Check.equal(raw.get(key), v);
      byte[] packed = stored.get(key);
      Check.is(packed[0] == (byte) 0xBA && packed.length < v.length / 10, "packed");
    });
    Check.run("refused", () -> {
      Check.refused("APPEND", () -> r.append(a, "x"));
      Check.refused("GETRANGE", () -> r.getrange(a, 0, 1));
      Check.refused("STRLEN", () -> r.strlen(a));
      Check.equal(r.get(a), Check.value(4));
      Check.equal(r.append(other, "x"), (long) Check.bytes(Check.value(6)).length + 1);
    });
    if (protocol.equals("3")) {
      Check.run("tracking", () -> {
        Map<String, String> cache = new ConcurrentHashMap<>();
        StatefulRedisConnection<String, String> tracked = proxied.connect();
        LinkedBlockingQueue<String> ended = new LinkedBlockingQueue<>();
        CacheFrontend<String, String> front = ClientSideCaching.enable(CacheAccessor.forMap(cache), tracked, TrackingArgs.Builder.enabled());
        tracked.addListener(message -> ended.add(message.getType()));
        r.set(t, Check.value(1));
        Check.equal(front.get(t), Check.value(1));
        Check.equal(cache, Map.of(t, Check.value(1)));
        r.set(t, Check.value(2));
        Check.equal(ended.poll(30, TimeUnit.SECONDS), "invalidate");
        Check.equal(front.get(t), Check.value(2));
      });
    }
    proxied.shutdown(0, 1, TimeUnit.SECONDS);
    past.shutdown(0, 1, TimeUnit.SECONDS);
  }

  private LettuceProgram() {}
}
