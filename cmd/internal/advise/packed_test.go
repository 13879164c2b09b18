package advise

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale"
	"github.com/balekv/bale/adapter/goredis"
	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/engine"
	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/cmd/internal/migrate"
	"github.com/balekv/bale/cmd/internal/page"
	dictregistry "github.com/balekv/bale/cmd/internal/registry"
	"github.com/balekv/bale/codec"
	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/redisproc"
)

// packNow packs values in place, as bale migrate --force does.
func packNow(t *testing.T, url string, s migrate.Settings) { packNowBy(t, url, "", s) }

// packNowBy has the registry at another URL.
func packNowBy(t *testing.T, url, registry string, s migrate.Settings) {
	t.Helper()
	_, err := migrate.Run(t.Context(), migrate.Options{
		Registry: dictregistry.Options{Streams: &cli.Streams{Err: io.Discard}, Data: []string{url}, URL: registry, Prefix: dict.DefaultPrefix},
		Settings: s, Force: true, Plan: page.NewSheet(io.Discard, 80),
	})
	must(t, err)
}

// TestPackedAlready: what bale saves is the difference of MEMORY USAGE with plain values and with
// packed ones.
func TestPackedAlready(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := redisproc.ForTest(t)
	client := opened(t, s.URL())
	const n = 600
	rng := rand.New(rand.NewPCG(1, 2))
	value := func(int) string { return strings.Repeat(profile(rng, rng.IntN(1e6)), 4) }
	write := func(pack func(string) string) {
		rng = rand.New(rand.NewPCG(1, 2))
		if _, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i := range n {
				p.Set(ctx, fmt.Sprint("user:", i), pack(value(i)), 0)
				p.Set(ctx, fmt.Sprint("half:", i), value(i), 0)
				if i%2 == 0 {
					p.Set(ctx, fmt.Sprint("half:", i), pack(value(i)), 0)
				}
				p.Del(ctx, fmt.Sprint("cart:", i))
				p.HSet(ctx, fmt.Sprint("cart:", i), "a", pack(value(i)), "b", pack(value(i)), "n", 7)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	usage := func(prefix string) (all int64) {
		for i := range n {
			used, err := client.MemoryUsage(ctx, fmt.Sprint(prefix, i), 0).Result()
			if err != nil {
				t.Fatal(err)
			}
			all += used
		}
		return all
	}
	for _, algorithm := range []frame.Algorithm{frame.Zstd, frame.S2} {
		c, err := compress.Setting{Algorithm: algorithm}.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		packer, err := bale.NewPacker(bale.PackerOptions{Compressors: &compress.Set{Write: c}})
		if err != nil {
			t.Fatal(err)
		}
		plain, packed := map[string]int64{}, map[string]int64{}
		prefixes := []string{"user:", "half:", "cart:"}
		write(func(v string) string { return v })
		for _, p := range prefixes {
			plain[p] = usage(p)
		}
		write(func(v string) string {
			b, err := packer.Pack(nil, []byte(v))
			if err != nil {
				t.Fatal(err)
			}
			return string(b)
		})
		for _, p := range prefixes {
			packed[p] = usage(p)
		}
		if err := client.Set(ctx, "user:forged", frame.Header{Algorithm: frame.Zstd, Length: math.MaxInt64}.Append(nil), 0).Err(); err != nil {
			t.Fatal(err)
		}
		a, err := Redis(ctx, client, options())
		if err != nil {
			t.Fatal(err)
		}
		for p, kind := range map[string]string{"user:": String, "half:": String, "cart:": Hash} {
			g := groupOf(t, a, p+"*", kind)
			keys := int64(n)
			if p == "half:" {
				keys = n / 2
			}
			want := float64(plain[p] - packed[p])
			if g.Packed == nil || math.Abs(float64(g.Packed.Keys-keys)) > 0.15*float64(keys) || math.Abs(float64(g.Packed.Saved)/float64(g.Packed.Keys)-want/float64(keys)) > 0.05*want/float64(keys) { // half of the sample varies by 4%
				t.Errorf("%v: %s: %+v; %d keys save %.0f bytes", algorithm, p, g.Packed, keys, want)
			}
		}
		var text bytes.Buffer
		a.WriteText(page.NewSheet(&text, 0), false)
		for _, want := range []string{"what bale saves already", "What is packed already saves "} {
			if !strings.Contains(strings.Join(strings.Fields(text.String()), " "), strings.TrimSpace(want)) {
				t.Errorf("the text lacks %q:\n%s", want, &text)
			}
		}
	}
}

// TestBetterDictionary: on values like those of the training a new dictionary adds nothing. On
// values that have changed it adds what packing them anew then saves by MEMORY USAGE.
func TestBetterDictionary(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := redisproc.ForTest(t)
	client := opened(t, s.URL())
	const n = 800
	rng := rand.New(rand.NewPCG(1, 2))
	write := func(value func(i int) string) {
		store(t, client, func(p redis.Pipeliner) {
			for i := range n {
				p.Set(ctx, fmt.Sprint("user:", i), value(i), 0)
			}
		})
	}
	pack := func(dictionary string, repack bool) {
		t.Helper()
		packNow(t, s.URL(), migrate.Settings{Match: []string{"user:*"}, Dict: dictionary, Group: "user", Repack: repack})
	}
	ask := func() (*Group, string) {
		t.Helper()
		a, err := Run(ctx, Source{Redis: s.URL(), DB: -1, Prefix: dict.DefaultPrefix}, options())
		must(t, err)
		var text bytes.Buffer
		a.WriteText(page.NewSheet(&text, 0), false)
		g := groupOf(t, a, "user:*", String)
		if g.Packed == nil || g.Packed.Better == nil {
			t.Fatalf("%+v\n%s", g.Packed, &text)
		}
		return g, text.String()
	}
	usage := func() int64 { return usageOf(t, client, n) }
	write(func(i int) string { return profile(rng, i) })
	pack(migrate.Auto, false)
	if g, text := ask(); g.Packed.worth(g.Now) || !strings.Contains(text, "a new dictionary adds") || strings.Contains(text, "--repack") {
		t.Errorf("the present dictionary is of these values: %+v\n%s", g.Packed.Better, text)
	}
	packer, err := bale.NewPacker(bale.PackerOptions{})
	must(t, err)
	defer packer.Close()
	write(func(i int) string {
		if i%20 == 0 {
			return profile(rng, i)
		}
		packed, err := packer.Pack(nil, []byte(profile(rng, i)))
		must(t, err)
		return string(packed)
	})
	pack(migrate.Current, false)
	if g, text := ask(); !g.Packed.worth(g.Now) || !strings.Contains(text, "--dict current --group user --repack\n") ||
		strings.Contains(text, "have changed") || !strings.HasSuffix(g.Packed.with(), "%)") {
		t.Errorf("most have no dictionary: %+v\n%s", g.Packed, text)
	}
	write(func(i int) string {
		return fmt.Sprintf(`<session token="%x%x" user="%d" agent="Mozilla/5.0 (X11; Linux x86_64; rv:139.0) Gecko/20100101 Firefox/139.0" scopes="read write purchase" cart="%x"/>`,
			rng.Uint64(), rng.Uint64(), rng.Uint32(), rng.Uint64())
	})
	pack(migrate.Current, false)
	g, text := ask()
	if !g.Packed.worth(g.Now) || !strings.Contains(text, "bale migrate --redis "+s.URL()+" --match 'user:*' --dict auto --group user --repack\n") || strings.Contains(text, "Nothing to do") || !strings.Contains(strings.Join(strings.Fields(text), " "), "new dictionaries would save") {
		t.Errorf("the values have changed: %+v\n%s", g.Packed.Better, text)
	}
	before := usage()
	pack(migrate.Auto, true)
	if saved := float64(before - usage()); math.Abs(g.Packed.Better.Estimate-saved) > 0.15*saved {
		t.Errorf("%+v, and %.0f bytes were saved", g.Packed.Better, saved)
	}
}

// usageOf is the MEMORY USAGE of user:0 and so on.
func usageOf(t *testing.T, client redis.UniversalClient, n int) (all int64) {
	t.Helper()
	for i := range n {
		used, err := client.MemoryUsage(t.Context(), fmt.Sprint("user:", i), 0).Result()
		must(t, err)
		all += used
	}
	return all
}

// TestLoadedValues: the command for values of GetOrLoad saves what it promises, and then there is
// nothing more to do. The values stay, and are fresh as long as before.
func TestLoadedValues(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := redisproc.ForTest(t)
	client := opened(t, s.URL())
	const n, bare = 1000, 800
	rng := rand.New(rand.NewPCG(1, 2))
	var values [][]byte
	for i := range n {
		values = append(values, []byte(profile(rng, i)))
	}
	registry, err := dict.NewRegistry(goredis.NewStore(client), dict.RegistryOptions{})
	must(t, err)
	training, err := dict.Train(ctx, values, dict.TrainOptions{Values: n})
	must(t, err)
	must(t, registry.Publish(ctx, "user", training.Dictionary, training.Info()))
	must(t, registry.Activate(ctx, "user", training.Dictionary.ID(), true))
	group, err := registry.Open(ctx, "user", dict.GroupOptions{})
	must(t, err)
	defer group.Close()
	packer, err := bale.NewPacker(bale.PackerOptions{Compressors: group})
	must(t, err)
	expires := map[int]time.Time{}
	load := func(from, to int, packer *bale.Packer) {
		t.Helper()
		cache, err := bale.New(goredis.NewStore(client), bale.Options[[]byte]{Packer: packer, TTL: time.Hour, Codec: codec.Bytes{}})
		must(t, err)
		defer cache.Close()
		for i := from; i < to; i++ {
			e, err := cache.GetOrLoad(ctx, fmt.Sprint("user:", i), func(context.Context) ([]byte, error) {
				if !expires[i].IsZero() {
					t.Errorf("%d is loaded again", i)
				}
				return values[i], nil
			})
			if must(t, err); !bytes.Equal(e.Value, values[i]) || !expires[i].IsZero() && !expires[i].Equal(e.Expires) {
				t.Errorf("%d: %+v, was fresh until %v", i, e, expires[i])
			}
			expires[i] = e.Expires
		}
	}
	load(0, bare, nil)
	load(bare, n, packer)
	ask := func() (*Group, string) {
		t.Helper()
		a, err := Run(ctx, Source{Redis: s.URL(), DB: -1, Prefix: dict.DefaultPrefix}, options())
		must(t, err)
		var text bytes.Buffer
		a.WriteText(page.NewSheet(&text, 0), false)
		return groupOf(t, a, "user:*", String), text.String()
	}
	usage := func() int64 { return usageOf(t, client, n) }
	before := usage()
	g, text := ask()
	if !g.Packed.worth(g.Now) || !strings.Contains(text, "--match 'user:*' --dict current --group user --repack\n") {
		t.Fatalf("%+v\n%s", g.Packed, text)
	}
	packNow(t, s.URL(), migrate.Settings{Match: []string{"user:*"}, Dict: migrate.Current, Group: "user", Repack: true})
	if saved := float64(before - usage()); math.Abs(g.Packed.Better.Estimate-saved) > 0.15*saved {
		t.Errorf("%+v, and %.0f bytes were saved", g.Packed.Better, saved)
	}
	if g, text := ask(); g.Packed.worth(g.Now) || strings.Contains(text, "--repack") {
		t.Errorf("the command is advised again: %+v\n%s", g.Packed.Better, text)
	}
	load(0, n, packer)
}

// TestBetterExcludes: what the current dictionary leaves out is no gain of a new one, and stays out
// of it. The setting stays, too.
func TestBetterExcludes(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := redisproc.ForTest(t)
	client := opened(t, s.URL())
	const note = "this note stands in every value, and must not get into a dictionary"
	rng := rand.New(rand.NewPCG(1, 2))
	registry, err := dict.NewRegistry(goredis.NewStore(client), dict.RegistryOptions{})
	must(t, err)
	round := func(more string, o migrate.Settings) (*Group, string) {
		t.Helper()
		store(t, client, func(p redis.Pipeliner) {
			for i := range 800 {
				p.Set(ctx, fmt.Sprint("user:", i), fmt.Sprintf(`{"note":%q,%s%s`, note, more, profile(rng, i)[1:]), 0)
			}
		})
		o.Match, o.Group = []string{"user:*"}, "user"
		packNow(t, s.URL(), o)
		a, err := Run(ctx, Source{Redis: s.URL(), DB: -1, Prefix: dict.DefaultPrefix}, options())
		must(t, err)
		var text bytes.Buffer
		a.WriteText(page.NewSheet(&text, 0), false)
		return groupOf(t, a, "user:*", String), text.String()
	}
	g, text := round("", migrate.Settings{Dict: migrate.Auto, Compress: "zstd:1", Exclude: []string{"note"}})
	if g.Packed == nil || g.Packed.worth(g.Now) || strings.Contains(text, "--repack") {
		t.Errorf("%+v\n%s", g.Packed, text)
	}
	more := `"preferences":{"newsletter":"weekly","language":"english","currency":"EUR","consent":["statistics","marketing"]},`
	g, text = round(more, migrate.Settings{Dict: migrate.Current, Compress: "zstd:1"})
	if !g.Packed.worth(g.Now) || !strings.Contains(text, "--dict auto --group user --compress zstd:1 --repack\n") {
		t.Errorf("%+v\n%s", g.Packed, text)
	}
	packNow(t, s.URL(), migrate.Settings{Match: []string{"user:*"}, Dict: migrate.Auto, Group: "user", Compress: "zstd:1", Repack: true})
	st, err := registry.State(ctx, "user")
	must(t, err)
	d, err := registry.Fetch(ctx, st.Current)
	must(t, err)
	if st.Previous == 0 || bytes.Contains(d.Bytes(), []byte(note[:20])) || !slices.Equal(st.Find(st.Current).Excluded(), []string{"note"}) {
		t.Errorf("%+v", st)
	}
}

// TestRefusedDictionary: what bale migrate --dict auto would refuse is not advised. A dictionary
// that was made for a million values is too large for some hundreds, and it is there already.
func TestRefusedDictionary(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := redisproc.ForTest(t)
	client := opened(t, s.URL())
	const n = 200
	rng := rand.New(rand.NewPCG(1, 2))
	var words []string
	for range 3000 {
		words = append(words, fmt.Sprintf("%x%x", rng.Uint64(), rng.Uint32()))
	}
	value := func() []byte {
		v := profile(rng, rng.IntN(1e6))
		for range 6 {
			v += words[rng.IntN(len(words))]
		}
		return []byte(v)
	}
	var values, later [][]byte
	for range 20 * n {
		values = append(values, value())
	}
	for range n {
		later = append(later, value())
	}
	training, err := dict.Train(ctx, values, dict.TrainOptions{Builders: builders(compress.Setting{Algorithm: frame.Zstd}, little)})
	must(t, err)
	registry, err := dict.NewRegistry(goredis.NewStore(client), dict.RegistryOptions{})
	must(t, err)
	must(t, registry.Publish(ctx, "people", training.Dictionary, training.Info()))
	must(t, registry.Activate(ctx, "people", training.Dictionary.ID(), true))
	compressor, err := training.Setting.New(training.Dictionary)
	must(t, err)
	packer, err := bale.NewPacker(bale.PackerOptions{Compressors: &compress.Set{Write: compressor}})
	must(t, err)
	store(t, client, func(p redis.Pipeliner) {
		for i, v := range later {
			packed, err := packer.Pack(nil, v)
			must(t, err)
			p.Set(ctx, fmt.Sprint("user:", i), packed, 0)
		}
	})
	a, err := Run(ctx, Source{Redis: s.URL(), DB: -1, Prefix: dict.DefaultPrefix}, options())
	must(t, err)
	var text bytes.Buffer
	a.WriteText(page.NewSheet(&text, 0), false)
	g := groupOf(t, a, "user:*", String)
	if g.Packed == nil || g.Packed.Better == nil || g.Packed.worth(g.Now) || strings.Contains(text.String(), "--repack") ||
		!strings.Contains(text.String(), "Its dictionary takes ") {
		t.Errorf("%+v of %d\n%s", g.Packed, g.Now, &text)
	}
	packNow(t, s.URL(), migrate.Settings{Match: []string{"user:*"}, Dict: migrate.Auto, Group: "people", Repack: true})
	if st, err := registry.State(ctx, "people"); err != nil || st.Current != training.Dictionary.ID() {
		t.Errorf("bale migrate took another dictionary: %+v, %v", st, err)
	}
}

// TestNewerDictionary: values that have an older dictionary than the group are packed with the
// group's.
func TestNewerDictionary(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := redisproc.ForTest(t)
	client := opened(t, s.URL())
	const n = 800
	rng := rand.New(rand.NewPCG(1, 2))
	write := func(value func(i int) string) {
		store(t, client, func(p redis.Pipeliner) {
			for i := range n {
				p.Set(ctx, fmt.Sprint("user:", i), value(i), 0)
			}
		})
	}
	pack := func(dictionary string, repack bool) {
		t.Helper()
		packNow(t, s.URL(), migrate.Settings{Match: []string{"user:*"}, Dict: dictionary, Group: "people", Repack: repack})
	}
	write(func(i int) string {
		return strings.Repeat(fmt.Sprintf("%x", rng.Uint64()), 3) + " an older program's values, all alike"
	})
	pack(migrate.Auto, false)
	registry, err := dict.NewRegistry(goredis.NewStore(client), dict.RegistryOptions{})
	must(t, err)
	older, err := registry.State(ctx, "people")
	must(t, err)
	write(func(i int) string { return profile(rng, i) })
	pack(migrate.Current, false)
	var profiles [][]byte
	for i := range n {
		profiles = append(profiles, []byte(profile(rng, i)))
	}
	training, err := dict.Train(ctx, profiles, dict.TrainOptions{Values: n})
	must(t, err)
	must(t, registry.Publish(ctx, "people", training.Dictionary, training.Info()))
	must(t, registry.Activate(ctx, "people", training.Dictionary.ID(), true))
	a, err := Run(ctx, Source{Redis: s.URL(), DB: -1, Prefix: dict.DefaultPrefix}, options())
	must(t, err)
	var text bytes.Buffer
	a.WriteText(page.NewSheet(&text, 0), false)
	g := groupOf(t, a, "user:*", String)
	if len(g.Packed.Dictionaries) != 1 || g.Packed.Dictionaries[0].ID != older.Current || !g.Packed.worth(g.Now) ||
		!strings.Contains(text.String(), "--match 'user:*' --dict current --group people --repack\n") {
		t.Errorf("%+v\n%s", g.Packed, &text)
	}
}

// TestForgedFrame: where most values are packed without a dictionary, one that names the dictionary
// of another group does not choose the group that is packed anew.
func TestForgedFrame(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := redisproc.ForTest(t)
	client := opened(t, s.URL())
	const n = 800
	rng := rand.New(rand.NewPCG(1, 2))
	var profiles [][]byte
	store(t, client, func(p redis.Pipeliner) {
		for i := range n {
			profiles = append(profiles, []byte(profile(rng, i)))
			p.Set(ctx, fmt.Sprint("user:", i), profiles[i], 0)
		}
	})
	packNow(t, s.URL(), migrate.Settings{Match: []string{"user:*"}})
	registry, err := dict.NewRegistry(goredis.NewStore(client), dict.RegistryOptions{})
	must(t, err)
	training, err := dict.Train(ctx, profiles, dict.TrainOptions{Values: n})
	must(t, err)
	must(t, registry.Publish(ctx, "others", training.Dictionary, training.Info()))
	must(t, registry.Activate(ctx, "others", training.Dictionary.ID(), true))
	forged := frame.Header{Algorithm: frame.Zstd, DictionaryID: training.Dictionary.ID(), Length: 100}.Append(nil)
	must(t, client.Set(ctx, "user:0", forged, 0).Err())
	a, err := Run(ctx, Source{Redis: s.URL(), DB: -1, Prefix: dict.DefaultPrefix}, options())
	must(t, err)
	g := groupOf(t, a, "user:*", String)
	if len(g.Packed.Dictionaries) != 1 || !g.Packed.bare || g.Packed.renewal != "--dict auto" || !g.Packed.worth(g.Now) {
		t.Errorf("%+v", g.Packed)
	}
}

// TestRenewalRuns: the command to pack values anew has the URL as the other steps have it, and no
// password, file or hidden pattern.
func TestRenewalRuns(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		options Options
		match   string
		want    string
	}{
		{Options{URL: "redis://h:1"}, "user:*", "--redis redis://h:1 --match 'user:*' --dict auto --repack\n"},
		{Options{URL: "redis://***@h:1"}, "user:*", `--redis "$REDIS_URL" --match 'user:*'`},
		{Options{Source: "r.rdb"}, "user:*", `--redis "$REDIS_URL" --match 'user:*'`},
		{Options{URL: "redis://h:1", Registry: "redis://***@r:1"}, "user:*", `--redis redis://h:1 --registry "$REGISTRY_URL" --match`},
		{Options{URL: "redis://h:1", HideKeys: true}, "", "--match PATTERN"},
	} {
		a := &Advice{Source: "r.rdb", Server: &Server{}, Groups: []Group{{Name: "user:*", Match: test.match, Type: String, Chosen: -1, Now: 100,
			Packed: &Packed{Better: &Interval{10, 20, 30}, renewal: "--dict auto"}}}}
		a.next(&test.options)
		var text bytes.Buffer
		a.packedTable(page.NewSheet(&text, 0))
		if !strings.Contains(text.String(), test.want) || strings.Contains(test.want, redisURL) != strings.Contains(strings.Join(strings.Fields(text.String()), " "), "with a user who may write") {
			t.Errorf("no %q in\n%s", test.want, &text)
		}
	}
}

// TestNextForAnotherUser: who asks for advice as a user by --user, who may only read, writes as
// another one. The commands have no URL without a user.
func TestNextForAnotherUser(t *testing.T) {
	t.Parallel()
	s := redisproc.ForTest(t)
	client := opened(t, s.URL())
	must(t, client.Do(t.Context(), "ACL", "SETUSER", "advisor", "on", ">secret", "~*", "+@all").Err())
	for user, want := range map[string]string{"": s.URL() + " --registry " + s.URL(), "advisor": redisURL + ` --registry "$REGISTRY_URL"`} {
		a, err := Run(t.Context(), Source{Redis: s.URL(), Registry: s.URL(), DB: -1, Prefix: dict.DefaultPrefix,
			Login: keyspace.Login{User: user, Password: strings.Repeat("secret", min(1, len(user)))}}, options())
		if must(t, err); a.at != want {
			t.Errorf("%q: %s", user, a.at)
		}
	}
}

// TestFileWithRegistry: the values of an RDB file have the dictionaries of --registry, and the next
// steps name it.
func TestFileWithRegistry(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, other := redisproc.ForTest(t), redisproc.ForTest(t)
	url := s.URL() + "/3"
	client := opened(t, url)
	rng := rand.New(rand.NewPCG(1, 2))
	store(t, client, func(p redis.Pipeliner) {
		for i := range 600 {
			p.Set(ctx, fmt.Sprint("user:", i), profile(rng, i), 0)
		}
	})
	packNowBy(t, url, other.URL(), migrate.Settings{Match: []string{"user:*"}, Dict: migrate.Auto, Group: "user"})
	must(t, client.Save(ctx).Err())
	dir, err := client.ConfigGet(ctx, "dir").Result()
	must(t, err)
	must(t, opened(t, other.URL()).Do(ctx, "ACL", "SETUSER", "advisor", "on", ">secret", "~*", "+@all").Err())
	o := options()
	o.URL = ""
	asked := 0 // of the registry: the private server has no pace
	o.Pace = keyspace.Pace{Shared: func(context.Context, int) error { asked++; return nil }}
	a, err := Run(ctx, Source{RDB: filepath.Join(dir["dir"], "dump.rdb"), Registry: other.URL(), DB: -1, Prefix: dict.DefaultPrefix,
		Login: keyspace.Login{User: "advisor", Password: "secret"}}, o)
	must(t, err)
	if g := groupOf(t, a, "user:*", String); g.Packed == nil || g.Packed.Better == nil {
		t.Errorf("%+v\n%q", g.Packed, a.Warnings)
	}
	if want := redisURL + ` --registry "$REGISTRY_URL"`; a.at != want {
		t.Errorf("the next steps are for %s, want %s", a.at, want)
	}
	if asked == 0 {
		t.Error("the registry was read without a pace")
	}
}

// TestRegistryThatStops: a registry that does not answer is not asked for each of many values.
func TestRegistryThatStops(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := redisproc.ForTest(t)
	d, err := frame.NewDictionary([]byte(strings.Repeat(profile(rand.New(rand.NewPCG(1, 2)), 1), 3)))
	must(t, err)
	c, err := compress.Setting{Algorithm: frame.Zstd}.New(d)
	must(t, err)
	packer, err := bale.NewPacker(bale.PackerOptions{Compressors: &compress.Set{Write: c}})
	must(t, err)
	defer packer.Close()
	packed, err := packer.Pack(nil, []byte(profile(rand.New(rand.NewPCG(1, 2)), 2)))
	must(t, err)
	r := &reader{at: dictregistry.Options{Streams: &cli.Streams{Err: io.Discard}, Data: []string{s.URL()}, LookOnly: true}}
	defer r.close()
	must(t, r.open(ctx))
	s.Kill()
	if _, err := r.Unpack(ctx, packed); !errors.Is(err, dictregistry.ErrUnreachable) {
		t.Fatal(err)
	}
	must(t, s.Restart(ctx))
	if _, err := r.Unpack(ctx, packed); !errors.Is(err, dictregistry.ErrUnreachable) || strings.Contains(err.Error(), d.ID().String()) {
		t.Error("asked again, or with the dictionary of the first:", err)
	}
}

// TestPackedTogether: groups of one family stay one when they are packed with one dictionary, and
// the advice on a new one is for all of them. Those with a dictionary each stay apart.
func TestPackedTogether(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := redisproc.ForTest(t)
	client := opened(t, s.URL())
	const n = 400
	languages := []string{"de", "en", "fr"}
	store(t, client, func(p redis.Pipeliner) {
		rng := rand.New(rand.NewPCG(1, 2))
		for i := range n {
			for _, language := range languages {
				p.Set(ctx, fmt.Sprintf("together:%d:%s", i, language), profile(rng, i), 0)
				p.Set(ctx, fmt.Sprintf("apart:%d:%s", i, language), profile(rng, i), 0)
			}
		}
	})
	pack := func(match, group string) {
		t.Helper()
		packNow(t, s.URL(), migrate.Settings{Match: []string{match}, Dict: migrate.Auto, Group: group})
	}
	pack("together:*:*", "together")
	for _, language := range languages {
		pack("apart:*:"+language, "apart-"+language)
	}
	a, err := Run(ctx, Source{Redis: s.URL(), DB: -1, Prefix: dict.DefaultPrefix}, options())
	must(t, err)
	registry, err := dict.NewRegistry(goredis.NewStore(client), dict.RegistryOptions{})
	must(t, err)
	dictionary := func(group string) []PackedWith {
		s, err := registry.State(ctx, group)
		must(t, err)
		return []PackedWith{{s.Current, 1}}
	}
	g := groupOf(t, a, "together:*:*", String)
	if g.Keys != 3*n || g.Packed == nil || g.Packed.Keys != 3*n || g.Packed.Better == nil ||
		g.Together == nil || len(g.Together.Groups) != 3 || !slices.Equal(g.Packed.Dictionaries, dictionary("together")) {
		t.Errorf("%+v, %+v, %+v", g, g.Packed, g.Together)
	}
	for _, language := range languages {
		if g := groupOf(t, a, "apart:*:"+language, String); g.Keys != n || g.Packed == nil || g.Together != nil ||
			!slices.Equal(g.Packed.Dictionaries, dictionary("apart-"+language)) {
			t.Errorf("%+v, %+v, %+v", g, g.Packed, g.Together)
		}
	}
	var text bytes.Buffer
	a.WriteText(page.NewSheet(&text, 0), false)
	for _, want := range []string{
		" " + g.Packed.Dictionaries[0].ID.String() + " ", "together:*:* joins ",
		"their values are packed with the same dictionary",
	} {
		if !strings.Contains(strings.Join(strings.Fields(text.String()), " "), want) {
			t.Errorf("no %q in %s", want, &text)
		}
	}
}

// TestPackedBesideHeavy: what is packed already saves what it does, beside a string with most of
// the group's memory. Of one that was not read nothing is known.
func TestPackedBesideHeavy(t *testing.T) {
	t.Parallel()
	const keys = 400
	rng, m := rand.New(rand.NewPCG(1, 2)), &memory{}
	setting, err := engine.Parse("zstd:3")
	must(t, err)
	p, release, err := (&trial{setting: setting}).packer()
	must(t, err)
	defer release()
	pack := func(v string) string {
		out, err := p.Pack(nil, []byte(v))
		must(t, err)
		return string(out)
	}
	text := hex.EncodeToString(noise(rng, 1e6))
	for name, c := range map[string]struct {
		stored, plain string // plain is empty where it was not packed
		read          bool
	}{
		"random": {string(noise(rng, 1e6)), "", true}, "random, not read": {string(noise(rng, 1e6)), "", false},
		"packed": {pack(text), text, true}, "packed, not read": {pack(text), text, false},
	} {
		var all []*entry
		want := 0.0
		for i := range keys {
			plain := strings.Repeat(profile(rng, i), 2)
			stored, read := pack(plain), i%4 == 0
			if i == 8 {
				if stored, plain, read = c.stored, c.plain, c.read; plain == "" {
					plain = stored
				}
			}
			e := &entry{rank: uint64(i), name: fmt.Sprint("k:", i), kind: String, size: int64(len(stored))}
			if read {
				e.items, e.sampled = []item{{head: []byte(stored[:min(len(stored), headBytes)]), size: e.size}}, true
			}
			if e.now = m.string(e, nil, e.size); i != 8 || read {
				want += float64(m.string(e, nil, int64(len(plain))) - e.now)
			}
			all = append(all, e)
		}
		a := newAttempt(m, &found{name: "k:*", match: "k:*", kind: String, keys: keys, entries: all}, &Options{})
		if got := float64(a.group.Packed.Saved); got < 0.97*want || got > 1.03*want {
			t.Errorf("%s: %.0f bytes saved, and it is %.0f", name, got, want)
		}
	}
}

// TestForgedSizes: forged frames that claim large values take no memory, in however many groups, of
// a server of whatever version.
func TestForgedSizes(t *testing.T) {
	m := &memory{inexact: true}
	forged := frame.Header{Algorithm: frame.Zstd, Length: packedMax}.Append(nil)
	var samples []*groupSample
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 20 {
		e := &entry{name: "key", kind: Hash, size: 1, now: 100, modelled: 100, usage: 110, items: []item{{name: []byte("field"), head: forged, size: int64(len(forged))}}}
		samples = append(samples, newGroupSample(m, []*entry{e}, 1))
	}
	if runtime.ReadMemStats(&after); after.TotalAlloc-before.TotalAlloc > packedMax {
		t.Errorf("%d MiB for %d groups", (after.TotalAlloc-before.TotalAlloc)>>20, len(samples))
	}
	if p := samples[0].packed; p.keys != 1 || p.saved < packedMax-200 {
		t.Errorf("what is packed is not seen: %+v", p)
	}
}

// TestForgedHash: a hash whose many small fields unpack to large values costs no more than one such
// value, and nothing of a value stays in memory beside its start.
func TestForgedHash(t *testing.T) {
	m := &memory{inexact: true}
	forged := frame.Header{Algorithm: frame.Zstd, Length: packedMax}.Append(nil)
	e := &entry{name: "key", kind: Hash, size: 100, now: 100, modelled: 100, usage: 110, sampled: true}
	for range e.size {
		e.items = append(e.items, item{name: []byte("field"), head: forged, size: int64(len(forged))})
	}
	one := *e
	one.name, one.size, one.items = "one", 1, e.items[:1]
	r := &largeReader{value: make([]byte, packedMax)}
	a := newAttempt(m, &found{name: "*", kind: Hash, keys: 2, entries: []*entry{&one, e, e}}, &Options{})
	var wasted int64
	all, _, err := a.unpacked(t.Context(), r, &wasted)
	must(t, err)
	if r.values > 1 || len(all) != 1 || len(all[0].items) != 1 {
		t.Errorf("%d values of %d bytes are unpacked, for %d entries", r.values, packedMax, len(all))
	}
	if head := all[0].items[0].head; len(head) != headBytes || cap(head) > 2*headBytes {
		t.Errorf("%d bytes stay in memory for %d", cap(head), len(head))
	}
	r.values = 0
	a.entries = []*entry{e}
	if all, _, err = a.unpacked(t.Context(), r, &wasted); err != nil || len(all) > 0 || r.values != 1 {
		t.Errorf("%d values are unpacked, for %d entries: %v", r.values, len(all), err)
	}
	r.values, r.err = 0, bale.ErrCorrupt
	damaged := append(slices.Clone(forged), make([]byte, packedMax>>15)...)
	one.items = []item{{name: []byte("field"), head: damaged, size: int64(len(damaged))}}
	a.entries = slices.Repeat([]*entry{&one}, 100)
	if all, _, err = a.unpacked(t.Context(), r, &wasted); !errors.Is(err, bale.ErrCorrupt) || len(all) > 0 || r.values != keyspace.MostWasted/packedMax {
		t.Errorf("%d values are unpacked that are damaged at their end, for %d entries: %v", r.values, len(all), err)
	}
	r.values = 0
	if _, _, err = a.unpacked(t.Context(), r, &wasted); !errors.Is(err, errWasted) || r.values > 0 {
		t.Errorf("%d more are unpacked of the next group: %v", r.values, err)
	}
}

// largeReader unpacks everything to one value or an error, and counts how often.
type largeReader struct {
	Reader
	value  []byte
	err    error
	values int
}

func (r *largeReader) Unpack(context.Context, []byte) ([]byte, error) {
	r.values++
	return r.value, r.err
}

// TestCalibratedOnce: keys that are in a group, and then in one that it is joined to, take what
// MEMORY USAGE says, and no more.
func TestCalibratedOnce(t *testing.T) {
	m := &memory{inexact: true}
	e := &entry{name: "key", kind: String, size: 80, now: 100, modelled: 100, usage: 120}
	for range 2 {
		if m.calibrated([]*entry{e}); e.now != 120 {
			t.Errorf("%d bytes where the server says 120", e.now)
		}
	}
}

// TestUnlikeHashes: a few hashes have many times the fields of the others, and other contents. The
// advice, and later what is packed already, are what migrate saves by MEMORY USAGE.
func TestUnlikeHashes(t *testing.T) {
	t.Parallel()
	const large = 10_000 // fields
	code := func(rng *rand.Rand, i int) string {
		return fmt.Sprintf("%016x%016x%08x", rng.Uint64(), rng.Uint64(), rng.Uint32())
	}
	for name, c := range map[string]struct {
		small, fields  int
		value, inLarge func(rng *rand.Rand, i int) string
	}{
		"large ones of codes": {150, 60, profile, code},
		"large ones of JSON":  {40, 500, code, profile},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			s := redisproc.ForTest(t)
			client := opened(t, s.URL())
			rng := rand.New(rand.NewPCG(1, 2))
			var keys []string
			add := func(fields int, value func(rng *rand.Rand, i int) string) {
				var pairs []any
				for i := range fields {
					pairs = append(pairs, fmt.Sprint("field", i), value(rng, i))
				}
				keys = append(keys, fmt.Sprint("shop:", len(keys)))
				must(t, client.HSet(ctx, keys[len(keys)-1], pairs...).Err())
			}
			for range c.small {
				add(c.fields, c.value)
			}
			for range 3 {
				add(large, c.inLarge)
			}
			usage := func() (all int64) {
				for _, key := range append(client.Keys(ctx, "bale:dict:data:*").Val(), keys...) {
					used, err := client.MemoryUsage(ctx, key, 0).Result()
					must(t, err)
					all += used
				}
				return all
			}
			o := options()
			o.Sample = 4000 // as bale advise has it
			ask := func() *Group {
				a, err := Run(ctx, Source{Redis: s.URL(), DB: -1, Prefix: dict.DefaultPrefix}, o)
				must(t, err)
				return groupOf(t, a, "shop:*", Hash)
			}
			g := ask()
			if g.Chosen < 0 {
				t.Fatalf("%+v", g)
			}
			chosen, promised := g.Options[g.Chosen], g.Saving
			settings := migrate.Settings{Match: []string{"shop:*"}, Compress: chosen.Setting}
			if chosen.Dictionary > 0 {
				settings.Dict, settings.Group = migrate.Auto, "shop"
			}
			plain := usage()
			packNow(t, s.URL(), settings)
			saved := float64(plain - usage())
			// The server's seed decides which fields are read, and migrate trains a dictionary of others.
			if room := 0.05 * saved; saved < promised.Low-room || saved > promised.High+room || promised.High-promised.Low > 0.2*saved {
				t.Errorf("%s promises %.0f of %d, saved are %.0f", chosen.Setting, promised, g.Now, saved)
			}
			if g = ask(); g.Packed == nil || math.Abs(float64(g.Packed.Saved)-saved) > 0.15*saved {
				t.Errorf("packed already: %+v, saved are %.0f", g.Packed, saved)
			}
		})
	}
}

