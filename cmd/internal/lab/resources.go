package lab

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/shirou/gopsutil/v4/process"

	"github.com/balekv/bale/cmd/internal/load"
	"github.com/balekv/bale/cmd/internal/outcome"
	"github.com/balekv/bale/extra/observe/prom"
)

// cores is how many processors there are for this process and the server.
func cores() int { return runtime.NumCPU() }

// look is a reading of this process, and one of the server, each with its time and the operations
// done by then. The two are milliseconds apart while a server is busy.
type look struct {
	at, done int64
	used     load.Usage
	gc       float64         // seconds of its processor time in collecting garbage
	pool     *prom.PoolStats // nil where the client does not say
	rss      int64           // now
	peaks    peaks
	machine  time.Duration // processor time of all programs; 0 where it is unknown

	serverAt, serverDone int64
	main                 time.Duration // processor time of the server's main thread, or of all of it; -1 where it does not say
	server               time.Duration // of all its threads, and of the proxy before it
	proxy                time.Duration // of that alone; -1 without one
	in, out              int64         // bytes that the server read and wrote
}

const gcSeconds = "/cpu/classes/gc/total:cpu-seconds"

// atServer looks at the server.
func (l *look) atServer(ctx context.Context, p *phase) error {
	l.main, l.proxy = -1, -1
	s := p.cell.server
	if p.cell.client.proxied {
		l.proxy = s.proxyCPU(ctx)
	}
	if !s.Embedded {
		info, err := s.info(ctx, "cpu", "stats")
		if err != nil {
			return err
		}
		l.main = cpuOf(info, "used_cpu_%s_main_thread")
		if l.server = cpuOf(info, "used_cpu_%s"); l.main < 0 {
			l.main = l.server
		}
		l.server += max(0, l.proxy)
		l.in, l.out = count(info["total_net_input_bytes"]), count(info["total_net_output_bytes"])
	}
	l.serverAt, l.serverDone = p.now(), p.done.Load()
	return nil
}

// atOwn reads this process. Readings that allocate stay outside the counted part: before it if from
// is not set yet, after it later.
func (l *look) atOwn(ctx context.Context, p *phase) {
	beforehand := p.until.Load() == maxTime
	if beforehand {
		l.around(ctx, p)
	}
	l.at, l.done = p.now(), p.done.Load()
	l.used = load.Used()
	l.peaks, l.rss = p.run.timeline.read()
	if !beforehand {
		l.around(ctx, p)
	}
}

func (l *look) around(ctx context.Context, p *phase) {
	if p.cell.client.pool != nil {
		pool := p.cell.client.pool()
		l.pool = &pool
	}
	sample := []metrics.Sample{{Name: gcSeconds}}
	metrics.Read(sample)
	if sample[0].Value.Kind() == metrics.KindFloat64 {
		l.gc = sample[0].Value.Float64()
	}
	l.machine = load.MachineTime(ctx)
}

// proxyCPU is the processor time of the proxy before the server; 0 without one.
func (s *Server) proxyCPU(ctx context.Context) time.Duration {
	if s.proxy == nil {
		return 0
	}
	p, err := process.NewProcessWithContext(ctx, int32(s.proxy.PID()))
	if err != nil {
		return 0
	}
	t, err := p.TimesWithContext(ctx)
	if err != nil {
		return 0
	}
	return time.Duration((t.User + t.System) * float64(time.Second))
}

// cpuOf is the processor time of some fields of INFO; -1 where it does not say.
func cpuOf(info map[string]string, fields string) time.Duration {
	sys, err1 := strconv.ParseFloat(info[fmt.Sprintf(fields, "sys")], 64)
	user, err2 := strconv.ParseFloat(info[fmt.Sprintf(fields, "user")], 64)
	if err1 != nil || err2 != nil {
		return -1
	}
	return time.Duration((sys + user) * float64(time.Second))
}

