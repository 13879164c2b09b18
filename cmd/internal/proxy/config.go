package proxy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/engine"
	"github.com/balekv/bale/cmd/internal/keygroup"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/internal/glob"
	"github.com/balekv/bale/internal/rediscmd"
)

const (
	maxConfig = 1 << 20 // bytes
	maxGroups = 100
)

// Config says what a proxy packs. It can be replaced while the proxy runs.
type Config struct {
	Groups        []Group `json:"groups"`                  // a key belongs to the first that matches
	ReadOnly      bool    `json:"read_only,omitzero"`      // unpack, and pack nothing
	RefuseScripts bool    `json:"refuse_scripts,omitzero"` // refuse scripts that declare a key in scope
}

// Group is keys whose values are packed in one way.
type Group struct {
	Match    []string `json:"match"`             // patterns of the keys
	Exclude  []string `json:"exclude,omitempty"` // and of those that are not meant
	Compress string   `json:"compress"`          // as engine.Parse takes it
	Group    string   `json:"group,omitempty"`   // of the dictionary; by default made of a single pattern

	setting engine.Setting
}

// ReadConfig reads a Config in JSON, and checks it. The prefix is that of the registry's keys.
func ReadConfig(path, prefix string) (c Config, err error) {
	f, err := os.Open(path)
	if err != nil {
		return c, fmt.Errorf("--config: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxConfig+1))
	if err != nil {
		return c, fmt.Errorf("--config: %w", err)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	switch err = d.Decode(&c); {
	case len(b) > maxConfig:
		err = errors.New("it is larger than 1 MiB")
	case err == nil && d.More():
		err = errors.New("something follows the object")
	case err == nil:
		err = c.check(prefix, func(i int, field string) string { return fmt.Sprintf("groups[%d].%s", i, field) })
	}
	if err != nil {
		return c, fmt.Errorf("%w: --config %s: %w", cli.ErrUsage, path, err)
	}
	return c, nil
}

// check completes a Config, and reports what cannot be. name is what a field of a group is called.
func (c *Config) check(prefix string, name func(i int, field string) string) error {
	if len(c.Groups) == 0 || len(c.Groups) > maxGroups {
		return fmt.Errorf("there are %d groups; 1 to %d are possible", len(c.Groups), maxGroups)
	}
	for i := range c.Groups {
		g := &c.Groups[i]
		fail := func(field string, err error) error { return fmt.Errorf("%s: %w", name(i, field), err) }
		for field, patterns := range map[string][]string{"match": g.Match, "exclude": g.Exclude} {
			for _, p := range patterns {
				if err := glob.Check(p); err != nil {
					return fail(field, fmt.Errorf("pattern %q %w", p, err))
				}
			}
		}
		if len(g.Match) == 0 {
			return fail("match", errors.New("it is empty; '*' is for all keys"))
		}
		for _, p := range g.Match {
			if literal, _ := glob.Prefix(p); strings.HasPrefix(literal, prefix) {
				return fail("match", fmt.Errorf("all keys of the pattern %q are the registry's (--prefix %q)", p, prefix))
			}
			for _, before := range c.Groups[:i] {
				if slices.Contains(before.Match, p) && len(before.Exclude) == 0 {
					return fail("match", fmt.Errorf("an earlier group has the pattern %q, so that no key is left for this one", p))
				}
			}
		}
		setting, err := engine.Parse(g.Compress)
		if err != nil {
			return fail("compress", err)
		}
		g.setting = setting
		if !setting.Dict && g.Group != "" {
			return fail("group", fmt.Errorf("it is for compress with +dict: %s+dict", setting))
		}
		if setting.Dict && g.Group == "" {
			if len(g.Match) == 1 {
				g.Group = keygroup.DictionaryGroup(g.Match[0])
			}
			if g.Group == "" {
				return fail("group", fmt.Errorf("compress %s needs the name of the dictionary's group: none can be made of match", setting))
			}
		}
		if g.Group != "" {
			if err := dict.CheckGroup(g.Group); err != nil {
				return fail("group", err)
			}
		}
	}
	return nil
}

// String describes the groups, a line each.
func (c Config) String() string {
	var b bytes.Buffer
	for _, g := range c.Groups {
		fmt.Fprintf(&b, "match %q", g.Match)
		if len(g.Exclude) > 0 {
			fmt.Fprintf(&b, ", exclude %q", g.Exclude)
		}
		fmt.Fprintf(&b, ": %s", g.Compress)
		if g.Group != "" {
			fmt.Fprintf(&b, ", dictionary of group %s", g.Group)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// scope is the keys of all groups.
func (c *Config) scope(prefix string) (s rediscmd.Scope) {
	for i, g := range c.Groups {
		if i == 0 {
			s = rediscmd.Scope{Match: g.Match, Exclude: g.Exclude, Prefix: prefix}
			continue
		}
		s.More = append(s.More, rediscmd.Scope{Match: g.Match, Exclude: g.Exclude, Prefix: prefix})
	}
	if c.RefuseScripts {
		s.RefuseScripts = "scripts see packed bytes, and the proxy is set to refuse them"
	}
	return s
}
