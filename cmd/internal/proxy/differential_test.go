package proxy

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/balekv/bale/internal/redisproc"
)

// wire is a command as it is sent.
func wire(args ...string) string {
	b := fmt.Appendf(nil, "*%d\r\n", len(args))
	for _, a := range args {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(a), a)
	}
	return string(b)
}

// pieces writes a stream cut at random bytes.
func pieces(r *rand.Rand, c net.Conn, stream string) {
	for len(stream) > 0 {
		n := 1 + r.IntN(len(stream))
		if r.IntN(3) == 0 {
			n = min(n, 1+r.IntN(7))
		}
		if _, err := io.WriteString(c, stream[:n]); err != nil {
			return // the server has ended the connection, and the replies tell
		}
		if stream = stream[n:]; r.IntN(8) == 0 {
			time.Sleep(time.Duration(r.IntN(300)) * time.Microsecond)
		}
	}
}

// differs are parts of replies that differ from one connection to the next, or quote a packed
// value.
var differs = regexp.MustCompile(`(\$2\r\nid\r\n):\d+|(id|addr|laddr|fd|age|idle|qbuf|qbuf-free|rbs|rbp|obl|oll|omem|tot-mem|multi|argv-mem)=\S*|(with args beginning with:)[^\r]*`)

// commandsOf makes a random stream. The keys start with a prefix. If keep is not nil, all commands
// have lengths, and those alone are in the stream for which it reports true.
func commandsOf(r *rand.Rand, prefix string, n int, keep func(command []string) bool) string {
	var b strings.Builder
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	key := func() string { return prefix + pick("a", "b", "c") }
	hash := func() string { return prefix + "h" + pick("1", "2") }
	value := func() string {
		switch r.IntN(6) {
		case 0:
			return ""
		case 1:
			return pick("7", "QUEUED", "+OK\r\n", "*3\r\n$7\r\nmessage\r\n", "\xba\x1e", "\xba\x1ex")
		case 2:
			return strings.Repeat(pick("ab", "\r\n", "\x00", "xyz"), r.IntN(40_000))
		}
		return big(pick("a", "b", "c"))
	}
	name := func(s string) string {
		if r.IntN(4) == 0 {
			return strings.ToUpper(s)
		}
		return s
	}
	transaction := false   // in which the proxy refuses some commands
	calm := r.IntN(2) == 0 // no subscription or CLIENT REPLY, after which few replies are values
	for range n {
		var c []string
		switch r.IntN(42) {
		case 0, 1, 2:
			c = []string{name("set"), key(), value()}
		case 3, 4, 5:
			c = []string{name("get"), key()}
		case 6:
			c = []string{"set", key(), value(), "get"}
		case 7:
			c = []string{"mset", key(), value(), key(), value(), "other:" + key(), value()}
		case 8:
			c = []string{"mget", key(), "other:" + key(), key(), hash()}
		case 9, 10:
			c = []string{"hset", hash(), "f", value(), "g", value()}
		case 11:
			c = []string{pick("hgetall", "hvals"), hash()}
		case 12:
			c = []string{"hmget", hash(), "f", "none", "g"}
		case 13:
			c = []string{"hscan", hash(), "0"}
		case 14:
			c = []string{"multi"}
		case 15, 16:
			c = []string{name(pick("exec", "exec", "discard"))}
		case 17:
			c = []string{"client", "reply", pick("on", "off", "skip", "OFF", "x")}
		case 18:
			c = []string{"client", "reply", "on"}
		case 19:
			c = []string{"hello", pick("2", "3", "3", "4", "x")}
		case 20:
			c = []string{pick("subscribe", "psubscribe", "ssubscribe"), "ch", pick("ch", "ch2")}
		case 21, 22:
			c = []string{pick("unsubscribe", "punsubscribe", "sunsubscribe")}
			if r.IntN(2) == 0 {
				c = append(c, "ch", "ch3")
			}
		case 23:
			c = []string{pick("publish", "spublish"), "ch", pick("hello", "message")}
		case 24:
			c = []string{"reset"}
		case 25:
			c = []string{pick("nonsense", "get", "set", "mget", "exec", "subscribe", "hset"), "k\r\n", pick("x", big("x"))}[:1+r.IntN(3)]
		case 26:
			c = []string{"eval", pick("return {1,{2,{3,'x'}},'y'}", "return redis.call('get',KEYS[1])", "return {ok='fine'}", "return {err='ERR bad'}"), "1", "elsewhere"}
		case 27:
			c = []string{pick("rpush", "lpush"), prefix + "l", value(), "message"}
		case 28:
			c = []string{pick("lpop", "rpop"), prefix + "l"}
			if r.IntN(8) == 0 {
				c = []string{pick("blpop", "brpop"), prefix + "l", "0.001"} // which takes a server 100 ms
			}
		case 29:
			c = []string{"lrange", prefix + "l", "0", "5"}
		case 30:
			c = []string{pick("ping", "ping", "echo"), pick("message", "subscribe", "QUEUED")}[:1+r.IntN(2)]
		case 31:
			c = []string{pick("getset", "setnx"), key(), value()}
		case 32:
			if keep != nil {
				continue
			}
			if calm { // after CLIENT REPLY SKIP, the reply to an empty command is the one that is skipped
				b.WriteString(pick("\r\n", "*0\r\n", "*-1\r\n"))
			}
			b.WriteString(pick("PING\r\n", "  get  "+prefix+"a \n", `set `+prefix+`a "a \x41\n \"q\" " `+"\r\n", "echo 'it\\'s'\r\n", "mget "+prefix+"a "+prefix+"h1\r\n",
				"set "+prefix+"b '"+strings.Repeat("inline ", 30)+"'\n"))
			if !transaction && !calm {
				b.WriteString(pick("client reply skip\n", "multi\nget "+prefix+"a\nexec\n", "subscribe ch\r\n", "unsubscribe\r\n"))
			}
			continue
		case 34:
			c = [][]string{{"getdel", key()}, {"getex", key(), "ex", "1000"}, {"getex", key(), "persist"}, {"set", key(), value(), pick("nx", "xx", "keepttl"), "get"}, {"psetex", key(), "100000", value()}, {"msetnx", key(), value(), key(), value()}}[r.IntN(6)]
		case 35:
			c = [][]string{{"hsetnx", hash(), "f", value()}, {"hget", hash(), pick("f", "g", "none")}, {"hdel", hash(), pick("f", "g")}, {"hkeys", hash()}, {"hlen", hash()}, {"hmset", hash(), "n", "1", "g", value()}}[r.IntN(6)]
		case 36:
			c = [][]string{{"incr", key()}, {"decrby", key(), "3"}, {"incrbyfloat", key(), "1.5"}, {"hincrby", hash(), pick("f", "n"), "2"}, {"hincrbyfloat", hash(), "n", "0.5"}}[r.IntN(5)]
		case 37:
			c = [][]string{{"rename", key(), key()}, {"renamenx", key(), key()}, {"copy", key(), key(), "replace"}, {"rename", "other:x", key()}, {"unlink", key(), hash()}}[r.IntN(5)]
		case 38:
			c = [][]string{{"rpush", prefix + "ids", "a", "b", "h1"}, {"sort", prefix + "ids", "by", "nosort", "get", prefix + "*", "get", "#"}, {"sort", prefix + "ids", "alpha", "get", "#", "get", prefix + "*", "get", prefix + "h1->f"}}[r.IntN(3)]
		case 39: // of Redis 8 and Valkey 9, and an error before
			c = [][]string{{"hsetex", hash(), "ex", "1000", "fields", "2", "f", value(), "g", value()}, {"hgetex", hash(), "fields", "2", "f", "none"}, {"hgetdel", hash(), "fields", "1", "g"}, {"msetex", "2", key(), value(), key(), value()}}[r.IntN(4)]
		case 40:
			c = [][]string{{"zadd", prefix + "z", "1", value()}, {"zrange", prefix + "z", "0", "-1", "withscores"}, {"sadd", prefix + "s", value()}, {"smismember", prefix + "s", value(), value()}, {"xadd", prefix + "x", "0-1", "f", value()}, {"xrange", prefix + "x", "-", "+"}}[r.IntN(6)]
		case 41:
			c = [][]string{{"client", "tracking", "on"}, {"client", "setname", "x"}, {"client", "getname"}, {"client", "no-evict", "on"}, {"function", "list"}, {"config", "get", "maxmemory"}}[1+r.IntN(5)]
		case 33:
			c = []string{pick("watch", "unwatch", "select", "type", "del", "touch"), pick("0", prefix+"a")}
		}
		switch {
		case keep != nil:
			if !keep(c) {
				continue
			}
		case len(c) == 1 && c[0] == "multi":
			transaction = true
		case len(c) == 1 && slices.Contains([]string{"exec", "discard", "reset"}, strings.ToLower(c[0])):
			transaction = false
		case (transaction || calm) && (strings.Contains(c[0], "subscribe") || c[0] == "client"):
			continue
		}
		b.WriteString(wire(c...))
	}
	return b.String()
}

