package lab

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"

	"github.com/google/pprof/profile"

	"github.com/balekv/bale/cmd/internal/flame"
	"github.com/balekv/bale/cmd/internal/outcome"
	"github.com/balekv/bale/cmd/internal/outfile"
)

// ProfileKinds are the kinds of profiles that can be taken.
var ProfileKinds = []string{"cpu", "heap", "mutex", "block"}

// lookups are the names that the runtime has for those that count from the program's start.
var lookups = map[string]string{"heap": "allocs", "mutex": "mutex", "block": "block"}

const (
	mutexFraction = 10     // one of so many waits for a lock is sampled,
	blockRate     = 10_000 // and a wait for each so many ns
)

// sampling has the runtime take the samples that profiles of some kinds need, until the function
// that it returns is called.
func sampling(kinds []string) (stop func()) {
	if slices.Contains(kinds, "mutex") {
		runtime.SetMutexProfileFraction(mutexFraction)
	}
	if slices.Contains(kinds, "block") {
		runtime.SetBlockProfileRate(blockRate)
	}
	return func() {
		runtime.SetMutexProfileFraction(0)
		runtime.SetBlockProfileRate(0)
	}
}

// startProfiles begins a round's profiles; stop ends them and adds them to the cell's.
func (c *cell) startProfiles(kinds []string) (stop func() error, err error) {
	if len(kinds) == 0 {
		return func() error { return nil }, nil
	}
	before := map[string]*profile.Profile{}
	for kind, name := range lookups {
		if slices.Contains(kinds, kind) {
			if before[kind], err = lookup(name); err != nil {
				return nil, err
			}
		}
	}
	var cpu bytes.Buffer
	if slices.Contains(kinds, "cpu") {
		if err := pprof.StartCPUProfile(&cpu); err != nil {
			return nil, fmt.Errorf("profile: %w", err)
		}
	}
	return func() error {
		add := func(kind string, p *profile.Profile, err error) error {
			if err == nil {
				c.profiles[kind], err = merged(c.profiles[kind], p)
			}
			return err
		}
		if c.profiles == nil {
			c.profiles = map[string]*profile.Profile{}
		}
		var errs error
		if slices.Contains(kinds, "cpu") {
			pprof.StopCPUProfile()
			p, err := profile.Parse(&cpu)
			errs = errors.Join(errs, add("cpu", p, err))
		}
		for kind, was := range before {
			now, err := lookup(lookups[kind])
			if err == nil {
				now, err = flame.Difference(was, now)
			}
			errs = errors.Join(errs, add(kind, now, err))
		}
		if errs != nil {
			return fmt.Errorf("profile: %w", errs)
		}
		return nil
	}, nil
}

// lookup reads a profile of the runtime. That of the heap is as old as the last garbage collection,
// so there is one first.
func lookup(name string) (*profile.Profile, error) {
	runtime.GC()
	var b bytes.Buffer
	if err := pprof.Lookup(name).WriteTo(&b, 0); err != nil {
		return nil, err
	}
	return profile.Parse(&b)
}

func merged(sum, p *profile.Profile) (*profile.Profile, error) {
	if sum == nil {
		return p, nil
	}
	return flame.Merge(sum, p)
}

// treeNodes is the number of nodes that all flame graphs of a run share. It bounds their bytes on a
// page.
const (
	treeNodes = 15_000
	leastTree = 30
	mostTree  = 200
)

// addProfiles adds the profiles of the cells to a result.
func (r *run) addProfiles(result *outcome.Run) error {
	if len(r.Profiles) == 0 {
		return nil
	}
	places := map[outcome.Identity]int{}
	for i, c := range result.Cells {
		places[c.Identity] = i
	}
	for _, c := range r.cells {
		if i, there := places[c.identity()]; there {
			var err error
			if result.Cells[i].Profiles, err = r.profilesOf(c); err != nil {
				return err
			}
		}
	}
	return nil
}

// profilesOf makes the flame graphs of a cell, and writes its profiles to files if there is a
// folder for them.
func (r *run) profilesOf(c *cell) (map[string]outcome.Profile, error) {
	if len(c.profiles) == 0 {
		return nil, nil
	}
	nodes := min(mostTree, max(leastTree, treeNodes/(len(r.cells)*len(r.Profiles))))
	all := map[string]outcome.Profile{}
	for kind, p := range c.profiles {
		tree, err := flame.New(p, flame.Options{Kind: kind, MaxNodes: nodes})
		if err != nil {
			return nil, err
		}
		found := outcome.Profile{Tree: tree, Shares: map[string]float64{}}
		for _, s := range p.Sample {
			found.Samples += s.Value[0]
		}
		for _, category := range flame.Categories() {
			found.Shares[category.String()] = tree.Shares[category]
		}
		if r.ProfileDir != "" {
			found.File = filepath.Join(r.ProfileDir, fileName(c.identity(), kind))
			if err := writeProfile(found.File, p); err != nil {
				return nil, err
			}
		}
		all[kind] = found
	}
	return all, nil
}

var unfit = regexp.MustCompile(`[^A-Za-z0-9._+=@-]+`)

// fileName names a profile by all that tells its cell from others.
func fileName(i outcome.Identity, kind string) string {
	parts := []string{i.Dataset, i.Track, i.Codec, i.Compress, i.Client, i.Server, i.Batch, fmt.Sprintf("%dcallers", i.Concurrency)}
	if i.Rate > 0 {
		parts = append(parts, fmt.Sprintf("%gops", i.Rate))
	}
	parts = slices.DeleteFunc(parts, func(p string) bool { return p == "" })
	return unfit.ReplaceAllString(strings.Join(parts, "-"), "_") + "." + kind + ".pprof"
}

func writeProfile(path string, p *profile.Profile) error {
	f, err := outfile.Open(path)
	if err != nil {
		return err
	}
	return f.Close(p.Write(f))
}
