package advise

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/balekv/bale/cmd/internal/keygroup"
	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/cmd/internal/printable"
	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
)

// next shows the next step for the largest saving, of groups whose pattern catches no keys of
// others where there is one. The others work in the same way.
func (a *Advice) next(o *Options) {
	a.Next, a.at, a.match = []Step{}, o.at(), o.Match
	i := -1
	for _, fits := range []func(g *Group) bool{
		func(g *Group) bool { return g.Keys > 1 && g.Match != "" && len(a.caught(g)) == 0 },
		func(g *Group) bool { return g.Keys > 1 && g.Match != "" }, // its pattern is not its own
		func(g *Group) bool { return g.Keys > 1 },
		func(*Group) bool { return true }, // a single key is no family
	} {
		if i < 0 {
			i = slices.IndexFunc(a.Groups, func(g Group) bool { return g.Chosen >= 0 && fits(&g) })
		}
	}
	if i < 0 {
		return
	}
	g := &a.Groups[i]
	chosen := g.Options[g.Chosen]
	n := &nexter{
		setting: chosen.Setting, maxSize: chosen.Dictionary, match: g.Match,
		url: a.at, registry: o.Registry != "", file: g.file,
	}
	n.name = keygroup.DictionaryGroup(cmp.Or(g.Match, g.Name))
	if a.Server == nil || o.HideKeys || dict.CheckGroup(n.name) != nil {
		n.name = "values"
	}
	if n.match == "" {
		n.match = "PATTERN" // of keys that are hidden, or come later
	}
	others, escaped := -1, []string{}
	for _, o := range a.Groups {
		if o.Chosen < 0 {
			continue
		}
		others++
		if o.Match != "" && o.Match != o.Name && o.Name != g.Name && len(escaped) < caughtShown {
			escaped = append(escaped, fmt.Sprintf("For %s these are %s %s. ", o.Name,
				printable.Option("--match", o.Match), printable.Option("--group", o.Match)))
		}
	}
	if chosen.Dictionary > 0 {
		a.Next = n.withDictionary()
	} else {
		a.Next = n.plain()
	}
	if s, _ := compress.Parse(chosen.Setting); s.Algorithm == frame.S2 {
		a.Next[0].What += " The readers in Python, Node and Java read no s2: for those take a setting of zstd (--all shows what it saves)."
	}
	a.Next[0].What += meaning(n.url)
	if g.Match == "" {
		a.Next[0].What += " PATTERN is for the pattern of their keys."
	}
	a.Next[0].What += a.warnBeyond(g.Match)
	most, warned := true, 0 // g saves most; of groups that catch others' keys
	for j := range a.Groups {
		o := &a.Groups[j]
		if o.Chosen < 0 {
			continue
		}
		most = most && o.Saving.Estimate <= g.Saving.Estimate
		if o.Match == "" || warned >= caughtShown && j != i {
			continue
		}
		// Of the others' patterns, those that matter to these steps.
		if caught := a.caught(o); len(caught) > 0 && (j == i || slices.Contains(caught, g.Name)) {
			warned++
			a.Next[0].What += fmt.Sprintf(" BEWARE: the pattern %s catches keys of %s as well; "+
				"HookOptions.Exclude leaves them out of the hook, and bale migrate packs them, too.", o.Match, strings.Join(caught, ", "))
		}
	}
	why := ", which saves most"
	switch {
	case most:
	case len(a.caught(g)) == 0:
		why += " of those whose pattern is only theirs"
	default: // but for a single key, or keys without a pattern
		why = ""
	}
	if others > 0 {
		a.Next[0].What = fmt.Sprintf("Begin with %s%s. For another group, bale advise prints the commands if you give it as --match and --group. %s%s", g.Name, why, strings.Join(escaped, ""), a.Next[0].What)
	}
}

// warnBeyond is a warning if a group's pattern is like keys that --match has left out.
func (a *Advice) warnBeyond(pattern string) string {
	if pattern == "" || !beyond(a.match, pattern) {
		return ""
	}
	return fmt.Sprintf(" BEWARE: the pattern %s goes beyond --match, to keys that were not looked at.", pattern)
}

// caught are other groups with keys that a group's pattern is like.
func (a *Advice) caught(g *Group) (names []string) {
	for i := range a.Groups {
		o := &a.Groups[i]
		if o.Name == g.Name && o.Type == g.Type || !reachable(o.Type) {
			continue
		}
		if slices.ContainsFunc(o.names, func(name string) bool { return keygroup.Match(g.Match, name) }) {
			name := o.Name
			if name == g.Name {
				name += " of type " + o.Type
			}
			names = append(names, name)
		}
	}
	return names
}

// caughtShown is how many groups are named whose patterns catch others' keys.
const caughtShown = 3

const (
	redisURL = `"$REDIS_URL"`
	meansURL = " In these commands REDIS_URL is the URL of the server, with a user who may write: " +
		"export REDIS_URL=redis://USER:PASSWORD@HOST:PORT."
)

// meaning explains the variables in what at returns.
func meaning(at string) (what string) {
	if strings.Contains(at, redisURL) {
		what = meansURL
	}
	if strings.Contains(at, `"$REGISTRY_URL"`) {
		what += " In these commands REGISTRY_URL is the URL of the registry."
	}
	return what
}

