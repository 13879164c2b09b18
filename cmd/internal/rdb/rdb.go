// Package rdb reads the file of a Redis' data (dump.rdb) by loading it into a private redis-server.
// A parser of its own would have to know every encoding of every version. [Load] is the entry
// point; it only reads the file.
package rdb

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/shirou/gopsutil/v4/mem"

	"github.com/balekv/bale/cmd/internal/printable"
	"github.com/balekv/bale/internal/redisproc"
)

// The causes of failure; others are fs.ErrNotExist, redisproc.ErrNotInstalled, redisproc.ErrStalled
// and those of a context.
var (
	// ErrNotRDB: the file has another format. Where the format is known, the error names it and the
	// next step.
	ErrNotRDB = errors.New("not an RDB file")

	// ErrDamaged: the file was cut or changed. The error has the server's own words.
	ErrDamaged = errors.New("damaged RDB file")

	// ErrNewer: the redis-server in PATH is too old for the file.
	ErrNewer = errors.New("RDB file of a newer server")

	// ErrModules: the file has data of modules, which the redis-server in PATH does not have.
	ErrModules = errors.New("RDB file with data of modules")

	// ErrMemory: there is not enough memory to load the file.
	ErrMemory = errors.New("out of memory")

	// ErrSlow: the server was not ready in the time that files of this size take.
	ErrSlow = errors.New("loading takes longer than a file of this size may")
)

// A server loads 50 MiB a second and more; a slow disk or a busy machine may take a while.
const (
	loadAtLeast = time.Minute
	loadRate    = 2 << 20 // bytes a second
)

// databases is how many there may be in a file; each costs the server some hundred bytes.
const databases = 1024

// Loaded is a file's data in a server of its own. Its methods and fields are for one goroutine; URL
// may be used by any.
type Loaded struct {
	Header

	// URL is the server's, with the password that keeps others on the machine out. The database is
	// the first one of Databases, or 0.
	URL string

	// Keys is how many there are, in all databases.
	Keys int64

	// Expired counts the keys of the file that had expired by the time it was loaded; -1 if the
	// server does not report it (before Redis 7.0).
	Expired int64

	// Databases are those that have keys, by their numbers.
	Databases []Database

	// Warnings are for people: what makes the data less than it seems, or the loading doubtful.
	Warnings []string

	server *redisproc.Server
	whole  bool // scan has seen the file's end
}

// Database is one that has keys.
type Database struct {
	Number int
	Keys   int64
}

// Options say how a file is loaded.
type Options struct {
	// Progress, if not nil, receives the loaded part, 0 to 1.
	Progress func(fraction float64)

	// Trust loads a file as it is, whatever is in it: libraries of functions, whose Lua runs, data
	// of modules, and types that this package does not know. By default the file is looked through
	// first, and one with any of these is not loaded (ErrUntrusted, ErrModules). Nor does a server
	// before version 7.0 load it, whose checks are weaker.
	Trust bool

	within time.Duration // how long loading may take; 0 for what goes with the file's size
}

// Load loads the file into a private redis-server on loopback, which saves nothing, and returns
// when the data is loaded. That takes about as long as a restart of the server that wrote it, and
// as much memory; ctx ends it at once. Load writes nothing to the file or beside it. The caller
// closes the result.
//
// Load does not trust the file. The server runs no scripts and knows no modules beyond its own. On
// Unix it may take three quarters of the available memory (ErrMemory). It has a minute, plus a
// second for each 2 MiB of the file (ErrSlow).
func Load(ctx context.Context, path string, o Options) (*Loaded, error) {
	h, err := ReadHeader(path)
	if err != nil {
		return nil, err
	}
	if !o.Trust {
		if err := scan(ctx, path, h.Size, h.valkey); err != nil {
			return nil, err
		}
	}
	l := &Loaded{Header: *h, whole: !o.Trust}
	var memory uint64
	if m, err := mem.VirtualMemoryWithContext(ctx); err == nil {
		l.warn(memoryWarning(h, m.Available))
		memory = m.Available / 4 * 3
	}
	within := cmp.Or(o.within, loadAtLeast+time.Duration(h.Size/loadRate)*time.Second)
	loading, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("%w: %v", ErrSlow, within))
	defer cancel()
	if h.AppendOnly {
		l.warn("it is the base of an append-only file: what was written after its last rewrite is not in it")
	}
	args := []string{
		"--databases", strconv.Itoa(databases),
		"--sanitize-dump-payload", "yes", // a damaged value ends the loading, and not the server at some later time
		"--crash-log-enabled", "no",
		"--rdb-del-sync-files", "no",
		"--maxmemory", "0",
		"--stop-writes-on-bgsave-error", "no",
	}
	if runtime.GOOS == "linux" {
		// Where memory runs out, the kernel ends this server, and no other that serves somebody.
		args = append(args, "--oom-score-adj", "absolute", "--oom-score-adj-values", "1000", "1000", "1000")
	}
	f := redisproc.File{Path: path, Progress: o.Progress, Valkey: strings.HasPrefix(h.Server, "Valkey"), Memory: memory}
	if !o.Trust {
		f.Since = 7
	}
	l.server, err = redisproc.StartFile(loading, f, args...)
	if err != nil {
		if cause := context.Cause(loading); errors.Is(cause, ErrSlow) {
			return nil, fmt.Errorf("loading %s: %w", path, cause)
		}
		return nil, l.explain(path, err)
	}
	if err := l.count(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), l.Close())
	}
	return l, nil
}

// Close ends the server and removes what it had.
func (l *Loaded) Close() error { return l.server.Close() }

func (l *Loaded) warn(text string) {
	if text != "" {
		l.Warnings = append(l.Warnings, text)
	}
}

