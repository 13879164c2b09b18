package bale_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/balekv/bale"
	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/memstore"
)

// User is what the examples cache.
type User struct {
	ID   int    `json:"id"`
	Name string `json:"name"`
}

func ExampleCache() {
	ctx := context.Background()
	store := memstore.New() // a program has goredis.NewStore(rdb), or the Store of another adapter
	users, err := bale.New(store, bale.Options[User]{TTL: time.Hour, Jitter: 0.1})
	if err != nil {
		panic(err)
	}
	defer users.Close()

	err = users.Set(ctx, "user:1", User{1, "Ada"}) // for an hour, less up to a tenth of it
	fmt.Println(err)
	err = users.SetMany(ctx, map[string]User{"user:2": {2, "Grace"}, "user:3": {3, "Alan"}}, bale.TTL(time.Minute))
	fmt.Println(err)

	user, err := users.Get(ctx, "user:1")
	fmt.Println(user.Name, err)
	many, err := users.GetMany(ctx, "user:1", "user:2", "user:9")
	fmt.Println(len(many), many["user:2"].Name, err)

	deleted, err := users.Delete(ctx, "user:1", "user:9")
	fmt.Println(deleted, err)
	_, err = users.Get(ctx, "user:1")
	fmt.Println(errors.Is(err, bale.ErrNotFound))
	// Output:
	// <nil>
	// <nil>
	// Ada <nil>
	// 2 Grace <nil>
	// 1 <nil>
	// true
}

// A miss is loaded once for all callers. An absent user is remembered for a minute.
func ExampleCache_GetOrLoad() {
	ctx := context.Background()
	users, err := bale.New(memstore.New(), bale.Options[User]{
		TTL:  time.Hour,
		Load: bale.LoadOptions{NegativeTTL: time.Minute, StaleIfError: 6 * time.Hour, Lock: 3 * time.Second},
	})
	if err != nil {
		panic(err)
	}
	defer users.Close()
	load := func(id int) func(context.Context) (User, error) {
		return func(context.Context) (User, error) {
			fmt.Println("query for", id)
			if id != 1 {
				return User{}, fmt.Errorf("user %d: %w", id, bale.ErrNotFound)
			}
			return User{1, "Ada"}, nil
		}
	}
	for _, id := range []int{1, 1, 404, 404} {
		entry, err := users.GetOrLoad(ctx, fmt.Sprint("user:", id), load(id))
		fmt.Println(entry.Value.Name, entry.Absent, errors.Is(err, bale.ErrNotFound))
	}
	// Output:
	// query for 1
	// Ada false false
	// Ada false false
	// query for 404
	//  true true
	//  true true
}

// One query for all missing keys.
func ExampleCache_GetOrLoadMany() {
	ctx := context.Background()
	users, err := bale.New(memstore.New(), bale.Options[User]{TTL: time.Hour})
	if err != nil {
		panic(err)
	}
	defer users.Close()
	if err := users.Set(ctx, "user:1", User{1, "Ada"}); err != nil {
		panic(err)
	}
	keys := []string{"user:1", "user:2", "user:3", "user:404"}
	found, err := users.GetOrLoadMany(ctx, keys, func(_ context.Context, missing []string) (map[string]User, error) {
		slices.Sort(missing)
		fmt.Println("query for", missing)
		return map[string]User{"user:2": {2, "Grace"}, "user:3": {3, "Alan"}}, nil
	})
	for _, key := range slices.Sorted(maps.Keys(found)) {
		fmt.Println(key, found[key].Value.Name)
	}
	fmt.Println(err)
	// Output:
	// query for [user:2 user:3 user:404]
	// user:1 Ada
	// user:2 Grace
	// user:3 Alan
	// <nil>
}

// A response may be cached downstream as long as the value behind it.
func ExampleCache_GetEntry() {
	ctx := context.Background()
	users, err := bale.New(memstore.New(), bale.Options[User]{TTL: time.Hour})
	if err != nil {
		panic(err)
	}
	midnight := time.Now().Add(24 * time.Hour).Truncate(24 * time.Hour)
	err = errors.Join(
		users.Set(ctx, "user:1", User{1, "Ada"}),
		users.Set(ctx, "user:2", User{2, "Grace"}, bale.NoExpiry()),
		users.Set(ctx, "user:3", User{3, "Alan"}),
		users.Touch(ctx, "user:3", bale.ExpireAt(midnight)),
	)
	fmt.Println(err)

	entry, err := users.GetEntry(ctx, "user:1")
	maxAge := time.Until(entry.Expires)
	fmt.Println(entry.Value.Name, maxAge > 50*time.Minute && maxAge <= time.Hour, err)

	entries, err := users.GetEntries(ctx, "user:2", "user:3")
	fmt.Println(entries["user:2"].Expires.IsZero(), entries["user:3"].Expires.Sub(midnight).Abs() < time.Minute, err)

	expires := users.Expires(ctx, "user:1", "user:2") // without reading the values
	fmt.Println(time.Now().Before(expires[0]), expires[1].IsZero())
	// Output:
	// <nil>
	// Ada true <nil>
	// true true <nil>
	// true true
}

