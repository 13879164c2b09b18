package lab

import (
	"context"
	"fmt"
	"runtime"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/shirou/gopsutil/v4/cpu"

	"github.com/balekv/bale/cmd/bale/internal/outcome"
	"github.com/balekv/bale/observe/prom"
)

// cores is how many processors this process may use.
func cores() int { return runtime.GOMAXPROCS(0) }

// look is a look at this process and a server.
type look struct {
	client     time.Duration // processor time of this process
	server     time.Duration // of the server's main thread, or of all of it; -1 where it does not say
	in, out    int64         // bytes that the server read and wrote
	gc         float64       // seconds of processor time in collecting garbage
	gcCycles   uint32
	pauses     [256]uint64 // a ring of the last stops of the world, in ns
	allocs     uint64
	bytes      uint64
	pool       *prom.PoolStats // nil where the client does not say
	rss, vss   int64
	goroutines int
}

const gcSeconds = "/cpu/classes/gc/total:cpu-seconds"

// look reads what costs more to read, or allocates; memory reads the rest of it.
func (r *run) look(ctx context.Context, c *cell) (*look, error) {
	l := &look{server: -1}
	if c.client.pool != nil {
		pool := c.client.pool()
		l.pool = &pool
	}
	if !c.server.Embedded {
		info, err := c.server.info(ctx, "cpu", "stats")
		if err != nil {
			return nil, err
		}
		l.server = serverCPU(info)
		l.in, l.out = count(info["total_net_input_bytes"]), count(info["total_net_output_bytes"])
	}
	sample := []metrics.Sample{{Name: gcSeconds}}
	metrics.Read(sample)
	if sample[0].Value.Kind() == metrics.KindFloat64 {
		l.gc = sample[0].Value.Float64()
	}
	l.client = processorTime(r)
	return l, nil
}

// memory reads what this process allocated, and its peaks since it was called last.
func (l *look) memory(r *run) {
	l.rss, l.vss, l.goroutines = r.timeline.peaks()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	l.allocs, l.bytes, l.gcCycles, l.pauses = m.Mallocs, m.TotalAlloc, m.NumGC, m.PauseNs
}

// serverCPU is the processor time of the main thread, where commands are done, or of the whole server where it does not tell them apart.
func serverCPU(info map[string]string) time.Duration {
	for _, of := range []string{"used_cpu_%s_main_thread", "used_cpu_%s"} {
		sys, err1 := strconv.ParseFloat(info[fmt.Sprintf(of, "sys")], 64)
		user, err2 := strconv.ParseFloat(info[fmt.Sprintf(of, "user")], 64)
		if err1 == nil && err2 == nil {
			return time.Duration((sys + user) * float64(time.Second))
		}
	}
	return -1
}

