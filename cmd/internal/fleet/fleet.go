// Package fleet shares a job among workers on any number of machines: its units, how far each is,
// and who works on it are one hash of a Redis. [Join] makes or joins a run, [Run.Work] takes units
// until all are done.
//
// A worker holds a unit by a lease, which it renews. One that dies loses it, and another goes on
// from the state that was saved. Each lease has a token of its own, and a state is saved only with
// the latest token. So a worker that comes back late gets an error, and saves nothing. Its work on
// the data must be harmless when it is done twice. Times are those of the server.
package fleet

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale/cmd/internal/keyspace"
)

// MaxUnits is the largest number of units of a run.
const MaxUnits = 4096

// UnitsOf is into how many units a cluster of some shards is divided. Each has 16 slots. With more
// than 256 shards it has 4: so each shard has some units, and one that is slow shows early.
func UnitsOf(shards int) int {
	if shards > MaxUnits/16 {
		return MaxUnits
	}
	return MaxUnits / 4
}

const (
	lease     = 15 * time.Second // that a dead worker keeps a unit
	renewals  = 3                // in a lease
	keepEnded = 7 * 24 * time.Hour
	maxName   = 100

	// largestField is of a job and of a state, in bytes. They have a few KiB. A lease has some fifty
	// bytes, and a worker's name.
	largestField = 1 << 20
	largestLease = 1 << 10

	mostRuns = 10_000 // that are listed

	statesAtOnce = 4 << 20 // bytes of states that are read at a time

	layout = 1
)

// States of a run.
const (
	Running = "running"
	Paused  = "paused"
	Aborted = "aborted"
	Done    = "done" // as it is shown: all units are
)

var (
	// ErrAborted: the run was aborted.
	ErrAborted = errors.New("the run was aborted: start again under another --run NAME")
	// ErrDone: the run is done, and nothing changes that.
	ErrDone = errors.New("the run is done")
	// ErrUnknown: there is no such run, or no longer.
	ErrUnknown = errors.New("there is no such run")
	// ErrOther: the run has other settings than the worker.
	ErrOther = errors.New("the run has other settings")

	errFenced = errors.New("another worker has the unit by now")
	errPaused = errors.New("the run is paused")
)

var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// CheckName reports a name that a run cannot have.
func CheckName(name string) error {
	if len(name) > maxName || !nameForm.MatchString(name) {
		return fmt.Errorf("%.*q: a run's name has 1 to %d letters, digits, dots, dashes and underscores",
			maxName, name, maxName)
	}
	return nil
}

// Part is how a worker takes part in a run.
type Part struct {
	Name string // of the run; empty for none
	Rate int    // keys and elements a second of all workers; 0 for what each may look at
}

// Validate names the flags that are wrong.
func (p Part) Validate() error {
	switch {
	case p.Rate < 0:
		return fmt.Errorf("--run-rate %d, must not be negative", p.Rate)
	case p.Name == "" && p.Rate > 0:
		return errors.New("--run-rate is for --run; --max-rate bounds a process")
	case p.Name == "":
		return nil
	}
	if err := CheckName(p.Name); err != nil {
		return fmt.Errorf("--run: %w", err)
	}
	return nil
}

// Job is what all workers of a run agree on.
type Job struct {
	Layout   int             `json:"layout"`
	Command  string          `json:"command"`
	Settings json.RawMessage `json:"settings"`
	Units    int             `json:"units"`
	Started  time.Time       `json:"started"`
}

// Run is a job that is shared. It is for one worker, and its methods for one goroutine at a time.
type Run struct {
	Job
	Name   string
	Worker string // its name, for people

	client redis.UniversalClient
	key    string
	took   time.Duration // once it is done
}

// Seconds is how long the run took, or takes so far.
func (r *Run) Seconds() float64 {
	if r.took > 0 {
		return r.took.Seconds()
	}
	return max(0, time.Since(r.Started).Seconds())
}

// key is the hash of a run. The prefix is that of the registry of dictionaries.
func key(prefix, name string) string { return prefix + "run:" + name }

// index has the names of all runs.
func index(prefix string) string { return prefix + "runs" }

// Join makes the run of a name, or joins it if there is one, with the units that it has. It is
// ErrOther if that has another command or other settings, which must be the same bytes.
func Join(ctx context.Context, client redis.UniversalClient, prefix, name string, job Job) (*Run, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	if job.Units < 1 || job.Units > MaxUnits {
		return nil, fmt.Errorf("%d units, must be 1 to %d", job.Units, MaxUnits)
	}
	job.Layout, job.Started = layout, time.Now().UTC()
	text, err := json.Marshal(job)
	if err != nil {
		return nil, err
	}
	if err := makeScript.Run(ctx, client, []string{key(prefix, name)}, text).Err(); err != nil {
		return nil, err
	}
	// After the hash: List removes names without one.
	if err := client.HSet(ctx, index(prefix), name, job.Command).Err(); err != nil {
		return nil, err
	}
	r, err := Open(ctx, client, prefix, name)
	if err != nil {
		return nil, err
	}
	if r.Command != job.Command || string(r.Settings) != string(job.Settings) {
		return nil, fmt.Errorf("%w: %s is bale %.100s with %.1000s: give these, or another name",
			ErrOther, name, r.Command, r.Settings)
	}
	return r, nil
}

