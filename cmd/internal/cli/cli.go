// Package cli is the common part of this module's commands. It runs a command line, and has the
// streams, the exit codes, and the options of several commands.
package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"reflect"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"
	"github.com/redis/go-redis/v9"
	"github.com/shirou/gopsutil/v4/cpu"

	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/cmd/internal/page"
	"github.com/balekv/bale/cmd/internal/printable"
)

// The exit codes.
const (
	ExitDone   = 0
	ExitFailed = 1
	ExitUsage  = 2
)

// ErrUsage marks errors in how a command was called.
var ErrUsage = errors.New("wrong usage")

// App is a program with commands.
type App struct {
	Name, About string
	Grammar     func() any    // a new struct of commands, as kong takes it
	Options     []kong.Option // more of them
}

// Streams are the input and outputs of a command: results go to Out, everything else to Err. Both
// are for text, and escape what a terminal would obey. Raw is stdout for binary data, such as a
// packed value.
type Streams struct {
	In            io.Reader
	Out, Err, Raw io.Writer
	Command       string // "bale dict publish"
}

// Notef writes a line to Err, after the name of the command, in place of a line of progress.
func (s *Streams) Notef(format string, args ...any) {
	if TerminalWidth(s.Err) > 0 {
		io.WriteString(bare(s.Err), eraseLine)
	}
	printable.Fprintf(s.Err, "%s: ", s.Command)
	printable.Fprintf(s.Err, format+"\n", args...)
}

