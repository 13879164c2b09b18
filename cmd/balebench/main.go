// Command balebench measures serializers, compressors and clients end to end through a real Redis,
// and compares such runs. Run balebench --help.
package main

import (
	"fmt"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/balekv/bale/cmd/internal/ab"
	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/compare"
	"github.com/balekv/bale/cmd/internal/dataset"
	"github.com/balekv/bale/cmd/internal/httplab"
	"github.com/balekv/bale/cmd/internal/lab"
	"github.com/balekv/bale/cmd/internal/origin"
	"github.com/balekv/bale/cmd/internal/study"
)

func main() {
	origin.Child()
	app.Main()
}

var app = cli.App{
	Name: "balebench", About: "Measures what packing saves and costs: serializers, compressors and clients end to end through a real Redis.",
	Grammar: func() any { return new(grammar) },
	Options: []kong.Option{
		kong.Vars{
			"builtin": strings.Join(dataset.Names(), ", "), "codecs": strings.Join(dataset.Codecs(), ", "),
			"clients": lab.ClientSyntax, "profiles": strings.Join(lab.ProfileKinds, ", "), "min_key": fmt.Sprint(lab.MinKeySize),
			"http_clients": httplab.ClientSyntax, "http_default": httplab.Defaults,
			"default_gate": compare.DefaultGate().String(), "default_blocks": fmt.Sprint(ab.DefaultBlocks), "default_timeout": ab.DefaultTimeout.String(), "studies": strings.Join(study.Names(), ", "),
		},
		kong.Groups{
			"data": "Values:", "what": "What is compared:", "load": "Load:", "server": "Server:", "measuring": "Measuring:", "results": "Results:",
		},
	},
}

// grammar is the command line.
type grammar struct {
	Run     runCommand       `cmd:"" help:"Measure serializers and compressors end to end through a real Redis, on your data."`
	Study   studyCommand     `cmd:"" help:"Run one of the built-in comparisons, and sum up what it shows."`
	HTTP    httpCommand      `cmd:"" name:"http" help:"Measure HTTP clients and their policies against a server that takes its time."`
	Compare compareCommand   `cmd:"" help:"Say which measurements of two runs got better or worse, and where noise hides it."`
	AB      abCommand        `cmd:"" name:"ab" help:"Compare two commands that print Go benchmarks, or just take time: they run in turn, A B B A."`
	Version kong.VersionFlag `help:"Print the version and end."`
}
