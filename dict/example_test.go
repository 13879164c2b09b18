package dict_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing/fstest"
	"time"

	"github.com/balekv/bale"
	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/memstore"
)

// profile is a value of the group shop:user.
func profile(i int) []byte {
	return fmt.Appendf(nil, `{"id":%d,"email":"user%d@example.com","country":"%s","plan":"%s","avatar":"https://cdn.example.com/avatars/%x.jpg"}`,
		i, i*7919, []string{"DE", "FR", "US", "JP"}[i%4], []string{"free", "pro"}[i%3/2], uint32(i)*2654435761)
}

// newRegistry is a registry in memory. A program has goredis.NewStore(rdb), or the Store of another
// adapter.
func newRegistry(store dict.Store) *dict.Registry {
	registry, err := dict.NewRegistry(store, dict.RegistryOptions{})
	if err != nil {
		panic(err)
	}
	return registry
}

// newDictionary is one that was not trained.
func newDictionary(common string) *dict.Dictionary {
	d, err := frame.NewDictionary([]byte(common))
	if err != nil {
		panic(err)
	}
	return d
}

// Training tells what the dictionary saves, before anything is stored with it.
func ExampleTrain() {
	var samples [][]byte
	for i := range 400 {
		samples = append(samples, profile(i))
	}
	training, err := dict.Train(context.Background(), samples, dict.TrainOptions{
		MaxSize: 8 << 10,
		Exclude: []string{"email"}, // no address gets into the dictionary
		NoTimes: true,
	})
	if err != nil {
		panic(err)
	}
	with, without := training.With, training.Without
	entry := dict.Entry{ID: training.Dictionary.ID(), Info: training.Info()} // as the registry has it
	state := dict.State{Current: entry.ID, Dictionaries: []dict.Entry{entry}}
	fmt.Println(state.Latest().Excluded(), state.Excluded(), entry.MayContain([]string{"email", "name"}),
		bytes.Contains(training.Dictionary.Bytes(), []byte("@example.com")))
	fmt.Println(with.Ratio() > 1.5*without.Ratio(), with.PayloadRatio() > with.Ratio()) // the header counts
	fmt.Println(with.AllocatedPerValue() < without.AllocatedPerValue(), training.PaysFrom() < 300)

	_, err = dict.Train(context.Background(), samples[:5], dict.TrainOptions{})
	fmt.Println(errors.Is(err, dict.ErrNoDictionary), errors.Is(err, dict.ErrTooFew))
	// Output:
	// [email] [email] [name] false
	// true true
	// true true
	// true true
}

// A builder of your own competes with those of the package.
func ExampleBuilder() {
	var samples [][]byte
	for i := range 400 {
		samples = append(samples, profile(i))
	}
	last := dict.Builder{Name: "last samples", Build: func(_ context.Context, samples [][]byte, size int) ([]byte, error) {
		all := bytes.Join(samples, nil)
		return all[max(0, len(all)-size):], nil
	}}
	training, err := dict.Train(context.Background(), samples, dict.TrainOptions{
		Builders: append(dict.Builders(compress.Setting{}), last),
		MaxSize:  4 << 10,
		NoTimes:  true,
	})
	if err != nil {
		panic(err)
	}
	for _, c := range training.Candidates {
		if c.Builder == last.Name && c.Asked == 4<<10 {
			fmt.Println(c.Size, c.HeldOut.Ratio() > training.Without.Ratio())
		}
	}
	// Output:
	// 4096 true
}

// A dictionary goes to the readers first, and to the writers after a grace period.
func ExampleRegistry() {
	ctx := context.Background()
	store := memstore.New()
	registry := newRegistry(store)
	d := newDictionary(`"country":"DE","plan":"free","avatar":"https://cdn.example.com/avatars/`)

	err := registry.Publish(ctx, "shop:user", d, dict.Info{Builder: "by hand"})
	fmt.Println(err)
	err = registry.Activate(ctx, "shop:user", d.ID(), false)
	fmt.Println(errors.Is(err, dict.ErrGrace))
	err = registry.Activate(ctx, "shop:user", d.ID(), true) // readers fetch it when they meet it
	fmt.Println(err)

	group, err := registry.Open(ctx, "shop:user", dict.GroupOptions{})
	if err != nil {
		panic(err)
	}
	defer group.Close()
	packer, err := bale.NewPacker(bale.PackerOptions{Compressors: group})
	if err != nil {
		panic(err)
	}
	defer packer.Close()
	packed, err := packer.Pack(nil, profile(4))
	fmt.Println(group.Status().Writing == d.ID(), len(packed) < len(profile(4)), err)

	err = registry.Rollback(ctx, "shop:user") // to none, for there was none before
	fmt.Println(err)
	groups, err := registry.Groups(ctx)
	fmt.Println(groups, err)
	state, err := registry.State(ctx, "shop:user")
	fmt.Println(state.Current, state.Find(d.ID()).Info.Builder, err)
	// Output:
	// <nil>
	// true
	// <nil>
	// true true <nil>
	// <nil>
	// [shop:user] <nil>
	// none by hand <nil>
}