// count asks the server what it has.
func (l *Loaded) count(ctx context.Context) error {
	persistence, err := l.server.Do(ctx, "INFO", "persistence")
	if err != nil {
		return err
	}
	l.Expired = -1
	if _, rest, ok := strings.Cut(persistence, "rdb_last_load_keys_expired:"); ok {
		n, _, _ := strings.Cut(rest, "\r\n")
		if l.Expired, err = strconv.ParseInt(n, 10, 64); err != nil {
			return fmt.Errorf("INFO persistence: %w", err)
		}
	}
	keyspace, err := l.server.Do(ctx, "INFO", "keyspace")
	if err != nil {
		return err
	}
	for line := range strings.Lines(keyspace) {
		var d Database
		if n, _ := fmt.Sscanf(line, "db%d:keys=%d,", &d.Number, &d.Keys); n == 2 {
			l.Databases, l.Keys = append(l.Databases, d), l.Keys+d.Keys
		}
	}
	l.URL = l.server.URL() + "/0"
	if len(l.Databases) > 0 {
		l.URL = l.server.URL() + "/" + strconv.Itoa(l.Databases[0].Number)
	}
	if l.Expired > 0 {
		l.warn(fmt.Sprintf("%d of its %d keys had expired, and are not there", l.Expired, l.Expired+l.Keys))
	}
	return nil
}

// expands is how many times larger than its file data is in memory, if the file does not say: 2 to
// 10.
const expands = 4

// memoryWarning warns if the file may need more memory than is available.
func memoryWarning(h *Header, available uint64) string {
	need, how := h.UsedMemory, "took"
	if need == 0 {
		need, how = expands*h.Size, "may take"
	}
	if uint64(need) <= available {
		return ""
	}
	return fmt.Sprintf("its data %s %s of memory, and %s are available here", how, printable.Size(need), printable.Size(available))
}

var (
	logPrefix  = regexp.MustCompile(`(?m)^[0-9]+:[A-Z] .*? [-.*#] `)
	tooNew     = regexp.MustCompile(`Can't handle RDB format version|Wrong signature trying to load DB`)
	module     = regexp.MustCompile(`module data I can't load: no matching module(?: type)? '([^']*)'`)
	tooMany    = regexp.MustCompile(`configured to handle more than [0-9]+ databases`)
	noMemory   = regexp.MustCompile(`(?i)out of memory`)
	damage     = regexp.MustCompile(`Wrong RDB checksum|Short read|Internal error in RDB|Unexpected EOF|Unknown RDB|Fatal error loading the DB|(?i)corrupt`)
	itsVersion = regexp.MustCompile(`Redis version=([^,\s]+)|(?:Valkey|valkey) version=([^,\s]+)`)
)

// explain tells people why a server did not load the file.
func (l *Loaded) explain(path string, err error) error {
	e, ok := errors.AsType[*redisproc.StartError](err)
	if errors.Is(err, redisproc.ErrOld) {
		return fmt.Errorf("%w: %s: %w. Put a later server in PATH; --trust-rdb is for the files of your own servers", ErrUntrusted, path, err)
	}
	if !ok { // there is no server
		return fmt.Errorf("%s is loaded into a private server: %w", path, err)
	}
	log := logPrefix.ReplaceAllString(e.Log, "")
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, redisproc.ErrStalled):
		return fmt.Errorf("loading %s: %w", path, e.Err)
	case tooNew.MatchString(log):
		has := e.Program
		if m := itsVersion.FindStringSubmatch(log); m != nil {
			has += " " + m[1] + m[2]
		}
		by := l.Server
		if by == "" {
			by = "a later server"
		}
		return fmt.Errorf("%w: %s has format %d, written by %s, which %s does not read: put a server of at least that version in PATH",
			ErrNewer, path, l.Version, by, has)
	case module.MatchString(log):
		return moduleError(module.FindStringSubmatch(log)[1]).in(path)
	case tooMany.MatchString(log):
		return fmt.Errorf("%s has more than %d databases, which are not supported: bale advise can look at the live server instead", path, databases)
	case noMemory.MatchString(log), l.whole && strings.Contains(log, "Short read or OOM"), strings.Contains(e.State, "killed"):
		doubts := ""
		if len(l.Warnings) > 0 {
			doubts = "; " + strings.Join(l.Warnings, "; ")
		}
		return fmt.Errorf("%w: loading %s: %s was ended, as the system does where memory is short, and as we do beyond three quarters of what was available (%s)%s",
			ErrMemory, path, e.Program, cmp.Or(e.State, "it gave up"), doubts)
	case damage.MatchString(log), strings.HasPrefix(e.State, "signal: "):
		return fmt.Errorf("%w: %s: %s says: %s", ErrDamaged, path, e.Program, cmp.Or(complaint(log), e.State))
	}
	return fmt.Errorf("loading %s: %s %w (%s), and said: %s", path, e.Program, e.Err, cmp.Or(e.State, "by us"), lastLine(log))
}

// complaint returns the server's error about a file: the line with the checksums, or else the most
// exact one.
func complaint(log string) string {
	best := ""
	for line := range strings.Lines(log) {
		line = strings.TrimSpace(line)
		if strings.Contains(line, "Wrong RDB checksum") {
			return line
		}
		if _, cause, ok := strings.Cut(line, " -> "); ok && strings.Contains(line, "Internal error in RDB") {
			return cause
		}
		if best == "" && damage.MatchString(line) {
			best = line
		}
	}
	return best
}

func lastLine(log string) string {
	lines := strings.Split(strings.TrimSpace(log), "\n")
	return lines[len(lines)-1]
}