// run sends a stream that ends with QUIT, and returns all replies.
func run(t *testing.T, seed int, addr, stream string) string {
	c := dial(t, addr)
	defer c.Close()
	var sending sync.WaitGroup
	sending.Go(func() {
		pieces(rand.New(rand.NewPCG(uint64(seed), 8)), c, stream)
	})
	defer sending.Wait()
	got, err := io.ReadAll(c)
	if err != nil {
		t.Fatalf("%v after %d bytes", err, len(got))
	}
	return differs.ReplaceAllString(string(got), "$1$2$3")
}

// seeds are those of random streams. BALE_PROXY_ROUNDS is how many there are for each test, and
// BALE_PROXY_SEED the first.
func seeds(t *testing.T) (first, last int) {
	rounds := 40
	if testing.Short() {
		rounds = 10
	}
	for name, n := range map[string]*int{"BALE_PROXY_ROUNDS": &rounds, "BALE_PROXY_SEED": &first} {
		if v := os.Getenv(name); v != "" {
			var err error
			if *n, err = strconv.Atoi(v); err != nil {
				t.Fatal(name, err)
			}
		}
	}
	return first, first + rounds - 1
}

// same fails if the replies to a stream differ.
func same(t *testing.T, seed int, got, want, stream string) {
	t.Helper()
	if got == want {
		return
	}
	i := 0
	for i < min(len(got), len(want)) && got[i] == want[i] {
		i++
	}
	from := max(0, i-80)
	t.Fatalf("seed %d, at byte %d of %d and %d:\ngot  %.200q\nwant %.200q\nstream %.4000q", seed, i, len(got), len(want), got[from:], want[from:], squeezed(stream))
}