func count(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// since is what was used from one look to another, which are some seconds and operations apart.
func (l *look) since(before *look, seconds float64, operations int64) outcome.Resources {
	ops := float64(max(1, operations))
	client := (l.client - before.client).Seconds()
	u := outcome.Resources{
		ClientCPU: client / seconds,
		ServerIn:  float64(l.in-before.in) / ops, ServerOut: float64(l.out-before.out) / ops,
		GCCycles: float64(l.gcCycles-before.gcCycles) / seconds,
		RSSBytes: l.rss, RSSGrowth: max(0, l.rss-before.rss), VSSBytes: l.vss, Routines: l.goroutines,
	}
	if client > 0 {
		share := min(1, (l.gc-before.gc)/client)
		u.GCShare = &share
	}
	for n := before.gcCycles; n < l.gcCycles; n++ {
		u.GCPauseUS = max(u.GCPauseUS, float64(l.pauses[n%uint32(len(l.pauses))])/1e3)
	}
	if l.server >= 0 && before.server >= 0 {
		server := (l.server - before.server).Seconds() / seconds
		u.ServerCPU = &server
	}
	if l.pool != nil && before.pool != nil {
		waits, waited := float64(l.pool.Waits-before.pool.Waits)/ops, us(l.pool.Waited-before.pool.Waited)/ops
		u.PoolWaits, u.PoolWait = &waits, &waited
	}
	return u
}

// mean is the mean of the rounds, or the peak of what is one.
func mean(rounds []outcome.Round) outcome.Resources {
	var m outcome.Resources
	n := float64(max(1, len(rounds)))
	optional := func(to **float64, v *float64) {
		if v == nil {
			return
		}
		sum := *v / n
		if *to != nil {
			sum += **to
		}
		*to = &sum
	}
	cycles := 0.0
	for _, round := range rounds {
		u := round.Resources
		cycles += u.GCCycles * round.Seconds
		m.ClientCPU += u.ClientCPU / n
		m.ServerIn += u.ServerIn / n
		m.ServerOut += u.ServerOut / n
		optional(&m.GCShare, u.GCShare)
		m.GCCycles += u.GCCycles / n
		m.GCPauseUS = max(m.GCPauseUS, u.GCPauseUS)
		m.RSSBytes, m.RSSGrowth, m.VSSBytes = max(m.RSSBytes, u.RSSBytes), max(m.RSSGrowth, u.RSSGrowth), max(m.VSSBytes, u.VSSBytes)
		m.Routines = max(m.Routines, u.Routines)
		optional(&m.ServerCPU, u.ServerCPU)
		optional(&m.PoolWaits, u.PoolWaits)
		optional(&m.PoolWait, u.PoolWait)
	}
	if cycles < fewCycles-0.5 {
		m.GCShare = nil
	}
	return m
}

const fewCycles = 3 // of the garbage collector, in all rounds, which tell what it takes

const (
	busyServer  = 0.90 // of a core: Redis does commands on one thread
	busyMachine = 0.80 // of all cores: what the kernel does between two processes is in neither's account
	fullLink    = 0.85 // of its bits, in the fuller direction: headers and acknowledgements take the rest
	muchWaiting = 0.30 // of the latency
	keptRate    = 0.95 // of the rate that was asked for
)

// limit says what kept a cell from being faster, and why.
func limit(c *outcome.Cell, s *Server, cores int) (name, why string) {
	u := c.Resources
	if c.Rate > 0 && c.OpsPerSecond.Median >= keptRate*c.Rate && c.Unstarted == 0 {
		return outcome.LimitOffered, fmt.Sprintf("%.0f operations a second were asked for, and done", c.Rate)
	}
	server := 0.0
	if u.ServerCPU != nil {
		server = *u.ServerCPU
	}
	if s.LinkBits > 0 {
		bits := 8 * max(u.ServerIn, u.ServerOut) * c.OpsPerSecond.Median
		if bits >= fullLink*s.LinkBits {
			return outcome.LimitNetwork, fmt.Sprintf("%.3g of %.3g Mbit/s", bits/1e6, s.LinkBits/1e6)
		}
	}
	switch all := u.ClientCPU + server; {
	case s.Here && all >= busyMachine*float64(cores):
		return outcome.LimitMachine, fmt.Sprintf("this process uses %.2f and the server %.2f of %d cores: each would do more on a machine of its own", u.ClientCPU, server, cores)
	case server >= busyServer:
		return outcome.LimitServer, fmt.Sprintf("its main thread is busy %.0f%% of the time", 100*min(1, server))
	case u.ClientCPU >= busyMachine*float64(cores):
		return outcome.LimitClient, fmt.Sprintf("the load generator and what it measures use %.2f of %d cores", u.ClientCPU, cores)
	case u.PoolWait != nil && *u.PoolWait >= muchWaiting*c.Stages["total"].Mean:
		return outcome.LimitPool, fmt.Sprintf("%.0f of %.0f us an operation are spent waiting for a connection", *u.PoolWait, c.Stages["total"].Mean)
	}
	return outcome.LimitWaiting, fmt.Sprintf("callers wait for round trips: this process uses %.2f and the server %.2f of %d cores", u.ClientCPU, server, cores)
}

// info reads sections of INFO.
func (s *Server) info(ctx context.Context, sections ...string) (map[string]string, error) {
	text, err := s.client.Info(ctx, sections...).Result()
	if err != nil && len(sections) > 1 { // Redis before 7 takes one at a time
		var all []string
		for _, section := range sections {
			if text, err = s.client.Info(ctx, section).Result(); err != nil {
				break
			}
			all = append(all, text)
		}
		text = strings.Join(all, "\n")
	}
	if err != nil {
		return nil, fmt.Errorf("INFO %s: %w", strings.Join(slices.Clone(sections), " "), err)
	}
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields, nil
}

// machine is what all of a machine, and of it what the run, has used of its processors so far.
type machine struct {
	busy, ours time.Duration
	at         time.Time
}

// lookAround reads what the machine uses; ok is false where that is unknown.
func (r *run) lookAround(ctx context.Context) (m machine, ok bool) {
	times, err := cpu.TimesWithContext(ctx, false)
	if err != nil || len(times) != 1 {
		return m, false
	}
	t := times[0]
	m = machine{time.Duration((t.User + t.System + t.Nice + t.Irq + t.Softirq + t.Steal) * float64(time.Second)), processorTime(r), time.Now()}
	for _, s := range r.servers {
		if s.Embedded || !s.Here {
			continue
		}
		info, err := s.info(ctx, "cpu")
		if err != nil {
			return m, false
		}
		for _, name := range []string{"used_cpu_sys", "used_cpu_user", "used_cpu_sys_children", "used_cpu_user_children"} {
			if v, err := strconv.ParseFloat(info[name], 64); err == nil {
				m.ours += time.Duration(v * float64(time.Second))
			}
		}
	}
	return m, true
}

// others is how many cores others used between two looks.
func others(before, after machine) *float64 {
	v := max(0, (after.busy-before.busy-(after.ours-before.ours)).Seconds()/after.at.Sub(before.at).Seconds())
	return &v
}