// Main runs the program with the arguments of the process, and ends the process.
func (a App) Main() {
	redis.SetLogger(silence{}) // what matters comes back as an error
	// The first signal ends the work in hand and cleans up; a second one ends the process.
	ctx := untilSignal(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx = untilSignal(context.WithValue(ctx, reloading{}, ctx), syscall.SIGHUP)
	os.Exit(a.Run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// untilSignal is a context that the first of some signals ends. Ignored signals stay so, but
// SIGTERM: nohup ignores SIGHUP, and a shell SIGINT for jobs in the background.
func untilSignal(ctx context.Context, signals ...os.Signal) context.Context {
	signals = slices.DeleteFunc(signals, func(s os.Signal) bool { return s != syscall.SIGTERM && signal.Ignored(s) })
	if len(signals) == 0 { // NotifyContext takes that for all
		return ctx
	}
	ctx, stop := signal.NotifyContext(ctx, signals...)
	context.AfterFunc(ctx, stop)
	return ctx
}

// reloading is the key of a context that SIGHUP does not end.
type reloading struct{}

// Reloading is for commands that reload on SIGHUP. It returns a context that the signal does not
// end, and the signals until stop is called.
func Reloading(ctx context.Context) (_ context.Context, hangup <-chan os.Signal, stop func()) {
	if patient, ok := ctx.Value(reloading{}).(context.Context); ok {
		ctx = patient
	}
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGHUP)
	return ctx, c, func() { signal.Stop(c) }
}

// silence is a logger of go-redis that says nothing.
type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

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

// Run runs the program with the given arguments, and returns its exit code.
func (a App) Run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	raw := &checked{Writer: stdout}
	s := Streams{In: newInput(ctx, stdin), Raw: raw}
	for to, from := range map[*io.Writer]io.Writer{&s.Out: raw, &s.Err: stderr} {
		w := printable.NewWriter(from)
		defer w.Flush()
		*to = w
	}
	exited := -1
	help := helpOptions
	if columns := TerminalWidth(s.Out); columns > 0 { // kong sees no terminal
		help.WrapUpperBound = min(help.WrapUpperBound, columns)
	}
	parser, err := a.Parser(a.Grammar(), kong.Writers(s.Out, s.Err), kong.Exit(func(code int) { exited = code }), kong.ConfigureHelp(help))
	if err != nil {
		fail(s.Err, a.Name, err.Error())
		return ExitFailed
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
		name := a.Name
		if e, ok := errors.AsType[*kong.ParseError](err); ok {
			name = a.commandOf(e.Context)
		}
		fail(s.Err, name, fmt.Sprintf("%s (see %s --help)", redacted(Message(err), args), name))
		return ExitUsage
	}
	command.BindTo(ctx, (*context.Context)(nil))
	s.Command = a.commandOf(command)
	name := s.Command
	err = command.Run(&s)
	if err == nil && raw.err != nil { // a full disk, behind a redirection; whoever closed a pipe has read enough
		err = fmt.Errorf("stdout: %w", raw.err)
	}
	switch {
	case err == nil:
		return ExitDone
	case errors.Is(err, ErrUsage), errors.Is(err, keyspace.ErrURL), errors.Is(err, keyspace.ErrLogin):
		fail(s.Err, name, fmt.Sprintf("%s (see %s --help)", redacted(Message(err), urls(args)), name))
		return ExitUsage
	case errors.Is(err, context.Canceled):
		fail(s.Err, name, "interrupted")
	default:
		fail(s.Err, name, redacted(Message(err), urls(args)))
	}
	return ExitFailed
}

var helpOptions = kong.HelpOptions{Compact: true, WrapUpperBound: 100}

// Parser returns a parser of the program's command line, which fills in the grammar.
func (a App) Parser(grammar any, more ...kong.Option) (*kong.Kong, error) {
	return kong.New(grammar, slices.Concat([]kong.Option{
		kong.KindMapper(reflect.String, kong.MapperFunc(bytesOf)),
		kong.Name(a.Name), kong.Description(a.About), kong.Vars{"version": Version() + ", zstd in pure Go"},
		kong.ConfigureHelp(helpOptions),
	}, a.Options, more)...)
}

// commandOf is the command as far as it was understood, by the names that were given: "bale dict
// publish", "bale cat".
func (a App) commandOf(c *kong.Context) string {
	name, args := a.Name, c.Args
	for _, p := range c.Path {
		if p.Command == nil {
			continue
		}
		word := p.Command.Name
		if i := slices.IndexFunc(args, func(arg string) bool {
			return arg == word || slices.Contains(p.Command.Aliases, arg)
		}); i >= 0 {
			word, args = args[i], args[i+1:]
		}
		name += " " + word
	}
	return name
}

// bytesOf is a string's mapper. That of kong replaces what is not UTF-8, and keys may be any bytes.
func bytesOf(ctx *kong.DecodeContext, target reflect.Value) error {
	token, err := ctx.Scan.PopValue("string")
	if err != nil {
		return err
	}
	text, is := token.Value.(string)
	if !is {
		return fmt.Errorf("expected a string, not %v", token.Value)
	}
	target.SetString(text)
	return nil
}

// redacted is a message about arguments without what may be the password of a URL in them, also of
// one that was given to the wrong option.
func redacted(message string, args []string) string {
	hide := func(secret, as string) {
		message = strings.ReplaceAll(message, secret, as)
		message = strings.ReplaceAll(message, strings.Trim(strconv.Quote(secret), `"`), as)
	}
	for _, a := range args {
		for _, option := range keyspace.Passwords(a) {
			shown := keyspace.Redact(option)
			hide(option, shown)
			a = strings.ReplaceAll(a, option, shown)
		}
		i := strings.LastIndex(a, "@")
		if i <= 0 {
			continue
		}
		_, value, _ := strings.Cut(a[:i], "=")
		_, user, _ := strings.Cut(a[:i], "://") // alone where a path of it was cleaned
		if !strings.Contains(user, ":") {
			user = ""
		}
		for _, secret := range []string{a[:i], value, user} {
			if secret != "" {
				hide(secret, "***")
			}
		}
	}
	return message
}

// urls are the arguments that have a URL. Others with an @ may be names of files or keys.
func urls(args []string) []string {
	return slices.DeleteFunc(slices.Clone(args), func(a string) bool { return !strings.Contains(a, "://") })
}

// fail prints why a command failed. It indents the lines after the first, as in joined errors, so
// that none looks like a line of ours.
func fail(w io.Writer, name, why string) {
	lines := strings.Split(strings.TrimRight(why, "\n"), "\n")
	printable.Fprintf(w, "%s: %s\n", name, lines[0])
	for _, line := range lines[1:] {
		printable.Fprintf(w, "  %s\n", line)
	}
}

// packagePrefix is what errors of the library start with, for programs to know where they come
// from.
var packagePrefix = regexp.MustCompile(`(^|: )(?:bale|compress|dict|frame|stats|eventfile|stream): `)

// echoedArguments is what servers add to the error of a command that they do not know. The
// arguments may be values.
var echoedArguments = regexp.MustCompile(`(?s),? with args beginning with: .*`)

// Message returns the text of an error for people: without package names, and without the arguments
// of commands, which may be values.
func Message(err error) string {
	return packagePrefix.ReplaceAllString(echoedArguments.ReplaceAllString(err.Error(), ""), "$1")
}

// Version is the module's version, with the commit it was built from if that is known.
func Version() string {
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

// Show writes a report to stdout at once, and returns any error. A closed pipe is no error: the
// reader has read enough.
func Show(s *Streams, write func(page.Sheet)) error {
	var b bytes.Buffer
	to := s.Sheet()
	to.Writer = &b
	write(to)
	if _, err := s.Out.Write(b.Bytes()); err != nil && !errors.Is(err, syscall.EPIPE) {
		return fmt.Errorf("stdout: %w", err)
	}
	return nil
}

// CPU is the name of this machine's processor.
func CPU() string {
	if info, err := cpu.Info(); err == nil && len(info) > 0 {
		return strings.TrimSpace(info[0].ModelName)
	}
	return "unknown CPU"
}