// The way back: with the group and a MinSize above every value, a Packer writes plain values and
// still reads the packed ones.
func ExampleGroup_plain() {
	ctx := context.Background()
	registry := newRegistry(memstore.New())
	d := newDictionary(`"country":"DE","plan":"free","avatar":"https://cdn.example.com/avatars/`)
	err := registry.Publish(ctx, "shop:user", d, dict.Info{Builder: "by hand"})
	fmt.Println(err, registry.Activate(ctx, "shop:user", d.ID(), true))
	group, err := registry.Open(ctx, "shop:user", dict.GroupOptions{})
	if err != nil {
		panic(err)
	}
	defer group.Close()
	before, err := bale.NewPacker(bale.PackerOptions{Compressors: group})
	if err != nil {
		panic(err)
	}
	packed, err := before.Pack(nil, profile(4))
	fmt.Println(len(packed) < len(profile(4)), err)

	packer, err := bale.NewPacker(bale.PackerOptions{Compressors: group, MinSize: math.MaxInt})
	if err != nil {
		panic(err)
	}
	plain, err := packer.Pack(nil, profile(4))
	fmt.Println(bytes.Equal(plain, profile(4)), err)
	read, err := packer.Unpack(ctx, nil, packed)
	fmt.Println(bytes.Equal(read, profile(4)), err)
	// Output:
	// <nil> <nil>
	// true <nil>
	// true <nil>
	// true <nil>
}

// A garbage collector removes a dictionary after a scan of all values: none of them needs it.
func ExampleRegistry_Remove() {
	ctx := context.Background()
	store := memstore.New()
	registry := newRegistry(store)
	if err := registry.SetGrace(ctx, 10*time.Millisecond); err != nil { // in a program a minute
		panic(err)
	}
	for _, common := range []string{"the oldest dictionary", "the previous dictionary", "the current dictionary"} {
		d := newDictionary(common)
		if err := registry.Publish(ctx, "shop:user", d, dict.Info{}); err != nil {
			panic(err)
		}
		if err := registry.Activate(ctx, "shop:user", d.ID(), true); err != nil {
			panic(err)
		}
	}
	time.Sleep(100 * time.Millisecond) // six grace periods

	state, err := registry.State(ctx, "shop:user")
	if err != nil {
		panic(err)
	}
	_, err = registry.Removable(ctx, state, state.Current)
	fmt.Println(errors.Is(err, dict.ErrInUse))

	entries, err := registry.Collectable(ctx, state)
	fmt.Println(len(entries), "of", len(state.Dictionaries), err)
	// Here the collector scans all values of all registry.Servers.
	for _, seen := range entries {
		quarantined, err := registry.Remove(ctx, "shop:user", seen, false)
		fmt.Println(quarantined, err)

		// A reader that needs it all the same gets it back, for 30 days. Then no group has it.
		d, err := registry.Fetch(ctx, seen.ID)
		fmt.Printf("%s %v\n", d.Bytes(), err)
		quarantined, err = registry.RemoveOrphan(ctx, seen.ID)
		fmt.Println(quarantined, err)

		err = registry.Restore(ctx, "shop:user", d, seen.Info) // for the values of a backup
		fmt.Println(err)
	}
	// Output:
	// true
	// 1 of 3 <nil>
	// true <nil>
	// the oldest dictionary <nil>
	// true <nil>
	// <nil>
}

// Two groups become one: the bytes of their dictionary stay.
func ExampleRegistry_Unlist() {
	ctx := context.Background()
	registry := newRegistry(memstore.New())
	if err := registry.SetGrace(ctx, 10*time.Millisecond); err != nil { // in a program a minute
		panic(err)
	}
	d := newDictionary(`"country":"DE","plan":"free"`)
	for _, group := range []string{"user", "shop:user"} {
		if err := registry.Publish(ctx, group, d, dict.Info{}); err != nil {
			panic(err)
		}
	}
	time.Sleep(100 * time.Millisecond) // six grace periods
	state, err := registry.State(ctx, "user")
	if err != nil {
		panic(err)
	}
	err = registry.Unlist(ctx, "user", *state.Find(d.ID()))
	fmt.Println(err)
	again, err := registry.Look(ctx, d.ID())
	fmt.Println(again.ID() == d.ID(), err)
	// Output:
	// <nil>
	// true <nil>
}

// Values in another Redis need dictionaries, too: nothing is removed without a scan of it.
func ExampleRegistry_Join() {
	ctx := context.Background()
	registry, data := newRegistry(memstore.New()), memstore.New()
	id, err := registry.Join(ctx, data, "redis-7.example.com") // a Group with GroupOptions.Data does it
	fmt.Println(err)

	servers, err := registry.Servers(ctx)
	fmt.Println(len(servers), servers[0].Name, servers[0].ID == id, err)
	scanned, err := registry.ServerID(ctx, data)
	fmt.Println(scanned == id, err)

	err = registry.Forget(ctx, id) // the server is gone for good
	fmt.Println(err)
	// Output:
	// <nil>
	// 1 redis-7.example.com true <nil>
	// true <nil>
	// <nil>
}

