package dictops

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/balekv/bale/adapter/goredis"
	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/cmd/internal/registry"
	"github.com/balekv/bale/cmd/internal/report"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
	"github.com/redis/go-redis/v9"
)

// inventory looks at all that the registry has, and changes nothing. The group, if one is given,
// must be there.
func inventory(ctx context.Context, r *registry.Registry, group string) (in report.Inventory, err error) {
	in = report.Inventory{Prefix: r.Prefix, Sound: map[frame.DictionaryID]bool{}, Quarantined: map[frame.DictionaryID]time.Time{}}
	names, err := r.Groups(ctx)
	listed := !errors.Is(err, dict.ErrCorrupt)
	if err != nil && listed {
		return in, err
	}
	if !listed { // the keys below name the groups, too
		in.Unreadable = append(in.Unreadable, report.UnreadableGroup{Cause: cli.Told(err)})
	}
	looked := map[string]bool{}
	state := func(name string) error {
		if looked[name] {
			return nil
		}
		looked[name] = true
		switch st, err := r.State(ctx, name); {
		case errors.Is(err, dict.ErrInvalid), errors.Is(err, dict.ErrCorrupt):
			in.Unreadable = append(in.Unreadable, report.UnreadableGroup{Name: name, Cause: cli.Told(err)})
		case err != nil:
			return err
		default:
			in.Groups = append(in.Groups, st)
		}
		return nil
	}
	for _, name := range names {
		if err := state(name); err != nil {
			return in, err
		}
	}
	if group != "" && !slices.ContainsFunc(in.Groups, func(st *dict.State) bool { return st.Group == group }) {
		looked[group] = true
		unlisted, err := r.States(ctx, group)
		if err != nil {
			return in, err
		}
		in.Groups = append(in.Groups, unlisted...)
	}
	store := goredis.NewDictStore(r.Keys)
	return in, walk(ctx, r, r.Prefix, func(name string) error {
		kind, name, _ := strings.Cut(name, ":")
		if kind == "group" && !listed {
			return state(name)
		}
		id, err := frame.ParseDictionaryID(name)
		switch {
		case err != nil || id == 0:
			return nil
		case kind == "quarantine":
			until, err := r.QuarantinedUntil(ctx, id)
			if !until.IsZero() {
				in.Quarantined[id] = until
			}
			return err
		case kind != "data":
			return nil
		}
		values, err := store.Get(ctx, r.DataKey(id))
		if err != nil || values[0] == nil { // gone meanwhile
			return err
		}
		d, err := dict.New(values[0])
		in.Sound[id] = err == nil && d.ID() == id
		return nil
	})
}

// registryPace bounds only what does harm: the keys of the registry are few, and the walk to them
// goes over all keys.
var registryPace = keyspace.Pace{Bandwidth: 20 << 20}

// walk calls each for the rest of every key of the registry that starts with a prefix.
func walk(ctx context.Context, r *registry.Registry, prefix string, each func(rest string) error) error {
	return keyspace.Walk(ctx, r.Keys, escapePattern(prefix)+"*", "string", registryPace, func(_ context.Context, _ *redis.Client, keys []string) (int, keyspace.Next, error) {
		for _, k := range keys {
			if err := each(strings.TrimPrefix(k, prefix)); err != nil {
				return 0, keyspace.Stop, err
			}
		}
		return 0, keyspace.More, nil
	})
}

// escapePattern makes a pattern that matches a text alone.
func escapePattern(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(text)
}
