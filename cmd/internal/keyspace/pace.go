package keyspace

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale/cmd/internal/printable"
)

// Pace bounds what a walk asks of a server. The zero Pace has no bounds, and no pauses. With one,
// the walk also pauses for a server that gets slower (the 99th percentile of PING), whose memory
// grows, or whose replicas fall behind. A pause ends after ten seconds at the latest, for one page.
type Pace struct {
	Rate      int // keys and elements a second; 0 for no limit
	Bandwidth int // bytes of values a second; 0 for no limit

	// Masters is how many masters of a cluster are read at a time, by walks that read several. Each
	// is read at this pace, and takes some MiB of memory. 0 is for 16.
	Masters int

	// Shared, if it is set, counts keys and elements for several walks together, and waits until more
	// may be asked for.
	Shared func(ctx context.Context, n int) error

	// Paused, if it is set, gets the reason of a pause, and how long all took before. It is called
	// once for each cause, and again when pauses have taken 10 s, 20 s, 40 s and so on.
	Paused func(why string, sofar time.Duration)
}

const (
	burst      = 50 * time.Millisecond // that a walk may be behind its pace, and catch up
	pingEvery  = 20 * time.Millisecond
	pingsKept  = 100 // so that the 99th percentile is the second largest
	lookApart  = time.Second
	pauseStep  = 200 * time.Millisecond
	mostSteps  = 50
	reportEach = mostSteps * pauseStep

	// At most a tenth of one of the server's processors.
	restFactor = 9

	slowerBy    = 4                     // times the PING of the start
	slowerByMin = 10 * time.Millisecond // and this, at least
	grownBy     = 32 << 20              // bytes of used_memory a second
	laggingBy   = maxBehind             // bytes that a replica has not acknowledged
	fullFrom    = 0.99                  // of maxmemory, where nothing is evicted
)

// Pacer keeps a [Pace], all walks of a command together. It is for one goroutine.
type Pacer struct {
	Pace
	due      time.Time
	servers  map[*redis.Client]*condition
	reported map[string]bool
	paused   time.Duration
	again    time.Duration // of pauses, when a cause is reported again
}

// Wait counts n keys or elements, and bytes of values that a server gave or was sent. It waits
// until more may be asked for. The server is nil where it is not known. A nil Pacer has no bounds.
func (p *Pacer) Wait(ctx context.Context, server *redis.Client, n, bytes int) error {
	if p == nil {
		return ctx.Err()
	}
	if p.Shared != nil && n > 0 {
		if err := p.Shared(ctx, n); err != nil {
			return err
		}
	}
	if p.Rate <= 0 && p.Bandwidth <= 0 {
		return ctx.Err()
	}
	var cost time.Duration
	if p.Rate > 0 {
		cost = time.Duration(float64(n) / float64(p.Rate) * float64(time.Second))
	}
	if p.Bandwidth > 0 {
		cost = max(cost, time.Duration(float64(bytes)/float64(p.Bandwidth)*float64(time.Second)))
	}
	if now := time.Now(); p.due.IsZero() {
		p.due = now
	} else if earliest := now.Add(-burst); p.due.Before(earliest) {
		p.due = earliest
	}
	p.due = p.due.Add(cost)
	if err := sleep(ctx, time.Until(p.due)); err != nil || server == nil {
		return err
	}
	return p.pause(ctx, server)
}

// Rest waits for nine times as long as commands kept the server busy. A Pacer without bounds does
// not.
func (p *Pacer) Rest(ctx context.Context, busy time.Duration) error {
	if p == nil || p.Rate <= 0 && p.Bandwidth <= 0 {
		return ctx.Err()
	}
	return sleep(ctx, restFactor*busy)
}

// pause waits as long as the server is in trouble.
func (p *Pacer) pause(ctx context.Context, server *redis.Client) error {
	if p.servers == nil {
		p.servers, p.reported = map[*redis.Client]*condition{}, map[string]bool{}
	}
	c := p.servers[server]
	if c == nil {
		c = &condition{}
		p.servers[server] = c
	}
	for range mostSteps {
		kind, why, err := c.look(ctx, server)
		if err != nil || kind == "" {
			return err
		}
		p.report(kind, why)
		if err := sleep(ctx, pauseStep); err != nil {
			return err
		}
	}
	return nil
}

