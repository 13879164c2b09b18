package dictops

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/cli/clitest"
	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/cmd/internal/page"
	"github.com/balekv/bale/cmd/internal/registry"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestReplacedServer: a data server that was emptied has another id, and the error says how to go
// on.
func TestReplacedServer(t *testing.T) {
	ctx := t.Context()
	_, at := clitest.Server(t)
	client, values := clitest.Server(t)
	r, err := registry.Open(ctx, registry.Options{Streams: &cli.Streams{Err: io.Discard}, URL: at, Data: []string{values}, Prefix: dict.DefaultPrefix})
	clitest.OK(t, err)
	defer r.Close()
	clitest.OK(t, r.Join(ctx), allScanned(ctx, r), client.FlushAll(ctx).Err())
	joined, err := r.Registry.Servers(ctx)
	if err != nil || len(joined) != 1 {
		t.Fatalf("%v, %v", joined, err)
	}
	err = allScanned(ctx, r)
	if want := "so it was emptied or replaced. If its old values are gone for good: bale dict servers --forget " + joined[0].ID; err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
}

// TestLongName: of a name that no group can have, the JSON has the start.
func TestLongName(t *testing.T) {
	ctx := t.Context()
	client, at := clitest.Server(t)
	clitest.OK(t, client.Set(ctx, dict.DefaultPrefix+"groups", "no list", 0).Err(),
		client.Set(ctx, dict.DefaultPrefix+"group:"+strings.Repeat("g", 1<<20), "{}", 0).Err())
	list, err := Run(ctx, registry.Options{Streams: &cli.Streams{Err: io.Discard}, Data: []string{at}, Prefix: dict.DefaultPrefix}, Options{}, List)
	if err == nil || list == nil {
		t.Fatalf("%v, %v", list, err)
	}
	text, err := json.Marshal(list)
	if err != nil || len(text) > 4<<10 || !strings.Contains(string(text), "ggg... (1.0 MiB)") {
		t.Errorf("%d bytes of JSON, %v", len(text), err)
	}
}