// A tool that packs values with a dictionary of its choice announces it. Then nobody removes the
// dictionary meanwhile.
func ExampleRegistry_Use() {
	ctx := context.Background()
	registry := newRegistry(memstore.New())
	d := newDictionary(`"country":"DE","plan":"free"`)
	if err := registry.Publish(ctx, "shop:user", d, dict.Info{}); err != nil {
		panic(err)
	}
	began := time.Now()
	grace, err := registry.Use(ctx, "shop:user", d.ID())
	fmt.Println(grace, err)
	stop := began.Add(5 * grace) // unless it calls Use again, at least once per grace period
	fmt.Println(time.Now().Before(stop))

	declared, err := registry.Grace(ctx)
	fmt.Println(declared, err)
	_, err = registry.Use(ctx, "shop:user", 0x12345678)
	fmt.Println(errors.Is(err, dict.ErrNotInGroup))
	// Output:
	// 1m0s <nil>
	// true
	// 1m0s <nil>
	// true
}

// A tool asks how far the programs with Auto are with a group that has no dictionary yet.
func ExampleRegistry_Progress() {
	p, err := newRegistry(memstore.New()).Progress(context.Background(), "shop:user")
	switch {
	case err != nil:
		panic(err)
	case p == nil:
		fmt.Println("no program with Auto follows the group")
	default:
		fmt.Println(p.Collected, "of", p.Wanted, "values, training:", p.Training)
	}
	// Output: no program with Auto follows the group
}

// The keys of a registry, for a backup or the rules of a user.
func ExampleRegistry_DataKey() {
	registry := newRegistry(memstore.New())
	fmt.Println(registry.DataKey(0), registry.GroupKey(""))
	fmt.Println(registry.DataKey(0x4ef54c4a) == dict.DefaultPrefix+"data:4ef54c4a", registry.GroupKey("shop:user"))
	// Output:
	// bale:dict:data:* bale:dict:group:*
	// true bale:dict:group:shop:user
}

// evicting is a Redis that may evict any key.
type evicting struct{ dict.Store }

func (evicting) EvictionPolicy(context.Context) (string, int64, error) {
	return "allkeys-lru", 1 << 30, nil
}

// A registry in a Redis that evicts its keys.
func ExampleRegistry_Danger() {
	registry := newRegistry(evicting{memstore.New()})
	danger, err := registry.Danger(context.Background())
	fmt.Println(strings.Contains(danger, "evicts any key"), err) // and what to do about it
	// Output:
	// true <nil>
}

// A second registry has copies of the dictionaries, for the day when the first one is lost.
func ExampleRegistryOptions_mirrors() {
	ctx := context.Background()
	first, second := memstore.New(), memstore.New()
	registry, err := dict.NewRegistry(first, dict.RegistryOptions{Mirrors: []dict.Store{second}})
	if err != nil {
		panic(err)
	}
	d := newDictionary(`"country":"DE","plan":"free"`)
	if err := registry.Publish(ctx, "shop:user", d, dict.Info{}); err != nil {
		panic(err)
	}
	if _, err := first.Delete(ctx, first.Keys()); err != nil { // FLUSHALL
		panic(err)
	}
	again, err := registry.Fetch(ctx, d.ID())
	fmt.Println(again.ID() == d.ID(), err)
	// Output:
	// true <nil>
}

// A program brings its dictionaries along, to read its values even without the registry. "bale dict
// export" writes the files.
func ExampleReadFS() {
	ctx := context.Background()
	d := newDictionary(`"country":"DE","plan":"free"`)
	state, err := json.Marshal(dict.State{
		Group: "shop:user", Current: d.ID(), Dictionaries: []dict.Entry{{ID: d.ID(), Size: len(d.Bytes())}},
	})
	if err != nil {
		panic(err)
	}
	files := fstest.MapFS{ // in a program an embed.FS
		d.ID().String() + dict.Extension: {Data: d.Bytes()},
		dict.StateFile:                   {Data: state},
	}

	bundled, err := dict.ReadFS(files)
	fmt.Println(len(bundled), err)
	exported, err := dict.ReadState(files)
	fmt.Println(exported.Group, exported.Current == d.ID(), err)

	group, err := newRegistry(memstore.New()).Open(ctx, exported.Group, dict.GroupOptions{Bundled: bundled})
	if err != nil {
		panic(err)
	}
	defer group.Close()
	compressor, err := group.Reader(ctx, frame.Zstd, d.ID()) // a Packer does this
	fmt.Println(compressor.DictionaryID() == d.ID(), err)
	// Output:
	// 1 <nil>
	// shop:user true <nil>
	// true <nil>
}

func ExampleCheckGroup() {
	for _, name := range []string{"shop:user", "shop user"} { // of a flag
		fmt.Println(errors.Is(dict.CheckGroup(name), dict.ErrInvalid))
	}
	// Output:
	// false
	// true
}