// TestPackedPartly: keys with a packed value are counted, also hashes with few packed fields, and
// shown beside all keys of the group.
func TestPackedPartly(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := redisproc.ForTest(t)
	client := opened(t, s.URL())
	packer, err := bale.NewPacker(bale.PackerOptions{})
	must(t, err)
	defer packer.Close()
	const hashes, withPacked = 40, 10
	rng := rand.New(rand.NewPCG(1, 2))
	store(t, client, func(p redis.Pipeliner) {
		for i := range hashes {
			for j := range 60 {
				v := strings.Repeat(profile(rng, j), 2)
				if i < withPacked && j == 0 {
					packed, err := packer.Pack(nil, []byte(v))
					must(t, err)
					v = string(packed)
				}
				p.HSet(ctx, fmt.Sprint("cart:", i), fmt.Sprint("field", j), v)
			}
		}
	})
	o := options()
	o.Sample = 4000 // all fields
	a, err := Redis(ctx, client, o)
	must(t, err)
	if g := groupOf(t, a, "cart:*", Hash); g.Packed == nil || g.Packed.Keys != withPacked {
		t.Errorf("%+v", g.Packed)
	}
	var text, html bytes.Buffer
	a.WriteText(page.NewSheet(&text, 0), false)
	must(t, a.WritePage(&html))
	if !strings.Contains(text.String(), " 10 of 40 ") || !strings.Contains(html.String(), "10 of 40 keys") {
		t.Errorf("the keys with packed values are not in the text or not in the page\n%s", &text)
	}
}