// TestManyLongNames: names that no group can have are not kept whole, however many there are.
func TestManyLongNames(t *testing.T) {
	const names, size = 200, 1 << 20
	ctx := t.Context()
	client, at := clitest.Server(t)
	clitest.OK(t, client.Set(ctx, dict.DefaultPrefix+"groups", "no list", 0).Err())
	for i := range names {
		clitest.OK(t, client.Set(ctx, fmt.Sprintf("%sgroup:%d%s", dict.DefaultPrefix, i, strings.Repeat("g", size)), "{}", 0).Err())
	}
	r, err := registry.Open(ctx, registry.Options{Streams: &cli.Streams{Err: io.Discard}, Data: []string{at}, Prefix: dict.DefaultPrefix})
	clitest.OK(t, err)
	defer r.Close()
	most, done, watched := uint64(0), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		for m := (runtime.MemStats{}); ; {
			runtime.GC()
			runtime.ReadMemStats(&m)
			most = max(most, m.HeapAlloc)
			select {
			case <-done:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	}()
	in, err := inventory(ctx, r, "")
	close(done)
	<-watched
	if err != nil || len(in.Unreadable) != names+1 || most > names*size/2 {
		t.Errorf("%d groups, %d MiB, %v", len(in.Unreadable), most>>20, err)
	}
}

// TestManyOrphans: gc takes a part of very many dictionaries that no group has.
func TestManyOrphans(t *testing.T) {
	ctx := t.Context()
	client, at := clitest.Server(t)
	var notes strings.Builder
	r, err := registry.Open(ctx, registry.Options{Streams: &cli.Streams{Err: &notes}, Data: []string{at}, Prefix: dict.DefaultPrefix})
	clitest.OK(t, err)
	defer r.Close()
	p := client.Pipeline()
	for i := range mostOrphans + 10 {
		p.Set(ctx, r.DataKey(frame.DictionaryID(i+1)), "", 0)
	}
	_, err = p.Exec(ctx)
	clitest.OK(t, err)
	all, err := candidates(ctx, r, &Removal{})
	if err != nil || len(all) != mostOrphans || strings.Count(notes.String(), "when it runs again") != 1 {
		t.Errorf("%d, %v, %s", len(all), err, &notes)
	}
}

// TestPace: a look for the registry's keys goes over other keys at a rate, too.
func TestPace(t *testing.T) {
	client, at := clitest.Server(t)
	for i := range 200 {
		clitest.OK(t, client.Set(t.Context(), fmt.Sprint("value:", i), "x", 0).Err())
	}
	r, err := registry.Open(t.Context(), registry.Options{
		Streams: &cli.Streams{Err: io.Discard}, Data: []string{at}, Prefix: dict.DefaultPrefix, Pace: keyspace.Pace{Rate: 1},
	})
	clitest.OK(t, err)
	defer r.Close()
	for name, look := range map[string]func(context.Context) error{
		"list": func(ctx context.Context) error { _, err := inventory(ctx, r, ""); return err },
		"gc":   func(ctx context.Context) error { _, err := candidates(ctx, r, &Removal{}); return err },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		if err := look(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s, 200 keys at 5 a second: %v", name, err)
		}
		cancel()
	}
}

// TestPackedRegistry: keys of the registry that were packed like values are to be unpacked, not
// deleted.
func TestPackedRegistry(t *testing.T) {
	ctx := t.Context()
	client, at := clitest.Server(t)
	r, err := registry.Open(ctx, registry.Options{Streams: &cli.Streams{Err: io.Discard}, Data: []string{at}, Prefix: "other:"})
	clitest.OK(t, err)
	defer r.Close()
	d, err := frame.NewDictionary([]byte("words of a dictionary"))
	clitest.OK(t, err, r.Publish(ctx, "a", d, dict.Info{}), r.Publish(ctx, "b", d, dict.Info{}))
	packed := frame.Header{Algorithm: frame.Zstd, Length: 100}.Append(nil)
	keys := []string{r.DataKey(d.ID()), r.GroupKey("a"), "other:groups"}
	for _, key := range keys {
		clitest.OK(t, client.Set(ctx, key, packed, 0).Err())
	}
	list, err := List(ctx, r, Options{})
	var text strings.Builder
	list.WriteText(page.NewSheet(&text, 200))
	for _, key := range keys {
		if want := "key " + key + " is packed like a value: unpack it with bale migrate --revert --match " + key; err == nil || !strings.Contains(text.String(), want) {
			t.Errorf("%v, and not %q in\n%s", err, want, &text)
		}
	}
	if strings.Contains(text.String(), "delete") {
		t.Errorf("%s", &text)
	}
}

// TestManyStates: the states of groups are read up to a limit, and the others are named. Nothing is
// removed then that one of those may name.
func TestManyStates(t *testing.T) {
	const (
		groups  = 100
		allowed = 64 << 20 // bytes
	)
	ctx := t.Context()
	client, at := clitest.Server(t)
	r, err := registry.Open(ctx, registry.Options{Streams: &cli.Streams{Err: io.Discard}, Data: []string{at}, Prefix: dict.DefaultPrefix, Grace: time.Millisecond})
	clitest.OK(t, err)
	defer r.Close()
	d, err := frame.NewDictionary([]byte("words of a dictionary"))
	clitest.OK(t, err, r.Publish(ctx, "a", d, dict.Info{}), r.Publish(ctx, "z", d, dict.Info{}))
	for name, size := range map[string]int{"of long texts": 1000, "of many entries": 4000} {
		t.Run(name, func(t *testing.T) {
			names := []string{"a"}
			for i := range groups {
				group := dict.State{Group: fmt.Sprintf("g%03d", i), Epoch: 1}
				for id := range size {
					e := dict.Entry{ID: frame.DictionaryID(i*size + id + 1)}
					if size == 1000 {
						e.Info.Setting = strings.Repeat("x", 700)
					}
					group.Dictionaries = append(group.Dictionaries, e)
				}
				document, err := json.Marshal(&group)
				clitest.OK(t, err, client.Set(ctx, r.GroupKey(group.Group), document, 0).Err())
				names = append(names, group.Group)
			}
			list, err := json.Marshal(append(names, "z"))
			clitest.OK(t, err, client.Set(ctx, dict.DefaultPrefix+"groups", list, 0).Err())
			heap := func() int {
				var m runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&m)
				return int(m.HeapAlloc)
			}
			before := heap()
			in, err := inventory(ctx, r, "")
			clitest.OK(t, err)
			grown := heap() - before
			if n := len(in.Unreadable); grown > allowed || n == 0 || n+len(in.Groups) != groups+2 || in.Unreadable[n-1].Name != "z" || !strings.Contains(in.Unreadable[n-1].Cause, "bale:dict:group:z") {
				t.Errorf("%d MiB, %d groups, %d unread", grown>>20, len(in.Groups), n)
			}
			runtime.KeepAlive(in)
			if _, err := Remove(ctx, r, Options{Group: "z", ID: d.ID(), Force: true}); err != nil { // a has it
				t.Error(err)
			}
			clitest.OK(t, r.Publish(ctx, "z", d, dict.Info{}))
			for _, force := range []bool{false, true} {
				_, err := Remove(ctx, r, Options{Group: "a", ID: d.ID(), Force: force, Proof: Proof{Empty: true}})
				if !errors.Is(err, registry.ErrUnread) || !strings.Contains(err.Error(), "delete them and key") {
					t.Errorf("remove, force %v: %v", force, err)
				}
			}
			if _, err := GC(ctx, r, Options{Apply: true, Proof: Proof{Empty: true}}); !errors.Is(err, registry.ErrUnread) {
				t.Errorf("gc: %v", err)
			}
			if st, err := r.State(ctx, "a"); err != nil || st.Find(d.ID()) == nil {
				t.Errorf("%v, %v", st, err)
			}
		})
	}
}

