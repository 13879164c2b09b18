// Command bale keeps values in Redis small. Run bale --help.
package main

import (
	"github.com/alecthomas/kong"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/dict"
)

func main() { app.Main() }

var app = cli.App{
	Name: "bale", About: "Keeps values in Redis small. What that saves and costs on your values is measured by balebench.",
	Grammar: func() any { return new(grammar) },
	Options: []kong.Option{kong.Vars{"prefix": dict.DefaultPrefix}},
}

// grammar is the command line.
type grammar struct {
	Advise  adviseCommand    `cmd:"" help:"Say what compression and dictionaries would save of a live Redis, an RDB file, or values in files."`
	Train   trainCommand     `cmd:"" help:"Train a compression dictionary on values from files or a live Redis, and say what it saves."`
	Dict    dictCommand      `cmd:"" help:"List, publish, activate, remove, collect, export and import dictionaries."`
	Migrate migrateCommand   `cmd:"" help:"Pack what a Redis holds, in place, while programs run, or unpack it again."`
	Run     runCommand       `cmd:"" help:"Show, pause, resume and abort runs that many processes share (bale migrate --run)."`
	Proxy   proxyCommand     `cmd:"" help:"Stand between clients in any language, which know nothing of bale, and a Redis with packed values."`
	Verify  verifyCommand    `cmd:"" help:"Read every value of a Redis, and say which cannot be unpacked."`
	Pack    packCommand      `cmd:"" help:"Pack stdin to stdout."`
	Unpack  unpackCommand    `cmd:"" aliases:"cat" help:"Unpack stdin to stdout, or print the value of a key (bale cat KEY); what is not packed comes out as it is."`
	Inspect inspectCommand   `cmd:"" help:"Explain a stored value field by field."`
	Stats   statsCommand     `cmd:"" help:"Sum up what a program's operations did, from the files of events it wrote."`
	Bench   labCommand       `cmd:"" passthrough:"" aliases:"study,compare" help:"Say where the lab is: it is a command of its own, balebench."`
	Version kong.VersionFlag `help:"Print the version and end."`
}

// labCommand stands where the lab was.
type labCommand struct {
	Args []string `arg:"" optional:"" hidden:""`
}

// movedError points to the lab. It is cli.ErrUsage, without that prefix.
type movedError struct{}

func (movedError) Error() string {
	return "the lab is a command of its own, balebench: go install github.com/balekv/bale/cmd/balebench@latest, " +
		"or go run ./cmd/balebench in the repository; begin with balebench run --quick"
}

func (movedError) Is(target error) bool { return target == cli.ErrUsage }

func (labCommand) Run() error { return movedError{} }
