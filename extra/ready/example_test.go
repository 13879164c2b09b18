package ready_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"sync/atomic"
	"time"

	"github.com/balekv/bale"
	"github.com/balekv/bale/extra/ready"
	"github.com/balekv/bale/internal/memstore"
)

// The handler of an orchestrator's probe, and what it says when something breaks.
func Example() {
	packer, err := bale.NewPacker(bale.PackerOptions{})
	if err != nil {
		panic(err)
	}
	defer packer.Close()
	var broken atomic.Bool
	readiness, err := ready.New(ready.Options{
		Store:    memstore.New(), // a program has goredis.NewStore(rdb), or the Store of another adapter
		Packer:   packer,
		Interval: 10 * time.Millisecond, // in a program some seconds
		Checks: map[string]func(context.Context) error{
			"database": func(context.Context) error {
				if broken.Load() {
					return errors.New("no connection")
				}
				return nil
			},
		},
	})
	if err != nil {
		panic(err)
	}
	defer readiness.Close()
	probe := func() int { // mux.Handle("GET /ready", readiness)
		w := httptest.NewRecorder()
		readiness.ServeHTTP(w, httptest.NewRequest("GET", "/ready", nil))
		return w.Code
	}

	err = readiness.Wait(context.Background())
	fmt.Println(probe(), err)
	for _, check := range readiness.Status().Checks {
		fmt.Println(check.Name, check.OK)
	}

	broken.Store(true)
	for readiness.Status().State != ready.Tripped { // after three failures in a row
		time.Sleep(time.Millisecond)
	}
	fmt.Println(probe(), readiness.Status().Reason)
	// Output:
	// 200 <nil>
	// dictionaries true
	// contexts true
	// connections true
	// probe true
	// database true
	// 503 database: no connection
}