// TestDifferential sends random streams to Redis directly and through the proxy. All replies are
// equal, byte for byte, for keys out of scope and in scope: what is refused is not in the streams.
func TestDifferential(t *testing.T) {
	t.Parallel()
	first, last := seeds(t)
	for _, match := range []string{"none:*", "user:*", "*", "pool"} {
		t.Run(match, func(t *testing.T) {
			// Hashes have their order, whatever is packed. Both streams go to one server, for its seed.
			server := redisproc.ForTest(t, "--hash-max-listpack-entries", "0")
			o := options(server.URL(), match)
			if match == "pool" {
				o.Groups[0].Match, o.Pool = []string{"user:*"}, 2
			}
			p := start(t, o)
			for seed := first; seed <= last; seed++ {
				r := rand.New(rand.NewPCG(uint64(seed), 7))
				stream := commandsOf(r, "user:", 1+r.IntN(60), nil) + wire("reset") + wire("flushall") + wire("quit")
				want := run(t, seed, server.Addr(), stream)
				same(t, seed, run(t, seed, p.addr, stream), want, stream)
			}
		})
	}
}

// TestPoolDifferential sends random streams of several clients at a time over shared connections,
// and each client has the replies of Redis. All commands but the end of a stream are shared.
func TestPoolDifferential(t *testing.T) {
	t.Parallel()
	const clients = 5
	first, last := seeds(t)
	server := redisproc.ForTest(t, "--hash-max-listpack-entries", "0")
	var notes lines
	o := options(server.URL(), "user:*")
	o.Pool, o.Metrics, o.Err = 2, ":0", &notes
	p := start(t, o)
	shared := 0
	for seed := first; seed <= last; seed++ {
		var streams, got, want [clients]string
		for i := range clients {
			r, prefix := rand.New(rand.NewPCG(uint64(seed), uint64(i))), fmt.Sprintf("user:%d:", i)
			apart := func(c []string) bool { // of nothing that clients have in common
				return !slices.Contains([]string{"client", "config", "function", "publish", "spublish"}, c[0]) && !strings.Contains(c[0], "subscribe") && !slices.Contains(c, "k\r\n")
			}
			streams[i] = commandsOf(r, prefix, 1+r.IntN(200), func(c []string) bool {
				ok := apart(c) && stateless(strings.ToLower(c[0])) && len(wire(c...)) < bufferSize
				if ok {
					shared++
				}
				return ok
			})
			streams[i] += commandsOf(r, prefix, r.IntN(5), apart) + wire("quit")
			want[i] = run(t, seed, server.Addr(), streams[i])
		}
		do(t, server, "FLUSHALL")
		var all sync.WaitGroup
		for i := range clients {
			all.Go(func() { got[i] = run(t, seed, p.addr, streams[i]) })
		}
		all.Wait()
		for i := range clients {
			same(t, seed, got[i], want[i], streams[i])
		}
		do(t, server, "FLUSHALL")
	}
	_, text := ask(t, regexp.MustCompile(`http://\S+/`).FindString(notes.await(t, "metrics are at "))+"metrics", "")
	counted := 0
	for _, m := range regexp.MustCompile(`(?m)^bale_proxy_shared_commands_total{connection="[01]"} (\d+)$`).FindAllStringSubmatch(text, -1) {
		n, err := strconv.Atoi(m[1])
		if err != nil || n == 0 {
			t.Errorf("%s, %v", m[0], err)
		}
		counted += n
	}
	if counted < shared || shared == 0 {
		t.Errorf("%d commands were shared, of %d at least", counted, shared)
	}
}

// squeezed is a stream without its long runs.
func squeezed(s string) string {
	return string(bytes.ReplaceAll([]byte(regexp.MustCompile(`(?s)(the value of \w, ){2,}|(ab|xyz|\x00|\r\n){5,}`).ReplaceAllString(s, "...")), []byte("\r\n"), []byte("|")))
}