// Open opens a run that there is.
func Open(ctx context.Context, client redis.UniversalClient, prefix, name string) (*Run, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	size, err := client.HStrLen(ctx, key(prefix, name), "job").Result()
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", key(prefix, name), err)
	case size == 0:
		return nil, fmt.Errorf("%w: %s", ErrUnknown, name)
	case size > largestField:
		return nil, otherVersion(name)
	}
	text, err := client.HGet(ctx, key(prefix, name), "job").Bytes()
	if errors.Is(err, redis.Nil) {
		return nil, fmt.Errorf("%w: %s", ErrUnknown, name)
	}
	if err != nil {
		return nil, err
	}
	host, _ := os.Hostname()
	if host == "" || strings.ContainsFunc(host, func(c rune) bool { return c <= ' ' || c > '~' }) {
		host = "worker"
	}
	r := &Run{Name: name, client: client, key: key(prefix, name),
		Worker: fmt.Sprintf("%s:%d:%s", host, os.Getpid(), rand.Text()[:6])}
	if err := json.Unmarshal(text, &r.Job); err != nil || r.Layout != layout || r.Units < 1 || r.Units > MaxUnits {
		return nil, otherVersion(name)
	}
	return r, nil
}

func otherVersion(name string) error {
	return fmt.Errorf("%w: %s was made by another version of bale", ErrOther, name)
}

// List is the names of all runs, in order, and forgets those that have gone.
func List(ctx context.Context, client redis.UniversalClient, prefix string) ([]string, error) {
	all, err := listScript.Run(ctx, client, []string{index(prefix)}).StringSlice()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, name := range all {
		if CheckName(name) != nil {
			continue
		}
		there, err := client.Exists(ctx, key(prefix, name)).Result()
		if err != nil {
			return nil, err
		}
		if there > 0 {
			names = append(names, name)
			continue
		}
		if err := client.HDel(ctx, index(prefix), name).Err(); err != nil && !keyspace.IsForbidden(err) {
			return nil, err
		}
		// A worker may have made it again meanwhile, and named it before it was removed here.
		if client.Exists(ctx, key(prefix, name)).Val() > 0 {
			names = append(names, name)
			if err := client.HSet(ctx, index(prefix), name, "").Err(); err != nil && !keyspace.IsForbidden(err) {
				return nil, err
			}
		}
	}
	slices.Sort(names)
	return names, nil
}

// Set makes the run [Running], [Paused] or [Aborted]. Workers heed it within ten seconds. One that
// is aborted or done stays so.
func (r *Run) Set(ctx context.Context, state string) error {
	if v, err := r.View(ctx); err != nil && !keyspace.IsReply(err) { // a forged one can be aborted
		return err
	} else if err == nil && v.Done == r.Units { // also where no worker lived to end it
		return fmt.Errorf("%s: %w", r.Name, ErrDone)
	}
	before, err := setScript.Run(ctx, r.client, []string{r.key}, state, keepEnded.Milliseconds()).Text()
	switch {
	case err != nil:
		return err
	case before == "unknown":
		return fmt.Errorf("%w: %s", ErrUnknown, r.Name)
	case before == Done: // meanwhile
		return fmt.Errorf("%s: %w", r.Name, ErrDone)
	case before == Aborted && state != Aborted:
		return fmt.Errorf("%s: %w", r.Name, ErrAborted)
	}
	return nil
}

// View is how far a run is.
type View struct {
	State   string
	Done    int            // units
	Workers map[string]int // that hold a unit, by name

	leases []string
	now    int64 // of the server, in milliseconds
}

// View asks how far the run is.
func (r *Run) View(ctx context.Context) (*View, error) {
	reply, err := viewScript.Run(ctx, r.client, []string{r.key}, r.Units).Slice()
	if err != nil {
		return nil, err
	}
	v := &View{Workers: map[string]int{}}
	if len(reply) == 3 {
		v.now, _ = reply[0].(int64)
		v.State, _ = reply[1].(string)
		lines, _ := reply[2].(string)
		v.leases = strings.Split(lines, "\n")
	}
	if len(v.leases) != r.Units {
		return nil, fmt.Errorf("%s: the leases of %d units, want %d", r.key, len(v.leases), r.Units)
	}
	for i, text := range v.leases {
		if v.done(i) {
			v.Done++
		} else if words := strings.Fields(text); v.held(i) && len(words) == 3 {
			v.Workers[strings.Clone(words[2])] = i // not with all leases
		}
	}
	if v.State == "unknown" {
		return nil, fmt.Errorf("%w: %s", ErrUnknown, r.Name)
	}
	return v, nil
}

