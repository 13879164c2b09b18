package migrate

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/fleet"
	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/cmd/internal/page"
	"github.com/balekv/bale/cmd/internal/registry"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/redisproc"
)

// moverRules are those that docs/scale.md gives.
const moverRules = "on >secret ~* &bale:dict:* +@read +@write +@connection +@scripting +@transaction +info +time +publish +wait +cluster|slots +cluster|info +cluster|nodes +cluster|getkeysinslot"

// TestForgedReasons: reasons that there are not, as in a forged state of a unit, are not kept.
func TestForgedReasons(t *testing.T) {
	all := newCounts()
	all.merge(&Counts{Left: map[Reason]keyspace.Tally{"x1": {Values: 1}, "": {Values: 1}, Number: {Values: 2}}})
	if len(all.Left) != 1 || all.Left[Number].Values != 2 {
		t.Errorf("%v", all.Left)
	}
	for _, r := range leftReasons { // that are merged
		all.merge(&Counts{Left: map[Reason]keyspace.Tally{r.reason: {Values: 1}}})
	}
	if len(all.Left) != len(leftReasons) {
		t.Errorf("%d of %d reasons", len(all.Left), len(leftReasons))
	}
}

// TestShare: workers share a run on a single server and a cluster, as a user with the rights that
// are documented. Each reports what all have done, one that comes later, too.
func TestShare(t *testing.T) {
	guide, err := os.ReadFile("../../../docs/scale.md")
	must(t, err)
	if !strings.Contains(string(guide), moverRules) {
		t.Errorf("docs/scale.md does not say: %s", moverRules)
	}
	for name, servers := range map[string][]*redisproc.Server{"single": {redisproc.ForTest(t)}, "cluster": redisproc.ClusterForTest(t, 3).Servers} {
		for _, s := range servers {
			_, err := s.Do(t.Context(), append([]string{"ACL", "SETUSER", "mover"}, strings.Fields(moverRules)...)...)
			must(t, err)
		}
		url := strings.Replace(servers[0].URL(), "redis://", "redis://mover:secret@", 1)
		c := open(t, servers[0].Addr())
		const n = 2000
		_, err := c.Pipelined(t.Context(), func(p redis.Pipeliner) error {
			for i := range n {
				p.Set(t.Context(), fmt.Sprint("user:", i), text(i)+strings.Repeat("x", 100), 0)
			}
			return nil
		})
		must(t, err)
		work := func(name string, change func(*Options)) (*Result, string, error) {
			var notes bytes.Buffer
			streams := &cli.Streams{Out: &notes, Err: &notes}
			o := Options{
				Settings: Settings{Match: []string{"user:*"}}, Run: fleet.Part{Name: name}, Plan: page.NewSheet(&notes, 100),
				Registry: registry.Options{Streams: streams, Data: []string{url}, Prefix: dict.DefaultPrefix},
			}
			if change != nil {
				change(&o)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			r, err := Run(ctx, o)
			return r, notes.String(), err
		}
		var group sync.WaitGroup
		for range 3 {
			group.Go(func() {
				r, notes, err := work("all", nil)
				if err != nil || r.Changed() != n || r.Keys != n || !r.Complete {
					t.Errorf("%s: %v, %+v\n%s", name, err, r, notes)
				}
			})
		}
		group.Wait()
		ended, _, err := work("all", nil)
		must(t, err)
		must(t, c.Set(t.Context(), "other", strings.Repeat("x", 4<<20), 0).Err())
		if r, notes, err := work("all", nil); err != nil || r.Changed() != n || r.UsedMemoryAfter != ended.UsedMemoryAfter { // late
			t.Errorf("%s: %v, %+v\n%s", name, err, r, notes)
		}
		for i := range n {
			if _, _, ok := frame.Parse([]byte(c.Get(t.Context(), fmt.Sprint("user:", i)).Val())); !ok {
				t.Fatalf("%s: user:%d is not packed", name, i)
			}
		}
		if _, _, err := work("all", func(o *Options) { o.Revert = true }); err == nil || !strings.Contains(err.Error(), "other settings") {
			t.Errorf("%s: %v", name, err)
		}
		for range 2 {
			_, notes, err := work("trained", func(o *Options) { o.Dict, o.Group, o.Repack, o.Force = Auto, "user", true, true })
			if err != nil || strings.Count(notes, "PACKS the values of") != 1 || !strings.Contains(notes, "Every program that reads them must unpack by now") {
				t.Errorf("%s: %v\n%s", name, err, notes)
			}
		}
		if r, notes, err := work("back", func(o *Options) { o.Revert = true }); err != nil || r.Changed() != n {
			t.Errorf("%s: %v, %+v\n%s", name, err, r, notes)
		}
	}
}
