package proxy

import (
	"bytes"
	"context"
	"errors"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	rueidislib "github.com/redis/rueidis"

	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/redisproc"
)

// requireClients names the variable that, when not empty, makes a client that is not installed a
// failure. Otherwise its programs are skipped. clients/install installs them.
const requireClients = "BALE_REQUIRE_CLIENTS"

// common is what a program does: each check is a line of its output.
var common = []string{"strings", "hashes", "pipeline", "transaction", "watch", "blocking", "pubsub", "binary", "big", "refused"}

// TestClientPrograms runs the real clients of other languages through the proxy, with zstd and a
// dictionary. Each program asserts plain values through the proxy and packed ones past it. What it
// leaves behind is looked at from here, too.
func TestClientPrograms(t *testing.T) {
	t.Parallel()
	python := []string{"clients/python/.venv/bin/python", "clients/python/client.py"}
	java := func(class string) []string {
		return []string{"java", "-cp", "clients/java/target/classes:clients/java/target/lib/*", class}
	}
	for _, c := range []struct {
		name      string
		protocols string
		command   []string
		needs     []string // files that clients/install makes
		checks    []string
		more      []string // with RESP3
	}{
		{"redis-py", "23", python, []string{"clients/python/.venv/lib/python3*/site-packages/redis"}, append(slices.Clone(common), "concurrently"), nil},
		{"node-redis", "23", []string{"node", "clients/node/node-redis.js"}, []string{"clients/node/node_modules/redis"}, common, nil},
		{"ioredis", "2", []string{"node", "clients/node/ioredis.js"}, []string{"clients/node/node_modules/ioredis"}, common, nil},
		{"jedis", "23", java("JedisProgram"), []string{"clients/java/target/lib/jedis*", "clients/java/target/classes"}, common, nil},
		{"lettuce", "23", java("LettuceProgram"), []string{"clients/java/target/lib/lettuce*", "clients/java/target/classes"}, common, []string{"tracking"}},
		{"hiredis", "2", nil, []string{"/usr/include/hiredis/hiredis.h"}, common, nil},
		{"redis-cli", "23", []string{"clients/c/redis-cli.sh"}, nil, []string{"strings", "hashes", "pipeline", "transaction", "pubsub", "refused", "scan"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, pattern := range c.needs {
				if found, err := filepath.Glob(pattern); err != nil || len(found) == 0 {
					lacks(t, c.name+" is not installed: run clients/install")
				}
			}
			command := c.command
			if c.name == "hiredis" {
				command = []string{filepath.Join(t.TempDir(), "hiredis")}
				if out, err := osexec.CommandContext(t.Context(), "gcc", "-Wall", "-Werror", "-o", command[0], "clients/c/hiredis.c", "-lhiredis").CombinedOutput(); errors.Is(err, osexec.ErrNotFound) {
					lacks(t, err.Error())
				} else if err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
			}
			if _, err := osexec.LookPath(command[0]); err != nil {
				lacks(t, err.Error())
			}
			if c.name == "redis-cli" {
				if _, err := osexec.LookPath("redis-cli"); err != nil {
					lacks(t, err.Error())
				}
			}
			for _, protocol := range c.protocols {
				t.Run("RESP"+string(protocol), func(t *testing.T) {
					s := newStage(t)
					checks := slices.Clone(c.checks)
					if protocol == '3' {
						checks = append(checks, c.more...)
					}
					s.program(t, append(command, s.proxy, s.server.Addr(), string(protocol), "user:"+c.name+":"), checks)
				})
			}
		})
	}
}

func lacks(t *testing.T, what string) {
	t.Helper()
	if os.Getenv(requireClients) != "" {
		t.Fatal(what)
	}
	t.Skip(what)
}

// stage is a server with a dictionary, and a proxy that uses it.
type stage struct {
	server *redisproc.Server
	past   *redis.Client
	proxy  string // its address
	dict   *frame.Dictionary
	value  string // like those that the dictionary knows
}