// report is for each step of a pause.
func (p *Pacer) report(kind, why string) {
	if p.Paused != nil && (!p.reported[kind] || p.paused >= p.again) {
		p.Paused(why, p.paused)
		p.reported[kind], p.again = true, max(2*p.paused, reportEach)
	}
	p.paused += pauseStep
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 || ctx.Err() != nil {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// condition is how a server is.
type condition struct {
	atFirst time.Duration // the slowest PING of the first ones
	pings   []time.Duration
	pinged  time.Time
	looked  time.Time
	silent  bool // it gives no INFO
	memory  int64
	kind    string // of the trouble that INFO showed
	why     string
}

// look is the kind of trouble that a server is in, and a sentence about it; both are empty if it is
// in none. The error is that of the connection.
func (c *condition) look(ctx context.Context, server *redis.Client) (kind, why string, err error) {
	if c.atFirst == 0 {
		for range pingsKept / 10 {
			d, err := ping(ctx, server)
			if err != nil {
				return "", "", err
			}
			c.atFirst = max(c.atFirst, d)
		}
	}
	if time.Since(c.pinged) >= pingEvery {
		d, err := ping(ctx, server)
		if err != nil {
			return "", "", err
		}
		c.pinged = time.Now()
		if c.pings = append(c.pings, d); len(c.pings) > pingsKept {
			c.pings = c.pings[1:]
		}
	}
	if slow := secondLargest(c.pings); slow > max(slowerBy*c.atFirst, c.atFirst+slowerByMin) {
		c.pings = c.pings[len(c.pings)/2:] // so that the pause ends
		return "ping", fmt.Sprintf("PING takes %v, and took %v at the start", slow.Round(10*time.Microsecond), c.atFirst.Round(10*time.Microsecond)), nil
	}
	if c.silent || time.Since(c.looked) < lookApart {
		return c.kind, c.why, nil
	}
	text := ""
	for _, section := range []string{"memory", "replication"} {
		s, err := server.Info(ctx, section).Result()
		if err != nil && !IsReply(err) {
			return "", "", err
		}
		c.silent = c.silent || err != nil
		text += s + "\n"
	}
	info := Info(text)
	before, since := c.memory, time.Since(c.looked)
	c.memory, _ = strconv.ParseInt(info["used_memory"], 10, 64)
	c.looked = time.Now()
	c.kind, c.why = trouble(info, before, since)
	return c.kind, c.why, nil
}

// trouble interprets INFO. Before is used_memory at the last look, 0 for none, and since is the
// time since then.
func trouble(info map[string]string, before int64, since time.Duration) (kind, why string) {
	used, _ := strconv.ParseInt(info["used_memory"], 10, 64)
	if before > 0 && float64(used-before) > grownBy*max(since.Seconds(), 1) {
		return "memory", fmt.Sprintf("used_memory grew by %s in %.1f s", printable.Size(used-before), since.Seconds())
	}
	if most, _ := strconv.ParseInt(info["maxmemory"], 10, 64); most > 0 && used > before && before > 0 &&
		info["maxmemory_policy"] == "noeviction" && float64(used) > fullFrom*float64(most) {
		return "full", fmt.Sprintf("used_memory grows, and has %s of maxmemory %s, from where on writes fail", printable.Size(used), printable.Size(most))
	}
	if behind := bytesBehind(info); behind > laggingBy {
		return "replicas", fmt.Sprintf("a replica is %s behind", printable.Size(behind))
	}
	return "", ""
}

// bytesBehind is how much of a master's writes the slowest of its replicas has not acknowledged:
// "ip=127.0.0.1,port=6380,state=online,offset=1,lag=0". One that is not online gets a whole copy,
// however long it takes.
func bytesBehind(info map[string]string) (most int64) {
	offset, err := strconv.ParseInt(info["master_repl_offset"], 10, 64)
	for i := 0; err == nil; i++ {
		line, ok := info["slave"+strconv.Itoa(i)]
		if !ok {
			break
		}
		for f := range strings.SplitSeq(line, ",") {
			if name, value, _ := strings.Cut(f, "="); name == "offset" && strings.Contains(line, "state=online") {
				if its, err := strconv.ParseInt(value, 10, 64); err == nil {
					most = max(most, offset-its)
				}
			}
		}
	}
	return most
}

// ping is how long a PING takes. A server that does not allow it answers as quickly.
func ping(ctx context.Context, server *redis.Client) (time.Duration, error) {
	start := time.Now()
	if err := server.Ping(ctx).Err(); err != nil && !IsReply(err) {
		return 0, fmt.Errorf("PING: %w", err)
	}
	return max(time.Since(start), 1), nil
}

func secondLargest(all []time.Duration) time.Duration {
	if len(all) < 2 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)-2]
}

// memoryGoal is from where on the garbage collector works hard: a command that reads values keeps
// below 200 MiB.
const memoryGoal = 96 << 20

// Frugal makes the garbage collector keep memory small, until restore is called.
func Frugal() (restore func()) {
	before := debug.SetMemoryLimit(memoryGoal)
	return func() { debug.SetMemoryLimit(before) }
}
