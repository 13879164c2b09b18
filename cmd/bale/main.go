// Command bale measures, packs and explains values for Redis. Run bale --help.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"
	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale/cmd/internal/compare"
	"github.com/balekv/bale/cmd/internal/dataset"
	"github.com/balekv/bale/cmd/internal/engine"
	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/cmd/internal/lab"
	"github.com/balekv/bale/cmd/internal/printable"
	"github.com/balekv/bale/cmd/internal/study"
)

// The exit codes.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	redis.SetLogger(silence{}) // what matters comes back as an error
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	// The first signal ends the work in hand and cleans up; a second one ends the process.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// silence is a logger of go-redis that says nothing.
type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

// cli is the command line.
type cli struct {
	Bench   benchCommand     `cmd:"" help:"Measure serializers and compressors end to end through a real Redis, on your data."`
	Study   studyCommand     `cmd:"" help:"Run one of the built-in comparisons, and sum up what it shows."`
	Compare compareCommand   `cmd:"" help:"Say which cells of two runs got better or worse, and which noise hides."`
	Advise  adviseCommand    `cmd:"" help:"Say what compression and dictionaries would save of a live Redis, an RDB file, or values in files."`
	Train   trainCommand     `cmd:"" help:"Train a compression dictionary on values from files or a live Redis, and say what it saves."`
	Dict    dictCommand      `cmd:"" help:"List, publish, activate, roll back, remove, collect, export and import dictionaries."`
	Migrate migrateCommand   `cmd:"" help:"Pack what a Redis holds, in place, while programs run, or unpack it again."`
	Verify  verifyCommand    `cmd:"" help:"Read every value of a Redis, and say which cannot be unpacked."`
	Pack    packCommand      `cmd:"" help:"Pack stdin to stdout."`
	Unpack  unpackCommand    `cmd:"" help:"Unpack stdin to stdout; what is not packed comes out as it is."`
	Inspect inspectCommand   `cmd:"" help:"Explain a stored value field by field."`
	Stats   statsCommand     `cmd:"" help:"Sum up what a program's operations did, from the files of events it wrote."`
	Version kong.VersionFlag `help:"Print the version and end."`
}

// streams are what a command reads and writes: results to out, everything else to err. Both are for
// text, and escape what a terminal would obey; raw is stdout for what is no text, such as a packed
// value.
type streams struct {
	in            io.Reader
	out, err, raw io.Writer
}

// checked remembers the first error of a writer whose callers do not look.
type checked struct {
	io.Writer
	err error
}

func (c *checked) Write(b []byte) (int, error) {
	n, err := c.Writer.Write(b)
	if c.err == nil && err != nil && !errors.Is(err, syscall.EPIPE) {
		c.err = err
	}
	return n, err
}

// Unwrap returns the writer below.
func (c *checked) Unwrap() io.Writer { return c.Writer }

// errUsage marks errors in how the command was called.
var errUsage = errors.New("wrong usage")

// run is the whole command; it returns the exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	var c cli
	raw := &checked{Writer: stdout}
	s := streams{in: stdin, raw: raw}
	for to, from := range map[*io.Writer]io.Writer{&s.out: raw, &s.err: stderr} {
		w := printable.NewWriter(from)
		defer w.Flush()
		*to = w
	}
	exited := -1
	parser, err := kong.New(&c, append(kongOptions(), kong.Writers(s.out, s.err), kong.Exit(func(code int) { exited = code }))...)
	if err != nil {
		fail(s.err, "bale", err.Error())
		return exitFailed
	}
	switch {
	case len(args) == 0:
		args = []string{"--help"}
	case args[0] == "help":
		args = append(slices.Clone(args[1:]), "--help")
	}
	command, err := parser.Parse(args)
	if exited >= 0 { // --help and --version say all there is to say
		return exited
	}
	if err != nil {
		name := "bale"
		if e, ok := errors.AsType[*kong.ParseError](err); ok {
			name = commandOf(e.Context)
		}
		fail(s.err, name, fmt.Sprintf("%s (see %s --help)", redacted(err.Error(), args), name))
		return exitUsage
	}
	command.BindTo(ctx, (*context.Context)(nil))
	err = command.Run(&s)
	if err == nil && raw.err != nil { // a full disk, behind a redirection; whoever closed a pipe has read enough
		err = fmt.Errorf("stdout: %w", raw.err)
	}
	// Without the arguments: "dict publish <file>".
	name, _, _ := strings.Cut("bale "+command.Command(), " <")
	switch {
	case err == nil:
		return exitDone
	case errors.Is(err, errUsage), errors.Is(err, keyspace.ErrURL):
		fail(s.err, name, fmt.Sprintf("%s (see %s --help)", told(err), name))
		return exitUsage
	case errors.Is(err, context.Canceled):
		fail(s.err, name, "interrupted")
	default:
		fail(s.err, name, told(err))
	}
	return exitFailed
}

// redacted is a message about arguments without what may be the password of a URL in them.
func redacted(message string, args []string) string {
	for _, a := range args {
		if i := strings.LastIndex(a, "@"); i > 0 {
			message = strings.ReplaceAll(message, a[:i], "***")
			message = strings.ReplaceAll(message, strings.Trim(strconv.Quote(a[:i]), `"`), "***")
		}
	}
	return message
}

// fail says why a command failed. Lines after the first, as errors have that are joined, stand a
// little to the right: none passes for a line of ours.
func fail(w io.Writer, name, why string) {
	lines := strings.Split(strings.TrimRight(why, "\n"), "\n")
	printable.Fprintf(w, "%s: %s\n", name, lines[0])
	for _, line := range lines[1:] {
		printable.Fprintf(w, "  %s\n", line)
	}
}

// kongOptions are those of every parser of the command line.
func kongOptions() []kong.Option {
	return []kong.Option{
		kong.Name("bale"),
		kong.Description("Keeps values in Redis small, and shows by measurement what that saves."),
		kong.Vars{
			"version": version() + ", " + engine.Name, "builtin": strings.Join(dataset.Names(), ", "), "codecs": strings.Join(dataset.Codecs(), ", "),
			"clients": lab.ClientSyntax, "profiles": strings.Join(lab.ProfileKinds, ", "), "min_key": fmt.Sprint(lab.MinKeySize),
			"default_gate": compare.DefaultGate().String(), "studies": strings.Join(study.Names(), ", "),
		},
		kong.Groups{
			"data": "Values:", "what": "What is compared:", "load": "Load:", "server": "Server:", "measuring": "Measuring:", "results": "Results:",
			"two commands": "Two commands:",
		},
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}),
	}
}

// commandOf is the command as far as it was understood: "bale dict publish".
func commandOf(c *kong.Context) string {
	name := "bale"
	for _, p := range c.Path {
		if p.Command != nil {
			name += " " + p.Command.Name
		}
	}
	return name
}

// packagePrefix is what errors of the library start with, for programs to know where they come
// from.
var packagePrefix = regexp.MustCompile(`(^|: )(?:bale|compress|dict|frame|stats|stream): `)

// argumentsTold is what servers add to the error of a command that they do not know. The arguments
// may be values.
var argumentsTold = regexp.MustCompile(`(?s),? with args beginning with: .*`)

// told is an error for people, who know what they called.
func told(err error) string {
	return packagePrefix.ReplaceAllString(argumentsTold.ReplaceAllString(err.Error(), ""), "$1")
}

// version is the module's version, with the commit it was built from if that is known.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return info.Main.Version + " " + s.Value
		}
	}
	return info.Main.Version
}
