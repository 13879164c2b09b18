import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisPubSub;
import redis.clients.jedis.Pipeline;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.Response;
import redis.clients.jedis.Transaction;
import redis.clients.jedis.params.GetExParams;
import redis.clients.jedis.params.SetParams;

public final class JedisProgram {
  private static Jedis connect(String address, String protocol) {
    RedisProtocol p = protocol.equals("3") ? RedisProtocol.RESP3 : RedisProtocol.RESP2;
    return new Jedis(HostAndPort.from(address), DefaultJedisClientConfig.builder().protocol(p).socketTimeoutMillis(60_000).build());
  }

  public static void main(String[] args) throws Exception {
    String proxy = args[0], protocol = args[2], prefix = args[3];
    String a = prefix + "a", b = prefix + "b", h = prefix + "h", t = prefix + "t", l = prefix + "l", other = "other:" + prefix;
    try (Jedis r = connect(proxy, protocol); Jedis second = connect(proxy, protocol); Jedis direct = connect(args[1], protocol)) {
      Check.run("strings", () -> {
        Check.equal(r.set(a, Check.value(1), SetParams.setParams().ex(1000)), "OK");
        Check.is(r.ttl(a) > 0, "TTL");
        Check.packed(direct.get(Check.bytes(a)));
        Check.equal(r.get(a), Check.value(1));
        Check.equal(r.setGet(a, Check.value(2)), Check.value(1));
        Check.equal(r.getSet(a, Check.value(3)), Check.value(2));
        Check.equal(r.getEx(a, GetExParams.getExParams().ex(500)), Check.value(3));
        r.mset(a, Check.value(4), b, Check.value(5), other, Check.value(6));
        Check.packed(direct.get(Check.bytes(b)));
        Check.equal(direct.get(other), Check.value(6));
        Check.equal(r.mget(b, prefix + "none", other, a), Arrays.asList(Check.value(5), null, Check.value(6), Check.value(4)));
        Check.equal(r.setnx(a, Check.value(7)), 0L);
        r.setex(b, 1000, Check.value(8));
        Check.equal(r.getDel(b), Check.value(8));
        Check.equal(r.get(b), null);
        r.set(b, "41");
        Check.equal(r.incr(b), 42L);
        Check.equal(direct.get(b), "42");
      });
      Check.run("hashes", () -> {
        Map<String, String> want = new HashMap<>(Map.of("f", Check.value(1), "g", Check.value(2), "n", "1"));
        Check.equal(r.hset(h, want), 3L);
        Check.packed(direct.hget(Check.bytes(h), Check.bytes("f")));
        Check.equal(r.hget(h, "f"), Check.value(1));
        Check.equal(r.hmget(h, "g", "none", "f"), Arrays.asList(Check.value(2), null, Check.value(1)));
        Check.equal(r.hincrBy(h, "n", 2), 3L);
        want.put("n", "3");
        Check.equal(r.hgetAll(h), want);
        Check.equal(new TreeSet<>(r.hvals(h)), new TreeSet<>(want.values()));
        Map<String, String> scanned = new HashMap<>();
        r.hscan(h, "0").getResult().forEach(e -> scanned.put(e.getKey(), e.getValue()));
        Check.equal(scanned, want);
        Check.equal(r.hsetnx(h, "f", Check.value(3)), 0L);
      });
      Check.run("pipeline", () -> {
        Pipeline p = r.pipelined();
        List<Response<String>> replies = new ArrayList<>();
        for (int i = 0; i < 200; i++) {
          p.set(prefix + "p" + i, Check.value(i));
          replies.add(p.get(prefix + "p" + i));
        }
        p.sync();
        for (int i = 0; i < 200; i++) {
          Check.equal(replies.get(i).get(), Check.value(i));
          Check.packed(direct.get(Check.bytes(prefix + "p" + i)));
        }
      });
      Check.run("transaction", () -> {
        Transaction x = r.multi();
        x.set(t, Check.value(1));
        Response<String> got = x.get(t);
        Response<Map<String, String>> all = x.hgetAll(h);
        Response<String> none = x.get(prefix + "none");
        Check.equal(x.exec().size(), 4);
        Check.equal(got.get(), Check.value(1));
        Check.equal(all.get().get("f"), Check.value(1));
        Check.equal(none.get(), null);
        Check.packed(direct.get(Check.bytes(t)));
      });
      Check.run("watch", () -> {
        second.watch(t);
        Check.equal(second.get(t), Check.value(1));
        direct.set(t, "changed");
        Transaction x = second.multi();
        x.set(t, Check.value(2));
        Check.equal(x.exec(), null);
        Check.equal(r.get(t), "changed");
      });
      Check.run("blocking", () -> {
        Thread pusher = new Thread(() -> {
          try (Jedis c = connect(proxy, protocol)) {
            Thread.sleep(50);
            c.rpush(l, Check.value(1));
          } catch (InterruptedException e) {
            throw new IllegalStateException(e);
          }
        });
        pusher.start();
        Check.equal(second.blpop(30, l), List.of(l, Check.value(1)));
        pusher.join();
        Check.equal(second.blpop(0.05, l), null);
      });
      Check.run("pubsub", () -> {
        LinkedBlockingQueue<String> events = new LinkedBlockingQueue<>();
        JedisPubSub listener = new JedisPubSub() {
          @Override
          public void onSubscribe(String channel, int n) {
            events.add("subscribed");
          }

          @Override
          public void onMessage(String channel, String message) {
            events.add(message);
          }
        };
        Thread subscriber = new Thread(() -> {
          try (Jedis c = connect(proxy, protocol)) {
            c.subscribe(listener, prefix + "ch");
          }
        });
        subscriber.start();
        Check.equal(events.poll(30, TimeUnit.SECONDS), "subscribed");
        Check.equal(r.publish(prefix + "ch", Check.value(1)), 1L);
        Check.equal(events.poll(30, TimeUnit.SECONDS), Check.value(1));
        listener.unsubscribe();
        subscriber.join();
      });
      Check.run("binary", () -> {
        byte[][] all = Check.binaries(direct.get(Check.bytes(prefix + "p0")));
        for (int i = 0; i < all.length; i++) {
          byte[] key = Check.bytes(prefix + "bin" + i);
          r.set(key, all[i]);
          Check.equal(r.get(key), all[i]);
        }
      });
      Check.run("big", () -> {
        byte[] key = Check.bytes(prefix + "big"), v = Check.big();
        r.set(key, v);
        Check.equal(r.get(key), v);
        byte[] stored = direct.get(key);
        Check.is(stored[0] == (byte) 0xBA && stored.length < v.length / 10, "packed");
      });
      Check.run("refused", () -> {
        Check.refused("APPEND", () -> r.append(a, "x"));
        Check.refused("GETRANGE", () -> r.getrange(a, 0, 1));
        Check.refused("STRLEN", () -> r.strlen(a));
        Check.equal(r.get(a), Check.value(4));
        Check.equal(r.append(other, "x"), (long) Check.bytes(Check.value(6)).length + 1);
      });
    }
  }

  private JedisProgram() {}
}