// A caller that cannot wait takes the old value while the load of another caller goes on.
func ExampleCache_Old() {
	ctx := context.Background()
	users, err := bale.New(memstore.New(), bale.Options[User]{
		TTL:  time.Millisecond,
		Load: bale.LoadOptions{StaleIfError: time.Hour},
	})
	if err != nil {
		panic(err)
	}
	defer users.Close()
	if _, err := users.GetOrLoad(ctx, "user:1", func(context.Context) (User, error) { return User{1, "Ada"}, nil }); err != nil {
		panic(err)
	}
	time.Sleep(10 * time.Millisecond) // the value expires

	loading, finish, done := make(chan bool), make(chan bool), make(chan bool)
	go func() {
		defer close(done)
		_, err := users.GetOrLoad(ctx, "user:1", func(context.Context) (User, error) {
			close(loading)
			<-finish // a slow database
			return User{1, "Ada Lovelace"}, nil
		})
		fmt.Println("the patient caller:", err)
	}()
	<-loading
	entry, ok := users.Old("user:1")
	fmt.Println(entry.Value.Name, entry.Stale, ok)
	close(finish)
	<-done
	// Output:
	// Ada true true
	// the patient caller: <nil>
}

// tenant is a Store that keeps the keys of a tenant apart. The real one has all methods: here the
// others go to the Store below, with the keys as they are.
type tenant struct {
	bale.Store
	prefix string
}

func (t tenant) Get(ctx context.Context, key string) ([]byte, error) {
	return t.Store.Get(ctx, t.prefix+key)
}

func (t tenant) Set(ctx context.Context, key string, value []byte, e bale.Expiry) error {
	return t.SetMany(ctx, []bale.Item{{Key: key, Value: value, Expiry: e}})
}

func (t tenant) SetMany(ctx context.Context, items []bale.Item) error {
	items = slices.Clone(items)
	for i := range items {
		items[i].Key = t.prefix + items[i].Key
	}
	return t.Store.SetMany(ctx, items)
}

// A Store can wrap another one.
func ExampleStore() {
	ctx := context.Background()
	store := memstore.New()
	users, err := bale.New(tenant{store, "acme:"}, bale.Options[User]{})
	if err != nil {
		panic(err)
	}
	err = users.Set(ctx, "user:1", User{1, "Ada"})
	fmt.Println(err)
	value, err := store.Get(ctx, "acme:user:1")
	fmt.Println(string(value), err)
	// Output:
	// <nil>
	// {"id":1,"name":"Ada"} <nil>
}

// A Store of your own writes an expiry as Redis takes it.
func ExampleExpiry_Millis() {
	set := func(e bale.Expiry) []any {
		args := []any{"SET", "key", "value"}
		switch ms, absolute := e.Millis(); {
		case absolute:
			args = append(args, "PXAT", ms)
		case ms > 0:
			args = append(args, "PX", ms)
		}
		return args
	}
	fmt.Println(set(bale.TTL(90 * time.Second))...)
	fmt.Println(set(bale.ExpireAt(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)))...)
	fmt.Println(set(bale.NoExpiry())...)
	fmt.Println(bale.TTL(60).Validate()) // a number without its unit
	// Output:
	// SET key value PX 90000
	// SET key value PXAT 1893456000000
	// SET key value
	// invalid argument: expiry in 60ns, must be at least 1ms
}

// Keys that failed, and why.
func ExampleKeyErrors() {
	ctx := context.Background()
	store := memstore.New()
	users, err := bale.New(store, bale.Options[User]{})
	if err != nil {
		panic(err)
	}
	err = users.SetMany(ctx, map[string]User{"user:1": {1, "Ada"}, "user:2": {2, strings.Repeat("Grace ", 20)}})
	if err != nil {
		panic(err)
	}
	damaged, err := store.Get(ctx, "user:2")
	if err != nil {
		panic(err)
	}
	damaged[len(damaged)-1] ^= 1
	if err := store.Set(ctx, "user:2", damaged, bale.NoExpiry()); err != nil {
		panic(err)
	}

	found, err := users.GetMany(ctx, "user:1", "user:2")
	fmt.Println(len(found), "found; class", bale.ErrorClass(err))
	if failed, ok := errors.AsType[bale.KeyErrors](err); ok {
		for _, e := range failed { // each is a *bale.KeyError
			decode, _ := errors.AsType[*bale.DecodeError](e)
			fmt.Println(e.Op, e.Key, decode.Algorithm, errors.Is(e, bale.ErrCorrupt))
		}
	}
	// Output:
	// 1 found; class corrupt
	// get user:2 zstd true
}

func ExamplePacker() {
	packer, err := bale.NewPacker(bale.PackerOptions{})
	if err != nil {
		panic(err)
	}
	defer packer.Close()
	value := []byte(strings.Repeat("the same again, ", 50))
	packed, err := packer.Pack(nil, value)
	if err != nil {
		panic(err)
	}
	unpacked, err := packer.Unpack(context.Background(), nil, packed)
	fmt.Println(len(value), len(packed) < 60, string(unpacked) == string(value), err)

	number, err := packer.Pack(nil, []byte("42"))
	fmt.Println(string(number), err)
	// Output:
	// 800 true true <nil>
	// 42 <nil>
}

