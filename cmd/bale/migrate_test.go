package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/balekv/bale"
	"github.com/balekv/bale/adapter/goredis"
	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/cli/clitest"
	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/cmd/internal/migrate"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/redisproc"
)

// writingProgram is a program that writes keys of its own while others migrate them, and knows what
// each holds.
type writingProgram struct {
	number int
	client redis.UniversalClient
	packer *bale.Packer
	packs  bool // some values

	random *rand.Rand
	values map[string][]byte // of strings, and of fields as "key field"; what is not there is nil
	ends   map[string]int64  // of keys, in milliseconds, -1 for never
	n      int
}

func newWritingProgram(number int, client redis.UniversalClient, packer *bale.Packer) *writingProgram {
	return &writingProgram{number: number, client: client, packer: packer, packs: true, random: rand.New(rand.NewPCG(uint64(number), 7)), values: map[string][]byte{}, ends: map[string]int64{}}
}

const programKeys = 40

func (p *writingProgram) value() []byte {
	p.n++
	return fmt.Appendf(nil, `{"writer":%d,"n":%d,"noise":"%x","tags":["red","green","blue","red","green","blue"],"zone":"Europe/London"}`, p.number, p.n, p.random.Uint64())
}

// stored is what a program writes for a value.
func (p *writingProgram) stored(plain []byte) ([]byte, error) {
	if !p.packs || p.random.IntN(4) > 0 {
		return plain, nil
	}
	return p.packer.Pack(nil, plain)
}

// step writes once, and looks whether the key holds what it should before and after.
func (p *writingProgram) step(ctx context.Context) error {
	key := fmt.Sprintf("app:%d:%d", p.number, p.random.IntN(programKeys))
	if p.random.IntN(4) == 0 {
		return p.hashStep(ctx, fmt.Sprintf("app:%d:hash", p.number), fmt.Sprint("field ", p.random.IntN(300)))
	}
	if err := p.checkString(ctx, key); err != nil {
		return err
	}
	plain := p.value()
	value, err := p.stored(plain)
	if err != nil {
		return err
	}
	end := time.Now().Add(time.Hour).UnixMilli() + p.random.Int64N(1e6)
	exists := p.values[key] != nil
	switch op := p.random.IntN(8); {
	case op == 0:
		err = p.client.Do(ctx, "SET", key, value, "PXAT", end).Err()
		p.values[key], p.ends[key] = plain, end
	case op == 1:
		err = p.client.SetEx(ctx, key, value, time.Hour).Err()
		p.values[key], p.ends[key] = plain, p.client.Do(ctx, "PEXPIRETIME", key).Val().(int64)
	case op == 2:
		err = p.client.Del(ctx, key).Err()
		p.values[key] = nil
	case op == 3:
		var old string
		if old, err = p.client.GetSet(ctx, key, value).Result(); errors.Is(err, redis.Nil) && !exists {
			err = nil
		} else if err == nil {
			err = p.same(key, []byte(old), p.values[key])
		}
		p.values[key], p.ends[key] = plain, -1
	case op == 4 && exists:
		err = p.client.Persist(ctx, key).Err()
		p.ends[key] = -1
	case op == 5 && exists:
		err = p.client.Do(ctx, "PEXPIREAT", key, end).Err()
		p.ends[key] = end
	case op == 6 && exists:
		err = p.client.Do(ctx, "SET", key, value, "KEEPTTL").Err()
		p.values[key] = plain
	default:
		err = p.client.Set(ctx, key, value, 0).Err()
		p.values[key], p.ends[key] = plain, -1
	}
	if err != nil {
		return err
	}
	return p.checkString(ctx, key)
}

