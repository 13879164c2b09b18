package near_test

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/balekv/bale"
	"github.com/balekv/bale/extra/near"
	"github.com/balekv/bale/internal/memstore"
)

type User struct {
	ID    int
	Name  string
	Roles []string
}

// Clone is the copy that a caller may change.
func (u User) Clone() User {
	u.Roles = slices.Clone(u.Roles)
	return u
}

// newUsers is a Cache over a Store in memory. A program has rueidis.NewStore(client,
// rueidis.StoreOptions{}), or the Store of another adapter.
func newUsers() *bale.Cache[User] {
	users, err := bale.New(memstore.New(), bale.Options[User]{TTL: time.Hour})
	if err != nil {
		panic(err)
	}
	return users
}

// Users are kept in the process, 256 MiB of them at most.
func Example() {
	ctx := context.Background()
	users := newUsers()
	defer users.Close()
	nearUsers, err := near.New(users, near.Options[User]{
		MaxBytes: 256 << 20,
		MaxAge:   time.Minute,
		Clone:    User.Clone, // without it all callers share one value
	})
	if err != nil {
		panic(err)
	}
	defer nearUsers.Close()
	if err := nearUsers.Set(ctx, "shop:user:1", User{ID: 1, Name: "Ada"}); err != nil {
		panic(err)
	}
	for range 3 { // from Redis, and then from here
		user, err := nearUsers.Get(ctx, "shop:user:1")
		fmt.Println(user.Name, err)
	}
	stats := nearUsers.Stats()
	fmt.Println(stats.Hits, stats.Misses, stats.Entries)
	// Output:
	// Ada <nil>
	// Ada <nil>
	// Ada <nil>
	// 2 1 1
}

// Invalidations drop a value at once when anybody changes it.
func ExampleInvalidations() {
	ctx := context.Background()
	users := newUsers()
	defer users.Close()
	keys := make(chan string)
	var changes near.Invalidations = feed{keys} // or rueidis.NewInvalidations(client, rueidis.InvalidationsOptions{})
	nearUsers, err := near.New(users, near.Options[User]{Invalidations: changes})
	if err != nil {
		panic(err)
	}
	defer nearUsers.Close()
	for _, name := range []string{"Ada", "Ada Lovelace"} {
		if err := users.Set(ctx, "shop:user:1", User{ID: 1, Name: name}); err != nil { // by another program
			panic(err)
		}
		keys <- "shop:user:1"
		keys <- "shop:user:2" // received after the first one has been dropped
		user, err := nearUsers.Get(ctx, "shop:user:1")
		fmt.Println(user.Name, err)
	}
	// Output:
	// Ada <nil>
	// Ada Lovelace <nil>
}

// feed is Invalidations from a queue of changes.
type feed struct{ keys chan string }

func (f feed) Covers(string) bool { return true }

func (f feed) Listen(ctx context.Context, changed func(keys []string)) error {
	changed(nil) // it may have missed some
	for {
		select {
		case key := <-f.keys:
			changed([]string{key})
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// All callers of the process share a load.
func ExampleCache_GetOrLoad() {
	ctx := context.Background()
	users := newUsers()
	defer users.Close()
	nearUsers, err := near.New(users, near.Options[User]{MaxAge: time.Minute})
	if err != nil {
		panic(err)
	}
	defer nearUsers.Close()
	for range 2 {
		entry, err := nearUsers.GetOrLoad(ctx, "shop:user:1", func(context.Context) (User, error) {
			fmt.Println("query")
			return User{ID: 1, Name: "Ada"}, nil
		})
		fmt.Println(entry.Value.Name, err)
	}
	keys := []string{"shop:user:1", "shop:user:2"}
	many, err := nearUsers.GetOrLoadMany(ctx, keys, func(_ context.Context, missing []string) (map[string]User, error) {
		fmt.Println("query for", missing)
		return map[string]User{"shop:user:2": {ID: 2, Name: "Grace"}}, nil
	})
	fmt.Println(len(many), err)
	// Output:
	// query
	// Ada <nil>
	// Ada <nil>
	// query for [shop:user:2]
	// 2 <nil>
}

// Writes go through the Cache, so that it sees them at once.
func ExampleCache_SetMany() {
	ctx := context.Background()
	users := newUsers()
	defer users.Close()
	nearUsers, err := near.New(users, near.Options[User]{MaxAge: time.Minute})
	if err != nil {
		panic(err)
	}
	defer nearUsers.Close()
	err = nearUsers.SetMany(ctx, map[string]User{"shop:user:1": {ID: 1, Name: "Ada"}, "shop:user:2": {ID: 2, Name: "Grace"}})
	fmt.Println(err)
	err = nearUsers.Touch(ctx, "shop:user:1", bale.TTL(2*time.Hour))
	fmt.Println(err)
	deleted, err := nearUsers.Delete(ctx, "shop:user:2")
	fmt.Println(deleted, err)
	found, err := nearUsers.GetMany(ctx, "shop:user:1", "shop:user:2")
	fmt.Println(len(found), found["shop:user:1"].Name, err)
	// Output:
	// <nil>
	// <nil>
	// 1 <nil>
	// 1 Ada <nil>
}