// TestShowUnmeasured: a ratio that nobody measured is no figure. A builder may have nothing for
// whole values.
func TestShowUnmeasured(t *testing.T) {
	d, err := frame.NewDictionary(bytes.Repeat([]byte("what values have in common"), 100))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	info := dict.Info{Builder: "cover", Samples: 400, Setting: "zstd:3", Ratio: 3.5, Exclude: "email"}
	state := &dict.State{Group: "g", Dictionaries: []dict.Entry{{ID: d.ID(), Info: info}}}
	showDictionary(&out, d, []*dict.State{state}, time.Time{})
	for _, want := range []string{"for zstd:3: ratio 3.50, without it -\n", "contents of email: ratio - with them\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in %s", want, &out)
		}
	}
}

// TestReplica: a replica without its master's keys is no empty registry, and says before the end of
// the grace period that it takes no writes.
func TestReplica(t *testing.T) {
	ctx := t.Context()
	client, url := clitest.Server(t)
	file := filepath.Join(t.TempDir(), "d.dict")
	clitest.OK(t, os.WriteFile(file, bytes.Repeat([]byte("a dictionary "), 100), 0o600))
	var notes bytes.Buffer
	at := registry.Options{Streams: &cli.Streams{Err: &notes}, Data: []string{url}}
	o := Options{Group: "users", File: file}
	p, err := Run(ctx, at, o, Publish)
	if err != nil || p.Grace == 0 || strings.Contains(notes.String(), "replica") {
		t.Fatalf("%+v, %v\n%s", p, err, &notes)
	}
	clitest.OK(t, client.ReplicaOf(ctx, "127.0.0.1", "1").Err())
	if _, err := Run(ctx, at, Options{}, List); err != nil || !strings.Contains(notes.String(), "it may lack keys") {
		t.Errorf("list: %v\n%s", err, &notes)
	}
	o.ID = p.Dictionary
	_, published := Run(ctx, at, o, Publish)
	_, activated := Run(ctx, at, o, Activate)
	_, removed := Run(ctx, at, o, Remove)
	_, collected := Run(ctx, at, Options{Apply: true}, GC)
	for _, err := range []error{published, activated, removed, collected} {
		if !errors.Is(err, keyspace.ErrReplica) {
			t.Error(err)
		}
	}
}