func count(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// since is what was used from one look to another.
func (l *look) since(before *look) outcome.Resources {
	seconds, ops := float64(l.at-before.at)/1e9, float64(max(1, l.done-before.done))
	client := (l.used.CPU - before.used.CPU).Seconds()
	u := outcome.Resources{
		ClientCPU: client / seconds, GCCycles: float64(l.used.Cycles-before.used.Cycles) / seconds,
		GCPauseUS: us(l.used.LongestPause(&before.used)),
		RSSBytes:  l.peaks.rss, RSSGrowth: max(0, l.peaks.rss-before.rss), VSSBytes: l.peaks.vss, Routines: l.peaks.goroutines,
	}
	if client > 0 {
		share := min(1, (l.gc-before.gc)/client)
		u.GCShare = &share
	}
	if l.pool != nil && before.pool != nil {
		waits, waited := float64(l.pool.Waits-before.pool.Waits)/ops, us(l.pool.Waited-before.pool.Waited)/ops
		u.PoolWaits, u.PoolWait = &waits, &waited
	}
	if l.machine > 0 && before.machine > 0 {
		machine := (l.machine - before.machine).Seconds() / seconds
		u.MachineCPU = &machine
	}
	if l.main >= 0 && before.main >= 0 {
		seconds, ops := float64(l.serverAt-before.serverAt)/1e9, float64(max(1, l.serverDone-before.serverDone))
		main, all := (l.main-before.main).Seconds()/seconds, (l.server-before.server).Seconds()/seconds
		u.ServerMain, u.ServerCPU = &main, &all
		if l.proxy >= 0 && before.proxy >= 0 {
			proxy := (l.proxy - before.proxy).Seconds() / seconds
			u.ProxyCPU = &proxy
		}
		u.ServerIn, u.ServerOut = float64(l.in-before.in)/ops, float64(l.out-before.out)/ops
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
		optional(&m.ServerMain, u.ServerMain)
		optional(&m.ProxyCPU, u.ProxyCPU)
		optional(&m.MachineCPU, u.MachineCPU)
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
	fullLink    = 0.85 // of its bits, in the fuller direction: headers and acknowledgements take the rest
	muchWaiting = 0.30 // of the latency
)

// bottleneck finds what kept a cell from being faster.
func bottleneck(c *outcome.Cell, s *Server, cores int) (name, why string) {
	u := c.Resources
	if c.Kept() {
		return outcome.LimitOffered, fmt.Sprintf("%.0f operations a second were asked for, and done", c.Rate)
	}
	server, main, proxy, through := 0.0, 0.0, 0.0, ""
	if u.ServerCPU != nil && u.ServerMain != nil {
		server, main = *u.ServerCPU, *u.ServerMain
	}
	all, who := u.ClientCPU, ""
	if u.ProxyCPU != nil {
		proxy = *u.ProxyCPU
		server -= proxy
		all += proxy // it runs here
		through = fmt.Sprintf(", the proxy %.2f", proxy)
	}
	if s.Here {
		all += server
	}
	if u.MachineCPU != nil && *u.MachineCPU > all {
		if outcome.MuchElse(*u.MachineCPU-all, cores) {
			who = fmt.Sprintf(", and other programs %.2f", *u.MachineCPU-all)
		}
		all = *u.MachineCPU
	}
	if s.LinkBits > 0 {
		bits := 8 * max(u.ServerIn, u.ServerOut) * c.OpsPerSecond.Median
		if bits >= fullLink*s.LinkBits {
			return outcome.LimitNetwork, fmt.Sprintf("%.3g of %.3g Mbit/s", bits/1e6, s.LinkBits/1e6)
		}
	}
	switch {
	case (s.Here || who != "" || through != "") && all >= load.BusyMachine*float64(cores):
		return outcome.LimitMachine, fmt.Sprintf("this process uses %.2f of %d cores, the server %.2f%s%s: each would do more on a machine of its own", u.ClientCPU, cores, server, through, who)
	case main >= busyServer:
		return outcome.LimitServer, fmt.Sprintf("its main thread is busy %.0f%% of the time", 100*min(1, main))
	case proxy >= busyServer:
		return outcome.LimitProxy, fmt.Sprintf("the proxy, which has one thread, is busy %.0f%% of the time", 100*min(1, proxy))
	case u.ClientCPU >= load.BusyMachine*float64(cores):
		return outcome.LimitClient, fmt.Sprintf("the load generator and what it measures use %.2f of %d cores", u.ClientCPU, cores)
	case u.PoolWait != nil && *u.PoolWait >= muchWaiting*c.Stages["total"].Mean:
		return outcome.LimitPool, fmt.Sprintf("%.0f of %.0f µs an operation are spent waiting for a connection", *u.PoolWait, c.Stages["total"].Mean)
	}
	return outcome.LimitWaiting, fmt.Sprintf("callers wait for round trips: this process uses %.2f%s and the server %.2f of %d cores", u.ClientCPU, through, server, cores)
}

// info reads sections of INFO.
func (s *Server) info(ctx context.Context, sections ...string) (map[string]string, error) {
	text, err := s.client.Info(ctx, sections...).Result()
	if _, refused := errors.AsType[redis.Error](err); refused && len(sections) > 1 { // Redis before 7 takes one at a time
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
	return fields(text), nil
}

// fields are those of INFO's text.
func fields(text string) map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			all[name] = value
		}
	}
	return all
}

// machine is what all of a machine, and of it what the run, has used of its processors so far.
type machine struct {
	busy, ours time.Duration
	at         time.Time
}

// lookAround reads what the machine uses; ok is false where that is unknown.
func (r *run) lookAround(ctx context.Context) (m machine, ok bool) {
	m = machine{load.MachineTime(ctx), load.ProcessorTime(), time.Now()}
	if m.busy == 0 || slices.ContainsFunc(r.servers, func(s *Server) bool { return s.lost }) {
		return m, false
	}
	for _, s := range r.servers {
		m.ours += s.proxyCPU(ctx)
		if s.Embedded || !s.Here {
			continue
		}
		info, err := s.info(ctx, "cpu")
		if err != nil {
			return m, false
		}
		m.ours += max(0, cpuOf(info, "used_cpu_%s")) + max(0, cpuOf(info, "used_cpu_%s_children"))
	}
	return m, true
}

// others is how many cores others used between two looks.
func others(before, after machine) *float64 {
	v := max(0, (after.busy-before.busy-(after.ours-before.ours)).Seconds()/after.at.Sub(before.at).Seconds())
	return &v
}
