package main

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/cli/clitest"
	"github.com/balekv/bale/cmd/internal/dataset"
	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/cmd/internal/lab"
	"github.com/balekv/bale/cmd/internal/link"
	"github.com/balekv/bale/cmd/internal/rounds"
	"github.com/balekv/bale/cmd/internal/study"
	"github.com/balekv/bale/internal/redisproc"
)

// TestBenchRefuses: what cannot be, or contradicts itself, ends with exit status 2 before anything
// is measured, and one line that names the option.
func TestBenchRefuses(t *testing.T) {
	t.Chdir(t.TempDir()) // for what --json and --html might leave
	for _, test := range []struct{ args, want string }{
		{"--codec nope", `--codec "nope"; there are json, gob, raw`},
		{"--client nobody", `--client: no such client: "nobody"; there are goredis`},
		{"--client redigo+auto", `redigo and radix never`},
		{"--compress brotli", `--compress: no such setting: "brotli"`},
		{"--compress zstd:99", `--compress: no such setting: "zstd:99"; there are none, snappy, s2:default, s2:better,`},
		{"--compress none/naive", `none has nothing to pool`},
		{"--batch mset", `--batch: no such batch: "mset"`},
		{"--concurrency 0", `--concurrency 0, must be 1 to 10000`},
		{"--concurrency 1,10001", `--concurrency 10001, must be 1 to 10000`},
		{"--track other", `--track "other"; there are typed and dynamic`},
		{"--profile gpu", `--profile "gpu"; there are cpu, heap, mutex, block`},
		{"--profile-dir there", `--profile-dir without --profile`},
		{"--mix 90", `--mix: no such mix: "90"`},
		{"--mix 1:1 --batch mset:2", `--mix is of single values, and --batch of many`},
		{"--mix 1:1 --hit-rate 2", `hit rate 2, must be 0 to 1`},
		{"--mix 1:1 --zipf 11", `Zipf exponent 11, must be 0 to 10`},
		{"--hit-rate 0.5", `wrong usage: --hit-rate is for single GETs and SETs: add --mix`},
		{"--zipf 1", `wrong usage: --zipf is for single GETs and SETs: add --mix`},
		{"--data there --track typed", `--track typed is for --builtin: there is no Go type for values of --data`},
		{"--rate 0", `--rate: "0"; it is operations a second, 1 to 10000000, or sweep`},
		{"--rate NaN", `--rate: "NaN"`},
		{"--rate 10000001", `--rate: "10000001"`},
		{"--rate sweep,100", `--rate: either sweep or a list of rates`},
		{"--repeat 0", `--repeat 0, must be 1 to 1000`},
		{"--repeat 1001", `--repeat 1001, must be 1 to 1000`},
		{"--duration 5ms --repeat 6", `--duration 5ms, must be at least a millisecond for each of 6 rounds`},
		{"--values 0", `--values 0, must be at least 1`},
		{"--redis redis://127.0.0.1:1", `--embedded and --redis exclude each other`},
		{"--key-size 25", `--key-size 25, must be 26 to 4096`},
		{"--key-size 4097", `--key-size 4097, must be 26 to 4096`},
		{"--baseline old.json", `--baseline is for --html`},
		{"--serve 8080", `--serve: serve: address "8080": give it as HOST:PORT`},
		{"--json - --go-bench -", `--json and --go-bench cannot both have stdout`},
		{"--html - --json -", `--json and --html cannot both have stdout`},
		{"--push localhost", `--push: push: the URL must begin with http`},
		{"--builtin nonsense", `--builtin "nonsense"; there are profiles, sessions`},
		{"--builtin random --track dynamic", `it needs values that are JSON`},
		{"--value-size 0", `--value-size: "0" is no size in bytes`},
		{"--value-size 1GiB", `--value-size 1GiB, must be 1 to 64MiB`},
		{"--codec gob,json,gob", `--codec gob is there twice`},
		{"--compress none,zstd:3,zstd:3", `--compress zstd:3 is there twice`},
		{"--client redigo,redigo", `--client redigo is there twice`},
		{"--batch single,mset:2,mset:2", `--batch mset:2 is there twice`},
		{"--concurrency 4,4", `--concurrency 4 is there twice`},
		{"--rate 100,1e2", `--rate: 100 is there twice`},
		{"--builtin text,text", `--builtin text is there twice`},
		{"--value-size 1024,1KiB", `--value-size 1KiB is there twice`},
		{"--track typed,typed", `--track typed is there twice`},
		{"--profile cpu,cpu", `--profile cpu is there twice`},
		{"--appendonly no", `settings of a server are for private ones`},
		{"--link 1mbit", `settings of a server are for private ones`},
		{"--link 1", `link: not a network: the rate "1"`},
		{"--appendonly maybe", `appendonly "maybe"; there are no, everysec, always`},
		{"--io-threads 0", `io-threads 0, must be 1 to 128`},
		{"--maxmemory-policy all", `maxmemory-policy "all"; there are noeviction`},
		{"some command", `unexpected argument some`},
	} {
		args := append([]string{"run"}, strings.Fields(test.args)...)
		if !strings.Contains(test.args, "--value-size") && !strings.Contains(test.args, "--builtin") && !strings.Contains(test.args, "--data") {
			args = append(args, "--value-size=100")
		}
		args = append(args, "--embedded")
		var out, errs bytes.Buffer
		code := app.Run(t.Context(), args, strings.NewReader(""), &out, &errs)
		if code != cli.ExitUsage || out.Len() > 0 || strings.Count(errs.String(), "\n") != 1 || !strings.Contains(errs.String(), test.want) {
			t.Errorf("%s: exit %d, stdout %q, stderr %q; want %q", test.args, code, &out, &errs, test.want)
		}
	}
	if left := clitest.Entries(t, "."); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestBenchWrongServer: a refusal by the server is reported with the next step, and without the
// password. A URL that the client does not support is wrong usage.
func TestBenchWrongServer(t *testing.T) {
	server := redisproc.ForTest(t, "--requirepass", "the-password")
	for _, test := range []struct {
		name, args, want string
		code             int
	}{
		{"no password", "--redis redis://" + server.Addr(), keyspace.PasswordHint, cli.ExitFailed},
		{"a wrong one", "--redis redis://:guessed@" + server.Addr(), keyspace.PasswordHint, cli.ExitFailed},
		{"one that a proxy cannot give", "--client redigo@twemproxy --redis redis://default:the-password@" + server.Addr(), "wrong usage: --client: no such client: twemproxy takes neither a user name", cli.ExitUsage},
	} {
		var out, errs bytes.Buffer
		args := append([]string{"run", "--value-size=100", "--compress=none", "--concurrency=1", "--duration=6ms", "--repeat=1"}, strings.Fields(test.args)...)
		code := app.Run(t.Context(), args, strings.NewReader(""), &out, &errs)
		if code != test.code || out.Len() > 0 || !strings.Contains(errs.String(), test.want) || strings.Contains(errs.String(), "guessed") || strings.Contains(errs.String(), "the-password") {
			t.Errorf("%s: exit %d, stdout %q, stderr %q; want %d and %q", test.name, code, &out, &errs, test.code, test.want)
		}
	}
}

// TestInterruptedEarly: a run that ends within its first round reports that it has no figures.
func TestInterruptedEarly(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	b, err := parseRun([]string{"run", "--embedded", "--value-size=100", "--compress=none", "--concurrency=1", "--json=-"})
	if err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	o, err := b.options(&cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
	if err != nil {
		t.Fatal(err)
	}
	o.Progress = func(lab.Progress) { stop() }
	if err := b.measure(ctx, o.Streams, o); !errors.Is(err, context.Canceled) || out.Len() > 0 ||
		!strings.Contains(errs.String(), "no round was whole by then: there are no figures") {
		t.Errorf("%v, stdout %q, stderr %q", err, &out, &errs)
	}
}

// TestQuick: --quick replaces what nobody asked for, and nothing else.
func TestQuick(t *testing.T) {
	type asked struct {
		Builtin, Compress []string
		Sizes             int
		Concurrency       []int
		Repeat            int
		Duration          time.Duration
	}
	hurried := asked{quickBuiltin, quickCompress, 0, quickConcurrency, quickRepeat, quickDuration}
	for args, change := range map[string]func(*asked){
		"":                     func(*asked) {},
		"--builtin text":       func(a *asked) { a.Builtin = []string{"text"} },
		"--value-size 100,200": func(a *asked) { a.Builtin, a.Sizes = nil, 2 },
		"--data there":         func(a *asked) { a.Builtin = nil },
		"--compress gzip":      func(a *asked) { a.Compress = []string{"gzip"} },
		"--concurrency 1,8":    func(a *asked) { a.Concurrency = []int{1, 8} },
		"--repeat 3":           func(a *asked) { a.Repeat = 3 },
		"--duration 1s":        func(a *asked) { a.Duration = time.Second },
		"--builtin logs --concurrency 2 --repeat 9": func(a *asked) { a.Builtin, a.Concurrency, a.Repeat = []string{"logs"}, []int{2}, 9 },
	} {
		want := hurried
		change(&want)
		b, err := parseRun(append([]string{"run", "--quick"}, strings.Fields(args)...))
		if err != nil {
			t.Fatal(err)
		}
		o, err := b.options(&cli.Streams{})
		if err != nil {
			t.Fatalf("%s: %v", args, err)
		}
		got := asked{o.Data.Builtin, nil, len(o.Data.Sizes), o.Concurrency, o.Rounds, o.Duration}
		for _, s := range o.Compress {
			got.Compress = append(got.Compress, s.String())
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("--quick %s (-want +got):\n%s", args, diff)
		}
	}
}

// TestStudiesAreKnown: the sets, codecs, compressors, clients and servers of each study exist, with
// values for all that is asked for. The options of the others are known.
func TestStudiesAreKnown(t *testing.T) {
	for _, s := range study.All() {
		b, err := parseRun(append([]string{"run"}, s.Args...))
		if err != nil {
			t.Errorf("%s: %v", s.Name, err)
			continue
		}
		if !s.IsRun() {
			few := b.Repeat < 6 && s.Name != "resilience" // whose faults take long: its pictures show a round
			if err := (&rounds.Options{Duration: b.Duration, Rounds: b.Repeat}).Validate(); err != nil || few {
				t.Errorf("%s: %d rounds, %v", s.Name, b.Repeat, err)
			}
			continue
		}
		c, err := b.options(&cli.Streams{})
		if err := errors.Join(err, c.Validate()); err != nil {
			t.Errorf("%s: %v", s.Name, err)
			continue
		}
		if c.Datasets, err = dataset.Open(t.Context(), c.Data); err != nil || len(c.Datasets) == 0 {
			t.Errorf("%s: %d sets, %v", s.Name, len(c.Datasets), err)
		}
		for _, codec := range c.Codecs { // some sets are no JSON, but each codec has one that it is for
			if !slices.ContainsFunc(c.Datasets, func(d *dataset.Dataset) bool { _, err := d.Coder(codec); return err == nil }) {
				t.Errorf("%s: no set has values for %s", s.Name, codec)
			}
		}
		servers := []*lab.Server{{}}
		for i, text := range b.Link {
			limits, err := link.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			servers = append(servers[:i], &lab.Server{LinkBits: float64(limits.Bits), LinkDelay: limits.Delay})
		}
		if e := lab.Estimate(servers, c.Config); e.Cells < 4 || e.Time > 5*time.Minute {
			t.Errorf("%s: %+v", s.Name, e)
		}
		if c.Rounds < 6 {
			t.Errorf("%s: %d rounds, of which there is no interval", s.Name, c.Rounds)
		}
	}
}