// A Packer writes with one setting and reads every algorithm.
func ExamplePackerOptions() {
	compressor, err := compress.Setting{Algorithm: frame.S2, Level: "better"}.New(nil)
	if err != nil {
		panic(err)
	}
	writer, err := bale.NewPacker(bale.PackerOptions{Compressors: &compress.Set{Write: compressor}})
	if err != nil {
		panic(err)
	}
	packed, err := writer.Pack(nil, []byte(strings.Repeat("the same again, ", 50)))
	if err != nil {
		panic(err)
	}
	header, _, isFrame := frame.Parse(packed)
	fmt.Println(isFrame, header.Algorithm, header.Length)

	reader, err := bale.NewPacker(bale.PackerOptions{})
	if err != nil {
		panic(err)
	}
	value, err := reader.Unpack(context.Background(), nil, packed)
	fmt.Println(len(value), err)
	// Output:
	// true s2 800
	// 800 <nil>
}

// A probe goes the way of a value, and dict.Auto does not take it for one.
func ExamplePacker_Unobserved() {
	seen := &counting{}
	packer, err := bale.NewPacker(bale.PackerOptions{Compressors: seen})
	if err != nil {
		panic(err)
	}
	probe := []byte(strings.Repeat("the same again, ", 50))
	for _, p := range []*bale.Packer{packer, packer.Unobserved()} {
		packed, err := p.Pack(nil, probe)
		fmt.Println(len(packed) < len(probe), seen.values, err)
	}
	// Output:
	// true 1 <nil>
	// true 1 <nil>
}

// counting is a set of compressors that counts the values it hears of.
type counting struct {
	compress.Set
	values int
}

func (c *counting) Packed(plain []byte, stored int) { c.values++ }

// A proxy that only unpacks must keep an upload that is itself a frame apart from packed values.
func ExamplePacker_Escape() {
	packer, err := bale.NewPacker(bale.PackerOptions{})
	if err != nil {
		panic(err)
	}
	defer packer.Close()
	upload, err := packer.Pack(nil, []byte(strings.Repeat("a value of somebody else, ", 10)))
	if err != nil {
		panic(err)
	}
	for _, value := range []string{"plain text", string(upload)} {
		stored, err := packer.Escape(nil, []byte(value))
		if err != nil {
			panic(err)
		}
		got, err := packer.Unpack(context.Background(), nil, stored)
		fmt.Println(len(stored)-len(value), string(got) == value, err)
	}
	// Output:
	// 0 true <nil>
	// 10 true <nil>
}

// A program that reads many values at once, without a Cache, bounds what they decode to.
func ExamplePacker_Batch() {
	packer, err := bale.NewPacker(bale.PackerOptions{MaxSize: 1 << 20, Budget: 2 << 20})
	if err != nil {
		panic(err)
	}
	defer packer.Close()
	stored, err := packer.Pack(nil, make([]byte, 1<<20)) // 1 MiB of zeros in a few bytes
	if err != nil {
		panic(err)
	}
	batch := packer.Batch()
	for range 3 { // the replies of one MGET
		value, err := batch.Unpack(context.Background(), nil, stored)
		fmt.Println(len(value), errors.Is(err, bale.ErrBudget))
	}
	// Output:
	// 1048576 false
	// 1048576 false
	// 0 true
}

// A buffer with room for every value is made once.
func ExampleMaxPackedLen() {
	packer, err := bale.NewPacker(bale.PackerOptions{})
	if err != nil {
		panic(err)
	}
	defer packer.Close()
	const longest = 4096
	buffer := make([]byte, 0, bale.MaxPackedLen(longest))
	for _, value := range []string{"42", strings.Repeat("the same again, ", 256)} {
		packed, err := packer.Pack(buffer[:0], []byte(value))
		fmt.Println(len(packed) < 60, &packed[:1][0] == &buffer[:1][0], err)
	}
	// Output:
	// true true <nil>
	// true true <nil>
}

// measured counts what the compressors of another source save.
type measured struct {
	bale.Compressors
	plain, stored int // atomic, in a program with more than one goroutine
}

func (m *measured) Packed(plain []byte, stored int) {
	m.plain += len(plain)
	m.stored += stored
}

// Compressors of your own can choose, count and switch: a Packer asks them for each value.
func ExampleCompressors() {
	var set compress.Set // or a *dict.Group
	defer set.Close()    // after the Packer
	compressors := &measured{Compressors: &set}
	packer, err := bale.NewPacker(bale.PackerOptions{Compressors: compressors})
	if err != nil {
		panic(err)
	}
	defer packer.Close()
	for range 3 {
		if _, err := packer.Pack(nil, []byte(strings.Repeat("the same again, ", 50))); err != nil {
			panic(err)
		}
	}
	fmt.Println(compressors.Writer().Algorithm(), compressors.plain, compressors.stored < 200)
	// Output:
	// zstd 2400 true
}