func (p *writingProgram) hashStep(ctx context.Context, key, field string) error {
	if err := p.checkField(ctx, key, field); err != nil {
		return err
	}
	plain := p.value()
	value, err := p.stored(plain)
	if err != nil {
		return err
	}
	if name := key + " " + field; p.random.IntN(5) == 0 {
		err = p.client.HDel(ctx, key, field).Err()
		p.values[name] = nil
	} else {
		err = p.client.HSet(ctx, key, field, value).Err()
		p.values[name] = plain
	}
	if err != nil {
		return err
	}
	return p.checkField(ctx, key, field)
}

func (p *writingProgram) checkField(ctx context.Context, key, field string) error {
	stored, err := p.client.HGet(ctx, key, field).Bytes()
	if errors.Is(err, redis.Nil) {
		stored, err = nil, nil
	}
	if err != nil {
		return err
	}
	return p.same(key+" "+field, stored, p.values[key+" "+field])
}

func (p *writingProgram) checkString(ctx context.Context, key string) error {
	stored, err := p.client.Get(ctx, key).Bytes()
	if errors.Is(err, redis.Nil) {
		stored, err = nil, nil
	}
	if err == nil {
		err = p.same(key, stored, p.values[key])
	}
	if err != nil || stored == nil {
		return err
	}
	if end := p.client.Do(ctx, "PEXPIRETIME", key).Val(); end != p.ends[key] {
		return fmt.Errorf("%s ends at %v, and should at %d", key, end, p.ends[key])
	}
	return nil
}

