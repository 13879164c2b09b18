package twemproxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/balekv/bale"
	"github.com/balekv/bale/adapter/goredis"
	"github.com/balekv/bale/adapter/redigo"
	"github.com/balekv/bale/adapter/rueidis"
	"github.com/balekv/bale/cmd/internal/radixstore"
	"github.com/balekv/bale/cmd/internal/tcptest"
	"github.com/balekv/bale/internal/redisproc"
	redigolib "github.com/gomodule/redigo/redis"
	"github.com/google/go-cmp/cmp"
	"github.com/mediocregopher/radix/v4"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	rueidislib "github.com/redis/rueidis"
)

func TestMain(m *testing.M) { tcptest.VerifyTestMain(m) }

// requireEnv names the variable that, when not empty, makes a test without nutcracker fail instead
// of skip.
const requireEnv = "BALE_REQUIRE_TWEMPROXY"

// password is what the servers of most tests ask for.
const password = "a: #password"

// proxyForTest runs a server with a password and a proxy before it until the test ends.
func proxyForTest(t *testing.T) (*redisproc.Server, *Proxy) {
	t.Helper()
	return proxyWith(t, password)
}

func proxyWith(t *testing.T, password string) (*redisproc.Server, *Proxy) {
	t.Helper()
	redisproc.ForTest(t) // skips where there is no server
	server, err := redisproc.StartWith(t.Context(), redisproc.Options{Password: password})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	p, err := Start(t.Context(), server.Addr(), password)
	if errors.Is(err, ErrNotInstalled) && os.Getenv(requireEnv) == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return server, p
}

func TestProxy(t *testing.T) {
	server, p := proxyForTest(t)
	if name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", p.PID())); err == nil && strings.TrimSpace(string(name)) != program {
		t.Errorf("process %d is %s", p.PID(), name)
	}
	through := redigoPool(t, p.Addr())
	conn := through.Get()
	if reply, err := redigolib.String(conn.Do("SET", "k", "v")); err != nil || reply != "OK" {
		t.Errorf("%q, %v", reply, err)
	}
	conn.Close()
	if got, err := server.Do(t.Context(), "GET", "k"); err != nil || got != "v" {
		t.Errorf("the server has %q, %v", got, err)
	}
	through.Close()
	pid, dir := p.PID(), p.dir
	for range 2 {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("process %d is still there: %v", pid, err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("directory %s is still there: %v", dir, err)
	}
}

// TestCommands: what goes through, and what ends the connection. Each is followed by PING.
func TestCommands(t *testing.T) {
	_, p := proxyWith(t, "")
	for command, want := range map[string]string{
		"PING":                          "+PONG",
		"SET k v PX 100000":             "+OK",
		"SET k v PXAT 99999999999999":   "+OK",
		"SET k v EX 100":                "+OK",
		"GET none":                      "$-1",
		"MGET none nor":                 "*2|$-1|$-1",
		"MSET a 1 b 2":                  "+OK",
		"DEL none":                      ":0",
		"UNLINK none nor":               ":0",
		"EXISTS none":                   ":0",
		"PERSIST none":                  ":0",
		"PEXPIRE none 1000":             ":0",
		"PEXPIREAT none 99999999999999": ":0",
		"EVALSHA " + strings.Repeat("0", 40) + " 1 none": "-NOSCRIPT No matching script.",
		"HELLO 2":                   "closed",
		"HELLO 3":                   "closed",
		"CLIENT SETINFO lib-name x": "closed",
		"SELECT 0":                  "closed",
		"INFO":                      "closed",
		"DBSIZE":                    "closed",
		"FLUSHALL":                  "closed",
		"SCAN 0":                    "closed",
		"MULTI":                     "closed",
	} {
		c, err := net.Dial("tcp", p.Addr())
		if err != nil {
			t.Fatal(err)
		}
		c.SetDeadline(time.Now().Add(10 * time.Second))
		if _, err := c.Write(append(encode(command), encode("PING")...)); err != nil {
			t.Fatal(err)
		}
		got := ""
		for buffer := make([]byte, 4096); !strings.HasSuffix(got, "+PONG\r\n") || command == "PING" && got == "+PONG\r\n"; {
			n, err := c.Read(buffer)
			got += string(buffer[:n])
			if err != nil {
				break
			}
		}
		c.Close()
		if want == "closed" {
			want = ""
		} else {
			want = strings.ReplaceAll(want, "|", "\r\n") + "\r\n+PONG\r\n"
		}
		got = strings.Replace(got, "script. Please use EVAL.", "script.", 1) // which Valkey does not say
		if got != want {
			t.Errorf("%s: %q, want %q", command, got, want)
		}
	}
}