func newStage(t testing.TB) *stage {
	t.Helper()
	profiles, err := os.ReadFile("../../../examples/profiles.ndjson")
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.Split(profiles, []byte("\n"))
	s := &stage{server: redisproc.ForTest(t), value: string(lines[0])}
	s.past = redis.NewClient(&redis.Options{Addr: s.server.Addr()})
	t.Cleanup(func() { s.past.Close() })
	// The traffic of benchmarks is of the other half.
	trained, err := dict.Train(t.Context(), lines[1:100],
		dict.TrainOptions{MaxSize: 16 << 10, MinGain: -1, NoRefit: true, NoTimes: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("a dictionary of %d bytes by %s", len(trained.Dictionary.Bytes()), trained.Winner.Builder)
	s.dict = activated(t, s.past, string(trained.Dictionary.Bytes()))
	s.proxy = start(t, staged(s.server.URL())).addr
	return s
}

// staged are the options of a stage's proxy. The keys of quick:* are packed with a quicker level.
func staged(redis string) Options {
	o := options(redis, "user:*")
	o.Groups = []Group{
		{Match: []string{"user:*"}, Compress: "zstd:3+dict", Group: "user"},
		{Match: []string{"quick:*"}, Compress: "zstd:1+dict", Group: "user"},
	}
	return o
}

// program runs a program, which must pass its checks in their order, and leave packed values.
func (s *stage) program(t *testing.T, command, checks []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := osexec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env = append(os.Environ(), "BALE_VALUE="+s.value)
	cmd.WaitDelay = time.Second
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		t.Errorf("%v\n%s", err, &said)
	}
	if diff := cmp.Diff(checks, strings.Fields(out.String())); diff != "" {
		t.Errorf("checks (-want +got):\n%s", diff)
	}
	s.leftBehind(t)
}

// leftBehind looks at what is in Redis: long values in scope are frames of the dictionary, read
// plain through the proxy, and the others are as they were written.
func (s *stage) leftBehind(t *testing.T) {
	t.Helper()
	through := redis.NewClient(&redis.Options{Addr: s.proxy})
	defer through.Close()
	packed, plain := 0, 0
	for keys := s.past.Scan(t.Context(), 0, "*", 1000).Iterator(); keys.Next(t.Context()); {
		key := keys.Val()
		if strings.HasPrefix(key, "bale:") || s.past.Type(t.Context(), key).Val() != "string" {
			continue
		}
		stored, read := s.past.Get(t.Context(), key).Val(), through.Get(t.Context(), key).Val()
		h, _, is := frame.Parse([]byte(stored))
		switch {
		case !strings.Contains(read, s.value): // others than the usual ones
		case !strings.HasPrefix(key, "user:"):
			if plain++; is || stored != read {
				t.Errorf("%s is out of scope, and not as it was written", key)
			}
		default:
			if packed++; !is || h.DictionaryID != s.dict.ID() || int(h.Length) != len(read) {
				t.Errorf("%s is stored as %+v of %d bytes, and read as %d", key, h, len(stored), len(read))
			}
		}
	}
	if packed < 100 || plain != 1 {
		t.Errorf("%d packed values, %d plain ones", packed, plain)
	}
}

// TestGoClients: the same as the programs of other languages, where its clients have it.
func TestGoClients(t *testing.T) {
	value := func(s *stage, i int) string { return string(rune('a'+i%26)) + s.value }
	for _, protocol := range []int{2, 3} {
		t.Run("go-redis", func(t *testing.T) {
			ctx, s := t.Context(), newStage(t)
			r := redis.NewClient(&redis.Options{Addr: s.proxy, Protocol: protocol})
			defer r.Close()
			if err := r.Set(ctx, "other:", value(s, 0), 0).Err(); err != nil {
				t.Error(err)
			}
			gets, err := r.Pipelined(ctx, func(p redis.Pipeliner) error {
				for i := range 200 {
					p.Set(ctx, "user:p"+string(rune('0'+i)), value(s, i), time.Hour)
				}
				p.Get(ctx, "user:p0")
				return nil
			})
			if err != nil || gets[200].(*redis.StringCmd).Val() != value(s, 0) {
				t.Errorf("a pipeline: %v", err)
			}
			err = r.Watch(ctx, func(tx *redis.Tx) error {
				if v, err := tx.Get(ctx, "user:p0").Result(); err != nil || v != value(s, 0) {
					t.Errorf("%q, %v", v, err)
				}
				if err := s.past.Set(ctx, "user:p0", value(s, 1), 0).Err(); err != nil {
					t.Error(err)
				}
				_, err := tx.TxPipelined(ctx, func(p redis.Pipeliner) error { return p.Set(ctx, "user:p0", "x", 0).Err() })
				return err
			}, "user:p0")
			if !errors.Is(err, redis.TxFailedErr) {
				t.Errorf("EXEC after a change: %v", err)
			}
			if err := r.Set(ctx, "user:p0", value(s, 2), 0).Err(); err != nil {
				t.Error(err)
			}
			sub := r.Subscribe(ctx, "ch")
			defer sub.Close()
			if _, err := sub.Receive(ctx); err != nil {
				t.Fatal(err)
			}
			popped := make(chan []string)
			go func() {
				v, err := r.BLPop(ctx, time.Minute, "user:l").Result()
				if err != nil {
					t.Error(err)
				}
				popped <- v
			}()
			if err := errors.Join(r.Publish(ctx, "ch", value(s, 3)).Err(), r.RPush(ctx, "user:l", value(s, 4)).Err()); err != nil {
				t.Fatal(err)
			}
			if m, err := sub.ReceiveMessage(ctx); err != nil || m.Payload != value(s, 3) {
				t.Errorf("%v, %v", m, err)
			}
			if got := <-popped; !slices.Equal(got, []string{"user:l", value(s, 4)}) {
				t.Errorf("%q", got)
			}
			s.leftBehind(t)
		})
		t.Run("rueidis", func(t *testing.T) {
			ctx, s := t.Context(), newStage(t)
			r, err := rueidislib.NewClient(rueidislib.ClientOption{InitAddress: []string{s.proxy}, ForceSingleClient: true, AlwaysRESP2: protocol == 2, DisableCache: protocol == 2})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			b := r.B()
			commands := rueidislib.Commands{b.Set().Key("other:").Value(value(s, 0)).Build()}
			for i := range 200 {
				commands = append(commands, b.Set().Key("user:p"+string(rune('0'+i))).Value(value(s, i)).Build())
			}
			for _, reply := range r.DoMulti(ctx, commands...) {
				if reply.Error() != nil {
					t.Fatal(reply.Error())
				}
			}
			if err := r.Dedicated(func(c rueidislib.DedicatedClient) error {
				if err := c.Do(ctx, b.Watch().Key("user:p0").Build()).Error(); err != nil {
					return err
				}
				if err := s.past.Set(ctx, "user:p0", value(s, 1), 0).Err(); err != nil {
					return err
				}
				replies := c.DoMulti(ctx, b.Multi().Build(), b.Set().Key("user:p0").Value("x").Build(), b.Exec().Build())
				if err := replies[2].Error(); !rueidislib.IsRedisNil(err) {
					t.Errorf("EXEC after a change: %v", err)
				}
				return c.Do(ctx, b.Set().Key("user:p0").Value(value(s, 2)).Build()).Error()
			}); err != nil {
				t.Error(err)
			}
			if protocol == 3 { // from its own memory, until Redis says that it has changed
				for _, want := range []string{value(s, 5), value(s, 6)} {
					if err := r.Do(ctx, b.Set().Key("user:p5").Value(want).Build()).Error(); err != nil {
						t.Error(err)
					}
					for until := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
						got, err := r.DoCache(ctx, b.Get().Key("user:p5").Cache(), time.Hour).ToString()
						if err != nil || got == want {
							break
						}
						if time.Now().After(until) {
							t.Fatalf("%q, want %q", got, want)
						}
					}
				}
			}
			var subscribed sync.WaitGroup
			listening, cancel := context.WithCancel(ctx)
			got := ""
			subscribed.Go(func() {
				_ = r.Receive(listening, b.Subscribe().Channel("ch").Build(), func(m rueidislib.PubSubMessage) {
					got = m.Message
					cancel()
				})
			})
			for listening.Err() == nil {
				if err := r.Do(ctx, b.Publish().Channel("ch").Message(value(s, 3)).Build()).Error(); err != nil {
					t.Fatal(err)
				}
			}
			if subscribed.Wait(); got != value(s, 3) {
				t.Errorf("%q", got)
			}
			if err := r.Do(ctx, b.Append().Key("user:p0").Value("x").Build()).Error(); err == nil || !strings.HasPrefix(err.Error(), "BALE APPEND on a key in scope: ") {
				t.Errorf("%v", err)
			}
			s.leftBehind(t)
		})
	}
}