// at is the URL for --redis, and with --registry where that is another one, for a shell.
func (o *Options) at() string {
	url := keyspace.Shell(o.URL, "REDIS_URL")
	if o.URL == "" {
		url = redisURL
	}
	if o.Registry != "" {
		url += " --registry " + keyspace.Shell(o.Registry, "REGISTRY_URL")
	}
	return url
}

// nexter writes the next steps of a group.
type nexter struct {
	setting string
	maxSize int    // of the dictionary, in bytes
	name    string // of the group of dictionaries
	match   string
	url     string // for --redis, and with --registry where that is another one
	file    string // that the values come from, if they do

	registry bool // in another Redis
}

// pattern is --match, for the keys of the group.
func (n *nexter) pattern() string { return printable.Option("--match", n.match) }

func (n *nexter) withDictionary() []Step {
	from := fmt.Sprintf("--redis %s %s", n.url, n.pattern())
	if n.file != "" {
		from = printable.Option("--data", n.file)
	}
	at := fmt.Sprintf("--redis %s %s", n.url, printable.Option("--group", n.name))
	file := strings.ReplaceAll(n.name, ":", "-") + ".dict"
	return []Step{
		{What: "Make a dictionary of values as they are now, and see what it saves. It holds pieces of them: --exclude keeps the contents of fields out.",
			Code: fmt.Sprintf("bale train %s --compress %s --max-size %dKiB --out %s --json %[4]s.json", from, n.setting, (n.maxSize+1<<10-1)>>10, printable.Shell(file))},
		{What: "Put it into the registry in Redis. Nothing is written with it yet.",
			Code: fmt.Sprintf("bale dict publish %s %s --training %[1]s.json", printable.Shell(file), at)},
		{What: "Let every program read what will be packed, and still write as it does. This is for a go-redis client, rdb; bale.Cache takes the same packer.", Go: true, Code: n.program(true)},
		{What: "When all programs run with that, take ReadOnly out of them, and switch the dictionary on, a minute after it was published or later. From then on they write packed values.",
			Code: fmt.Sprintf("bale dict activate %s %s", printable.Shell(file), at)},
		n.migrate(" --dict current " + printable.Option("--group", n.name)),
		n.verify(), n.revert(),
	}
}

func (n *nexter) plain() []Step {
	return []Step{
		{What: "Let every program read what will be packed, and still write as it does. This is for a go-redis client, rdb; bale.Cache takes the same packer.", Go: true, Code: n.program(false)},
		{What: "When all programs run with that, take ReadOnly out of them. From then on they write packed values."},
		n.migrate(""), n.verify(), n.revert(),
	}
}

func (n *nexter) migrate(dictionary string) Step {
	command := fmt.Sprintf("bale migrate --redis %s %s --compress %s%s", n.url, n.pattern(), n.setting, dictionary)
	return Step{What: "Pack what is there already, while the programs run.", Code: command + " --dry-run\n" + command}
}

func (n *nexter) verify() Step {
	return Step{What: "See that every value can be read.", Code: fmt.Sprintf("bale verify --redis %s %s", n.url, n.pattern())}
}

func (n *nexter) revert() Step {
	return Step{What: "The way back, at any time: set ReadOnly again in all programs, and unpack the values.", Code: fmt.Sprintf("bale migrate --revert --redis %s %s", n.url, n.pattern())}
}

// program is what a program needs: lines that compile in a function that returns an error.
func (n *nexter) program(dictionary bool) string {
	const failed = "if err != nil {\n\treturn err\n}\n"
	setting, _ := compress.Parse(n.setting)
	written := fmt.Sprintf("compress.Setting{Algorithm: frame.%s, Level: %q}", goNames[setting.Algorithm], setting.Level)
	var code string
	rdb, data := "rdb", ""
	if n.registry {
		rdb, data = "registryRDB", "Data: goredis.NewStore(rdb), "
	}
	if dictionary {
		code = "registry, err := dict.NewRegistry(goredis.NewStore(" + rdb + "), dict.RegistryOptions{})\n" + failed +
			fmt.Sprintf("group, err := registry.Open(ctx, %q, dict.GroupOptions{%sSetting: %s})\n", n.name, data, written) + failed +
			"defer group.Close()\n" +
			"packer, err := bale.NewPacker(bale.PackerOptions{Compressors: group})\n" + failed
	} else {
		code = fmt.Sprintf("compressor, err := %s.New(nil)\n", written) + failed +
			"packer, err := bale.NewPacker(bale.PackerOptions{Compressors: &compress.Set{Write: compressor}})\n" + failed
	}
	return code + fmt.Sprintf("hook, err := goredis.NewHook(packer, goredis.HookOptions{Match: []string{%q}, ReadOnly: true})\n", n.match) + failed + "if err := hook.Install(rdb); err != nil {\n\treturn err\n}\n"
}

// goNames are the algorithms as Go spells them.
var goNames = map[frame.Algorithm]string{frame.Snappy: "Snappy", frame.S2: "S2", frame.LZ4: "LZ4", frame.Gzip: "Gzip", frame.Zstd: "Zstd"}