// encode is a command as it is sent.
func encode(command string) []byte {
	words := strings.Fields(command)
	b := fmt.Appendf(nil, "*%d\r\n", len(words))
	for _, w := range words {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(w), w)
	}
	return b
}

func redigoPool(t *testing.T, addr string) *redigolib.Pool {
	pool := &redigolib.Pool{MaxIdle: 4, MaxActive: 4, Wait: true, DialContext: func(ctx context.Context) (redigolib.Conn, error) {
		return redigolib.DialContext(ctx, "tcp", addr, redigolib.DialPassword(password))
	}}
	t.Cleanup(func() { pool.Close() })
	return pool
}

func goredisClient(t *testing.T, addr string) *redis.Client {
	rdb := redis.NewClient(&redis.Options{
		Addr: addr, Protocol: 2, DisableIdentity: true, Dialer: Dial(password, new(net.Dialer).DialContext), PoolSize: 4, MaxRetries: -1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() { rdb.Close() })
	return rdb
}

func rueidisClient(t *testing.T, addr string, pipelining bool) rueidislib.Client {
	rdb, err := rueidislib.NewClient(rueidislib.ClientOption{
		InitAddress: []string{addr}, ForceSingleClient: true, DisableCache: true, DisableRetry: true,
		AlwaysRESP2: true, ClientSetInfo: rueidislib.DisableClientSetInfo,
		DialCtxFn: func(ctx context.Context, addr string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return Dial(password, new(net.Dialer).DialContext)(ctx, "tcp", addr)
		},
		DisableAutoPipelining: !pipelining, BlockingPoolSize: 4,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(rdb.Close)
	return rdb
}

// TestClients: each client's store does through the proxy what a measurement needs.
func TestClients(t *testing.T) {
	for name, open := range map[string]func(t *testing.T, addr string) bale.Store{
		"goredis": func(t *testing.T, addr string) bale.Store { return goredis.NewStore(goredisClient(t, addr)) },
		"goredis+auto": func(t *testing.T, addr string) bale.Store {
			o := redis.DefaultBlockingAutoPipelineOptions()
			pipeliner, err := goredisClient(t, addr).AutoPipelineWithOptions(o)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { pipeliner.Close() })
			return goredis.NewStore(pipeliner)
		},
		"rueidis": func(t *testing.T, addr string) bale.Store {
			return rueidis.NewStore(rueidisClient(t, addr, true), rueidis.StoreOptions{})
		},
		"rueidis-auto": func(t *testing.T, addr string) bale.Store {
			return rueidis.NewStore(rueidisClient(t, addr, false), rueidis.StoreOptions{})
		},
		"redigo": func(t *testing.T, addr string) bale.Store { return redigo.NewStore(redigoPool(t, addr)) },
		"radix": func(t *testing.T, addr string) bale.Store {
			client, err := radix.PoolConfig{Size: 4, Dialer: radix.Dialer{AuthPass: password}}.New(t.Context(), "tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { client.Close() })
			return radixstore.NewStore(client)
		},
	} {
		t.Run(name, func(t *testing.T) {
			server, p := proxyForTest(t)
			s := open(t, p.Addr())
			testStore(t, s)
			if got, err := server.Do(t.Context(), "DBSIZE"); err != nil || got != "64" {
				t.Errorf("the server has %s keys, %v", got, err)
			}
		})
	}
}

// testStore leaves 64 keys.
func testStore(t *testing.T, s bale.Store) {
	ctx := t.Context()
	large := []byte(strings.Repeat("large\r\n\x00", 20_000)) // many of the proxy's buffers
	for key, value := range map[string][]byte{"small": []byte("v"), "empty": {}, "large": large} {
		for _, e := range []bale.Expiry{{}, bale.TTL(time.Hour), bale.ExpireAt(time.Now().Add(time.Hour))} {
			if err := s.Set(ctx, key, value, e); err != nil {
				t.Fatalf("set %s: %v", key, err)
			}
			if got, err := s.Get(ctx, key); err != nil || string(got) != string(value) {
				t.Errorf("%s: %d bytes, %v", key, len(got), err)
			}
		}
	}
	if _, err := s.Get(ctx, "none"); !errors.Is(err, bale.ErrNotFound) {
		t.Errorf("none: %v", err)
	}
	items := []bale.Item{{Key: "a", Value: []byte("1")}, {Key: "b", Value: large, Expiry: bale.TTL(time.Hour)}, {Key: "c", Value: []byte("3")}}
	if err := s.SetMany(ctx, items); err != nil {
		t.Errorf("setmany: %v", err)
	}
	got, err := s.GetMany(ctx, []string{"a", "none", "b", "c"})
	if err != nil {
		t.Errorf("getmany: %v", err)
	}
	var texts []string
	for _, v := range got {
		texts = append(texts, string(v))
	}
	if diff := cmp.Diff([]string{"1", "", string(large), "3"}, texts); diff != "" || got[1] != nil {
		t.Error(diff)
	}
	if ok, err := s.Touch(ctx, "a", bale.TTL(time.Minute)); !ok || err != nil {
		t.Errorf("touch: %v, %v", ok, err)
	}
	if ok, err := s.Swap(ctx, "a", []byte("1"), []byte("2"), time.Hour); !ok || err != nil {
		t.Errorf("swap: %v, %v", ok, err)
	}
	if n, err := s.Delete(ctx, []string{"a", "b", "c", "none", "small", "empty", "large"}); n != 6 || err != nil {
		t.Errorf("delete: %d, %v", n, err)
	}
	// Many callers at once get each their own.
	var wg sync.WaitGroup
	for w := range 64 {
		wg.Go(func() {
			key := fmt.Sprint("caller:", w)
			for i := range 5 {
				value := fmt.Sprint(w, ":", i)
				if err := s.Set(ctx, key, []byte(value), bale.TTL(time.Hour)); err != nil {
					t.Errorf("%s: %v", key, err)
					return
				}
				if got, err := s.Get(ctx, key); err != nil || string(got) != value {
					t.Errorf("%s: %q, want %q, %v", key, got, value, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// TestPipelines: commands of several kinds in one pipeline, and MSET.
func TestPipelines(t *testing.T) {
	_, p := proxyForTest(t)
	ctx := t.Context()
	t.Run("goredis", func(t *testing.T) {
		rdb := goredisClient(t, p.Addr())
		if err := rdb.MSet(ctx, "m", "1", "n", "2").Err(); err != nil {
			t.Error(err)
		}
		commands, err := rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for i := range 100 {
				pipe.Set(ctx, fmt.Sprint("p:", i), i, time.Hour)
				pipe.Get(ctx, fmt.Sprint("p:", i))
			}
			pipe.MGet(ctx, "m", "n")
			return nil
		})
		if err != nil || len(commands) != 201 || commands[199].(*redis.StringCmd).Val() != "99" {
			t.Errorf("%d, %v", len(commands), err)
		}
	})
	t.Run("rueidis", func(t *testing.T) {
		rdb := rueidisClient(t, p.Addr(), true)
		if err := rdb.Do(ctx, rdb.B().Mset().KeyValue().KeyValue("m", "1").KeyValue("n", "2").Build()).Error(); err != nil {
			t.Error(err)
		}
		var commands rueidislib.Commands
		for i := range 100 {
			commands = append(commands, rdb.B().Set().Key(fmt.Sprint("p:", i)).Value(fmt.Sprint(i)).PxMilliseconds(3_600_000).Build(), rdb.B().Get().Key(fmt.Sprint("p:", i)).Build())
		}
		for i, reply := range rdb.DoMulti(ctx, commands...) {
			if text, err := reply.ToString(); err != nil || i%2 == 1 && text != fmt.Sprint(i/2) {
				t.Errorf("%d: %q, %v", i, text, err)
			}
		}
	})
	t.Run("redigo", func(t *testing.T) {
		conn := redigoPool(t, p.Addr()).Get()
		defer conn.Close()
		if _, err := conn.Do("MSET", "m", "1", "n", "2"); err != nil {
			t.Error(err)
		}
		for i := range 100 {
			conn.Send("SET", fmt.Sprint("p:", i), i, "PX", 3_600_000)
			conn.Send("GET", fmt.Sprint("p:", i))
		}
		replies, err := redigolib.Values(conn.Do(""))
		if err != nil || len(replies) != 200 || string(replies[199].([]byte)) != "99" {
			t.Errorf("%d, %v", len(replies), err)
		}
	})
	t.Run("radix", func(t *testing.T) {
		client, err := radix.PoolConfig{Size: 2, Dialer: radix.Dialer{AuthPass: password}}.New(ctx, "tcp", p.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		if err := client.Do(ctx, radix.Cmd(nil, "MSET", "m", "1", "n", "2")); err != nil {
			t.Error(err)
		}
		pipeline := radix.NewPipeline()
		got := make([]string, 100)
		for i := range got {
			pipeline.Append(radix.Cmd(nil, "SET", fmt.Sprint("p:", i), fmt.Sprint(i), "PX", "3600000"))
			pipeline.Append(radix.Cmd(&got[i], "GET", fmt.Sprint("p:", i)))
		}
		if err := client.Do(ctx, pipeline); err != nil || got[99] != "99" {
			t.Errorf("%q, %v", got[99], err)
		}
	})
}

// TestManyConnections: more than the 1,024 files that a process may have open unless it asks for
// more.
func TestManyConnections(t *testing.T) {
	var limit syscall.Rlimit
	const many = 1100
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil || limit.Max < 2*many {
		t.Skipf("this machine allows %d open files, %v", limit.Max, err)
	}
	_, p := proxyWith(t, "")
	for i := range many {
		c, err := net.Dial("tcp", p.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(10 * time.Second))
		if _, err := c.Write(encode("GET none")); err != nil {
			t.Fatal(err)
		}
		reply := make([]byte, len("$-1\r\n"))
		if _, err := c.Read(reply); err != nil || string(reply) != "$-1\r\n" {
			t.Fatalf("connection %d: %q, %v", i, reply, err)
		}
	}
}

func TestStartFails(t *testing.T) {
	if _, err := exec.LookPath(program); err == nil {
		server := redisproc.ForTest(t, "--requirepass", "secret")
		t.Setenv("TMPDIR", t.TempDir())
		for name, test := range map[string]struct{ server, password, says string }{
			"a server that asks for a password": {server.Addr(), "", "asks for a password"},
			"a server that asks for another":    {server.Addr(), password, "refuses the one that was given"},
			"no server":                         {"no server", "", "ended at start"},
		} {
			_, err := Start(t.Context(), test.server, test.password)
			if err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
			t.Errorf("left: %v, %v", left, err)
		}
	}
	t.Setenv("PATH", t.TempDir())
	if _, err := Start(t.Context(), "127.0.0.1:6379", ""); !errors.Is(err, ErrNotInstalled) {
		t.Error(err)
	}
}

func TestHelloLength(t *testing.T) {
	hello := string(encode("HELLO 2"))
	for text, want := range map[string]int{
		"":                              0,
		hello:                           len(hello),
		hello + string(encode("GET k")): len(hello),
		string(encode("hello")):         len("*1\r\n$5\r\nhello\r\n"),
		hello[:len(hello)-1]:            0,
		string(encode("GET hello")):     0,
		"PING\r\n":                      0,
		"*0\r\n":                        0,
		"*1\r\n$99999999999999999999999\r\nHELLO\r\n": 0,
		"*-1\r\n$5\r\nHELLO\r\n":                      0,
		"*2\r\n$5\r\nHELLO\r\n":                       0,
		"*1\r\n$5\r\nHEL":                             0,
	} {
		if got := helloLength([]byte(text)); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}
