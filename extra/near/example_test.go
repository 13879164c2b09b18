package near_test

import (
	"context"
	"fmt"
	"slices"
	"time"

	rueidisclient "github.com/redis/rueidis"

	"github.com/balekv/bale"
	"github.com/balekv/bale/adapter/rueidis"
	"github.com/balekv/bale/extra/near"
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

// Users are kept in the process, 256 MiB of them at most, until Redis says that they have changed.
func Example() {
	if err := run(context.Background()); err != nil {
		fmt.Println(err)
	}
}

func run(ctx context.Context) error {
	client, err := rueidisclient.NewClient(rueidisclient.ClientOption{InitAddress: []string{"localhost:6379"}})
	if err != nil {
		return err
	}
	defer client.Close()
	users, err := bale.New(rueidis.NewStore(client, rueidis.StoreOptions{}), bale.Options[User]{TTL: time.Hour})
	if err != nil {
		return err
	}
	changes, err := rueidis.NewInvalidations(client, rueidis.InvalidationsOptions{Prefixes: []string{"shop:user:"}})
	if err != nil {
		return err
	}
	nearUsers, err := near.New(users, near.Options[User]{
		MaxBytes:      256 << 20,
		Clone:         User.Clone, // without it all callers share one value
		Invalidations: changes,
	})
	if err != nil {
		return err
	}
	defer nearUsers.Close()

	user, err := nearUsers.Get(ctx, "shop:user:1") // from Redis
	if err != nil {
		return err
	}
	user, err = nearUsers.Get(ctx, "shop:user:1") // from here
	if err != nil {
		return err
	}
	fmt.Println(user.Name)
	return nil
}