// done reports a unit that is.
func (v *View) done(unit int) bool { return strings.HasPrefix(v.leases[unit], "done") }

// took is how long a unit took that is done.
func (v *View) took(unit int) time.Duration {
	ms, _ := strconv.ParseInt(strings.TrimPrefix(v.leases[unit], "done "), 10, 64)
	return time.Duration(ms) * time.Millisecond
}

// held reports a unit that a worker has.
func (v *View) held(unit int) bool {
	until, _, _ := strings.Cut(v.leases[unit], " ")
	at, err := strconv.ParseInt(until, 10, 64)
	return err == nil && at > v.now
}

// States calls each with the saved state of each unit that has one, in order. It reads some MiB of
// them at a time.
func (r *Run) States(ctx context.Context, each func(unit int, state json.RawMessage) error) error {
	sizes := make([]*redis.IntCmd, r.Units)
	if _, err := r.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range sizes {
			sizes[i] = p.HStrLen(ctx, r.key, "unit:"+strconv.Itoa(i))
		}
		return nil
	}); err != nil {
		return err
	}
	for from := 0; from < r.Units; {
		to := from
		for bytes := int64(0); to < r.Units && (to == from || bytes+sizes[to].Val() <= statesAtOnce); to++ {
			if bytes += sizes[to].Val(); sizes[to].Val() > largestField {
				return tooLarge(r.key, strconv.Itoa(to), sizes[to].Val())
			}
		}
		texts, err := r.units(ctx, from, to)
		if err != nil {
			return err
		}
		for i, text := range texts {
			if err := ctx.Err(); err != nil {
				return err
			}
			if text, ok := text.(string); ok {
				if err := each(from+i, json.RawMessage(text)); err != nil {
					return err
				}
			}
		}
		from = to
	}
	return nil
}

// Forget removes the states of all units, which are done.
func (r *Run) Forget(ctx context.Context) error {
	var names []string
	for i := range r.Units {
		names = append(names, "unit:"+strconv.Itoa(i))
	}
	for some := range slices.Chunk(names, 64) {
		if err := r.client.HDel(ctx, r.key, some...).Err(); err != nil {
			return err
		}
	}
	return nil
}

func tooLarge(key, unit string, size int64) error {
	return fmt.Errorf("%s: the state of unit %s has %d bytes, and none has more than %d: start again under another --run NAME", key, unit, size, largestField)
}

// units reads the states of some units. Nil stands for none.
func (r *Run) units(ctx context.Context, from, to int) ([]any, error) {
	var names []string
	for i := from; i < to; i++ {
		names = append(names, "unit:"+strconv.Itoa(i))
	}
	values, err := r.client.HMGet(ctx, r.key, names...).Result()
	if err == nil && len(values) != len(names) {
		err = fmt.Errorf("HMGET of %d fields: %d values", len(names), len(values))
	}
	return values, err
}

// Once does something for all workers of a run, as [Run.Once] does. What it returns is kept as
// JSON.
func Once[T any](
	ctx context.Context, r *Run, what string, do func(ctx context.Context) (T, error),
) (result T, err error) {
	text, err := r.Once(ctx, what, func(ctx context.Context) (json.RawMessage, error) {
		result, err := do(ctx)
		if err != nil {
			return nil, err
		}
		return json.Marshal(result)
	})
	if err != nil {
		return result, err
	}
	if err := json.Unmarshal(text, &result); err != nil {
		return result, fmt.Errorf("--run: what is kept of %s: %w", what, err)
	}
	return result, nil
}

// Once does something for all workers: one of them, while the others wait for what it returns. If
// it fails, the next worker does it.
func (r *Run) Once(
	ctx context.Context, what string, do func(ctx context.Context) (json.RawMessage, error),
) (json.RawMessage, error) {
	failed := 0
	for wait := firstWait; ; wait = min(2*wait, longestWait) {
		u, answer, err := r.take(ctx, what, nil)
		switch {
		case keyspace.IsUnserved(err) && ctx.Err() == nil && failed < failures: // it fails over
			failed++
		case err != nil:
			return nil, err
		case answer == "done":
			if n, err := r.client.HStrLen(ctx, r.key, "unit:"+what).Result(); err != nil {
				return nil, err
			} else if n > largestField {
				return nil, tooLarge(r.key, what, n)
			}
			return r.client.HGet(ctx, r.key, "unit:"+what).Bytes()
		case u != nil:
			err := r.hold(ctx, u, func(ctx context.Context) (err error) {
				u.State, err = do(ctx)
				return err
			})
			if err == nil {
				return u.State, nil
			}
			if !errors.Is(err, errPaused) && !errors.Is(err, errFenced) {
				return nil, err
			}
		case answer == Aborted:
			return nil, ErrAborted
		case answer == "unknown":
			return nil, fmt.Errorf("%w: %s", ErrUnknown, r.Name)
		}
		if err := pause(ctx, wait); err != nil {
			return nil, err
		}
	}
}