// same compares what is stored with a value.
func (p *writingProgram) same(name string, stored, want []byte) error {
	if stored == nil || want == nil {
		if (stored == nil) != (want == nil) {
			return fmt.Errorf("%s: stored %q, and it should be %q", name, stored, want)
		}
		return nil
	}
	plain, err := p.packer.Unpack(context.Background(), nil, stored)
	if err == nil && !bytes.Equal(plain, want) {
		err = fmt.Errorf("holds %q, and should hold %q", plain, want)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// check looks at all keys; with exact they must be plain.
func (p *writingProgram) check(t *testing.T, exact bool) {
	t.Helper()
	ctx := context.Background()
	for name, want := range p.values {
		key, field, inHash := strings.Cut(name, " ")
		var stored []byte
		var err error
		if inHash {
			err = p.checkField(ctx, key, field)
			stored, _ = p.client.HGet(ctx, key, field).Bytes()
		} else {
			err = p.checkString(ctx, key)
			stored, _ = p.client.Get(ctx, key).Bytes()
		}
		if err != nil {
			t.Error(err)
		}
		if exact && !bytes.Equal(stored, want) {
			t.Errorf("%s holds %q, and should hold %q", name, stored, want)
		}
	}
}

// staticKeys are keys that nobody writes, with their values and ends.
func staticKeys(t *testing.T, client redis.UniversalClient, n int) map[string]string {
	t.Helper()
	_, err := client.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		for i := range n {
			value := fmt.Sprintf(`{"id":%d,"tags":["red","green","blue","red","green","blue","red","green","blue"],"zones":["Europe/London","Europe/Paris","Europe/London"],"name":"name %d"}`, i, i*i)
			if i%50 == 0 {
				value = "\xBA\x1E" + value // like a frame, and none
			}
			ttl := time.Duration(i%2) * time.Hour
			p.Set(t.Context(), fmt.Sprint("static:", i), value, ttl)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return statics(t, client, n, nil)
}

// statics are the keys as they are; unpacked if there is a packer.
func statics(t *testing.T, client redis.UniversalClient, n int, packer *bale.Packer) map[string]string {
	t.Helper()
	all := map[string]string{}
	values, ends := make([]*redis.StringCmd, n), make([]*redis.Cmd, n)
	if _, err := client.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		for i := range n {
			values[i], ends[i] = p.Get(t.Context(), fmt.Sprint("static:", i)), p.Do(t.Context(), "PEXPIRETIME", fmt.Sprint("static:", i))
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		stored, err := values[i].Bytes()
		if err == nil && packer != nil {
			if !frame.HasMagic(stored) {
				t.Errorf("static:%d is not packed", i)
			}
			stored, err = packer.Unpack(t.Context(), nil, stored)
		}
		if err != nil {
			t.Fatalf("static:%d: %v", i, err)
		}
		all[fmt.Sprint("static:", i)] = fmt.Sprint(ends[i].Val(), " ", string(stored))
	}
	return all
}

// killed starts the command again and again, kills it at a random moment each time, as often as
// kills says, and then lets it finish.
func killed(t *testing.T, random *rand.Rand, kills int, resume string, args ...string) migrate.Result {
	t.Helper()
	report := filepath.Join(t.TempDir(), "report.json")
	args = append(args, "--resume", resume, "--json", report, "--max-rate")
	progress := func() int64 {
		b, err := os.ReadFile(resume)
		if err != nil {
			return 0
		}
		var s migrate.State
		if err := json.Unmarshal(b, &s); err != nil {
			t.Fatalf("the file to resume from is not whole: %v", err)
		}
		return s.Counts.Keys
	}
	last := int64(0)
	for n := range kills {
		cmd := exec.Command("bale", append(slices.Clone(args), "2000")...) // all keys in eight seconds
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		for waiting := n > 0; waiting; { // the first one at any time, the others when they have got further
			select {
			case err := <-ended:
				t.Fatalf("it ended before it was killed %d times: %v\n%s", kills, err, &out)
			case <-time.After(2 * time.Millisecond):
				waiting = progress() <= last
			}
		}
		time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond)
		cmd.Process.Kill()
		<-ended
		last = progress()
	}
	out, err := exec.Command("bale", append(slices.Clone(args), "8000")...).CombinedOutput()
	if err != nil || last == 0 || !strings.Contains(string(out), "from where") {
		t.Fatalf("%d keys before, %v\n%s", last, err, out)
	}
	if _, err := os.Stat(resume); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file to resume from is still there: %v", err)
	}
	var r migrate.Result
	b, err := os.ReadFile(report)
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err != nil || !r.Complete {
		t.Fatalf("%+v, %v", r, err)
	}
	return r
}

// TestMigrateBesidePrograms: values are packed, and unpacked again, while programs write, and the
// command is killed several times on either way. No update is lost, no key comes back, no expiry
// changes.
func TestMigrateBesidePrograms(t *testing.T) {
	for name, start := range map[string]func(*testing.T) string{
		"standalone": func(t *testing.T) string { return redisproc.ForTest(t).Addr() },
		"cluster":    func(t *testing.T) string { return redisproc.ClusterForTest(t, 3).Addrs()[0] },
	} {
		t.Run(name, func(t *testing.T) {
			const programs, static = 5, 8000
			url := "redis://" + start(t)
			client, err := keyspace.Open(t.Context(), url)
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			packer, err := bale.NewPacker(bale.PackerOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer packer.Close()
			before := staticKeys(t, client, static)
			var all []*writingProgram
			for i := range programs {
				all = append(all, newWritingProgram(i, client, packer))
			}
			random := rand.New(rand.NewPCG(1, 2))
			steps := 0
			beside := func(do func()) {
				ctx, stop := context.WithCancel(t.Context())
				var work sync.WaitGroup
				before := 0
				for _, p := range all {
					before += p.n
					work.Go(func() {
						for ctx.Err() == nil {
							if err := p.step(context.Background()); err != nil {
								t.Error(err)
								return
							}
							time.Sleep(time.Millisecond)
						}
					})
				}
				defer func() {
					stop()
					work.Wait()
					for _, p := range all {
						steps += p.n
					}
					if steps -= before; steps < 500 {
						t.Errorf("only %d writes", steps)
					}
				}()
				do()
			}
			args := []string{"migrate", "--redis", url, "--match", "app:*", "--match", "static:*"}
			beside(func() {
				r := killed(t, random, 4, filepath.Join(t.TempDir(), "state"), args...)
				// A run that is killed between two saves of the file counts the finished part as
				// already done.
				if n := r.Changed() + r.Left[migrate.Packed].Values; n < static || r.Failed() > r.Left[migrate.Changed].Values {
					t.Errorf("%d packed, %+v", n, r.Counts)
				}
			})
			for _, p := range all {
				p.check(t, false)
			}
			if now := statics(t, client, static, packer); !equalMaps(now, before) {
				t.Error("keys that nobody writes have changed")
			}
			if out, err := exec.Command("bale", "verify", "--redis", url, "--max-rate", "0", "--max-bandwidth", "0").CombinedOutput(); err != nil {
				t.Errorf("verify: %v\n%s", err, out)
			}
			for _, p := range all {
				p.packs = false
			}
			beside(func() { killed(t, random, 3, filepath.Join(t.TempDir(), "state"), append(args, "--revert")...) })
			for _, p := range all {
				p.check(t, true)
			}
			if now := statics(t, client, static, nil); !equalMaps(now, before) {
				t.Error("keys that nobody writes are not as they were")
			}
			t.Logf("%d writes beside it", steps)
		})
	}
}

func equalMaps(a, b map[string]string) bool {
	for k, v := range a {
		if b[k] != v {
			return false
		}
	}
	return len(a) == len(b)
}

// TestMigrateInterrupted: Ctrl-C stops after the current page, reports the work done, and saves the
// position.
func TestMigrateInterrupted(t *testing.T) {
	server := redisproc.ForTest(t)
	client, err := keyspace.Open(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	staticKeys(t, client, 5000)
	resume := filepath.Join(t.TempDir(), "state")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan int)
	var out, errs bytes.Buffer
	args := []string{"migrate", "--redis", server.URL(), "--match", "*", "--max-rate", "1000", "--resume", resume}
	go func() { done <- app.Run(ctx, args, strings.NewReader(""), &out, &errs) }()
	for progressed := false; !progressed; time.Sleep(5 * time.Millisecond) {
		var s migrate.State
		if b, err := os.ReadFile(resume); err == nil && json.Unmarshal(b, &s) == nil {
			progressed = s.Counts.Keys > 0
		}
	}
	cancel()
	if code := <-done; code != cli.ExitFailed || !strings.Contains(errs.String(), "bale migrate: interrupted") || !strings.Contains(out.String(), "INTERRUPTED: this is what was done so far. The same command goes on from here") {
		t.Errorf("exit %d, %s\n%s", code, &errs, &out)
	}
	out.Reset()
	args[6] = "0"
	if code := app.Run(t.Context(), args, strings.NewReader(""), &out, &errs); code != cli.ExitDone || !strings.Contains(out.String(), "packed: 5000 values") {
		t.Errorf("exit %d, %s\n%s", code, &errs, &out)
	}
	if _, err := os.Stat(resume); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// TestMigrateTrainsOnce: a dictionary that was published before the command ended is the one that
// it goes on with; it is trained on fields of hashes, too.
func TestMigrateTrainsOnce(t *testing.T) {
	server := redisproc.ForTest(t)
	client, err := keyspace.Open(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for i := range 10 {
		var fields []any
		for j := range 40 {
			v, err := json.Marshal(newFleetValue(fmt.Sprint(j), int64(100*i+j)))
			if err != nil {
				t.Fatal(err)
			}
			fields = append(fields, fmt.Sprint(j), v)
		}
		if err := client.HSet(t.Context(), fmt.Sprintf("app:%d:data", i), fields...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	resume := filepath.Join(t.TempDir(), "state")
	args := []string{"migrate", "--redis", server.URL(), "--match", "app:*:data", "--max-rate", "0", "--max-bandwidth", "0", "--dict", "auto", "--resume", resume}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, w := io.Pipe()
	var out, errs bytes.Buffer
	done := make(chan int)
	go func() {
		code := app.Run(ctx, append(slices.Clone(args), "--grace", "1h"), strings.NewReader(""), w, &errs)
		w.Close()
		done <- code
	}()
	published := false
	for lines := bufio.NewScanner(r); lines.Scan(); {
		if strings.Contains(lines.Text(), "It is published to app:data, and is activated in") {
			published = true
			cancel()
		}
	}
	if code := <-done; code != cli.ExitFailed || !published || !strings.Contains(errs.String(), "interrupted") {
		t.Errorf("exit %d, %s", code, &errs)
	}
	var s migrate.State
	if b, err := os.ReadFile(resume); err != nil || json.Unmarshal(b, &s) != nil {
		t.Fatalf("%v, %s", err, b)
	}
	registry, err := dict.NewRegistry(goredis.NewStore(client), dict.RegistryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if st, err := registry.State(t.Context(), "app:data"); err != nil || st.Current != 0 || st.Find(s.Dictionary) == nil {
		t.Errorf("%+v, %v", st, err)
	}
	out.Reset()
	if code := app.Run(t.Context(), append(args, "--force"), strings.NewReader(""), &out, &errs); code != cli.ExitDone || strings.Contains(out.String(), "Trained") || !strings.Contains(out.String(), "packed: 400 values") {
		t.Errorf("exit %d, %s\n%s", code, &errs, &out)
	}
	if st, err := registry.State(t.Context(), "app:data"); err != nil || st.Current != s.Dictionary || len(st.Dictionaries) != 1 {
		t.Errorf("%+v, %v", st, err)
	}
}

// TestMigrateExamples runs the examples of --help.
func TestMigrateExamples(t *testing.T) {
	server := redisproc.ForTest(t)
	client, err := keyspace.Open(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	values, err := os.ReadFile(filepath.Join(clitest.Repository, "examples", "profiles.ndjson"))
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(strings.TrimSpace(string(values)), "\n") {
		if err := client.Set(t.Context(), fmt.Sprint("user:", i), line, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	for _, help := range []string{migrateCommand{}.Help(), verifyCommand{}.Help()} {
		_, examples, _ := strings.Cut(help, "Examples:")
		for line := range strings.Lines(examples) {
			line = strings.ReplaceAll(strings.ReplaceAll(strings.TrimSpace(line), "redis://127.0.0.1:6379", server.URL()), "users.state", filepath.Join(t.TempDir(), "users.state"))
			args := strings.Fields(strings.ReplaceAll(line, "'", ""))
			if len(args) == 0 {
				continue
			}
			n++
			var out, errs bytes.Buffer
			if code := app.Run(t.Context(), args[1:], strings.NewReader(""), &out, &errs); code != cli.ExitDone || out.Len() == 0 ||
				strings.Contains(errs.String(), "replica") != strings.Contains(line, "--replicas") { // of which there is none
				t.Errorf("%s: exit %d, %s", line, code, &errs)
			}
		}
	}
	if n != 8 {
		t.Errorf("%d examples", n)
	}
}

var migrateScripts = map[string]func(*testscript.TestScript, bool, []string){
	"redis-state":  redisState,
	"redis-append": redisAppend,
}

// redis-state FILE makes the file that bale migrate --match 'user:*' --resume FILE leaves when it
// ends before its first page.
func redisState(ts *testscript.TestScript, neg bool, args []string) {
	c := clitest.Client(ts)
	places, err := keyspace.Places(context.Background(), c)
	ts.Check(err)
	settings := migrate.Settings{Match: []string{"user:*"}, Prefix: dict.DefaultPrefix}
	ts.Check(migrate.NewState(settings, places).Save(ts.MkAbs(args[0])))
}

// redis-append uses a command that works inside of a value.
func redisAppend(ts *testscript.TestScript, neg bool, args []string) {
	ts.Check(clitest.Client(ts).Append(context.Background(), "log", "line").Err())
}
