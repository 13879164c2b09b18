// Command dependencies writes docs/dependencies.md: the modules that bale's modules name in their
// go.mod themselves, with version, licence and state. It runs in the root of the repository: go run
// ./internal/dependencies > docs/dependencies.md.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// dormantAfter is the age of the newest version from which on a library counts as dormant.
const dormantAfter = 2 * 365 * 24 * time.Hour

// notes are what the age of a version does not say.
var notes = map[string]string{
	"github.com/mediocregopher/radix/v4": "measured by the lab alone, as people use it",
	"github.com/go-sql-driver/mysql":     "linked into `balebench` alone; who changes its files publishes them under the MPL",
}

// own is the path of bale's modules.
const own = "github.com/balekv/bale"

// folders are those of the modules that people install, and what they are for.
var folders = []struct{ path, about string }{
	{".", "the library"}, {"adapter/goredis", "store and hook for go-redis"}, {"adapter/rueidis", "store for rueidis"}, {"adapter/redigo", "store for redigo"}, {"adapter/valkey", "store for valkey-go"},
	{"extra/czstd", "libzstd"}, {"extra/formats", "serializers"}, {"extra/near", "a cache in the process"}, {"extra/observe", "metrics"}, {"extra/resilient", "retries, breakers, limits"}, {"cmd", "the command"},
}

// dependency is a module that one of ours requires.
type dependency struct {
	Path, Version, Dir string
	Time               time.Time
	usedBy             []string
}

func main() {
	if err := write(os.Stdout, "."); err != nil {
		fmt.Fprintln(os.Stderr, "dependencies:", err)
		os.Exit(1)
	}
}

// write writes the list for the repository in a folder.
func write(w io.Writer, root string) error {
	var all []*dependency
	for _, folder := range folders {
		dir := filepath.Join(root, folder.path)
		var mod struct {
			Require []struct {
				Path, Version string
				Indirect      bool
			}
		}
		if err := goJSON(dir, &mod, "mod", "edit", "-json"); err != nil {
			return err
		}
		for _, r := range mod.Require {
			if r.Indirect || strings.HasPrefix(r.Path, own) {
				continue
			}
			i := slices.IndexFunc(all, func(d *dependency) bool { return d.Path == r.Path })
			if i < 0 {
				d := &dependency{}
				if err := goJSON(dir, d, "mod", "download", "-json", r.Path+"@"+r.Version); err != nil {
					return err
				}
				if err := goJSON(dir, d, "list", "-m", "-json", r.Path+"@"+r.Version); err != nil {
					return err
				}
				i, all = len(all), append(all, d)
			}
			all[i].usedBy = append(all[i].usedBy, folder.path)
		}
	}
	slices.SortFunc(all, func(a, b *dependency) int { return strings.Compare(a.Path, b.Path) })
	return errors.Join(list(w, all), readers(w, root))
}

// declared matches a dependency of the readers' manifests: name and version.
var declared = []struct {
	language, manifest string
	pattern            *regexp.Regexp
}{
	{"Python", "readers/python/pyproject.toml", regexp.MustCompile(`"([a-z0-9-]+)(>=[0-9.]+)"`)},
	{"Node", "readers/node/package.json", regexp.MustCompile(`"(@?[a-z0-9/-]+)": "((?:\^|>=)[0-9.]+)"`)},
	{"Java", "readers/java/pom.xml", regexp.MustCompile(`(?s)<dependency>.*?<artifactId>([^<]+)</artifactId>\s*<version>([^<]+)</version>`)},
}

// readersAsOf is the day of the last look at these licences.
var readersAsOf = time.Date(2026, time.November, 24, 0, 0, 0, 0, time.UTC)

// licencesOfReaders are from the packages' own licence files and metadata. Empty ones
// are for tests or for the build alone.
var licencesOfReaders = map[string]string{
	"zstandard": "BSD-3-Clause", "google-crc32c": "Apache-2.0", "lz4": "BSD-3-Clause", "cramjam": "MIT", "redis": "MIT", "pytest": "", "setuptools": "",
	"@node-rs/crc32": "MIT", "ioredis": "MIT", "lz4-napi": "MIT", "snappy": "MIT", "zstd-napi": "Apache-2.0", "node": "", "typescript": "", "@types/node": "",
	"zstd-jni": "BSD-2-Clause", "commons-compress": "Apache-2.0", "snappy-java": "Apache-2.0", "lettuce-core": "MIT", "jedis": "MIT", "junit-jupiter": "", "gson": "",
}

// readers writes the packages that the readers for other languages name.
func readers(w io.Writer, root string) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "\n## The readers\n\nWhat programs in other languages need, or may need, beside a [reader](readers.md), by its manifest. Their licences were looked at on %s.\n\n"+
		"| Language | Package | Version | Licence |\n| --- | --- | --- | --- |\n", readersAsOf.Format(time.DateOnly))
	var errs []error
	for _, d := range declared {
		text, err := os.ReadFile(filepath.Join(root, d.manifest))
		if err != nil {
			return err
		}
		seen := map[string]bool{}
		for _, m := range d.pattern.FindAllStringSubmatch(string(text), -1) {
			name, version := m[1], m[2]
			licence, known := licencesOfReaders[name]
			if !known {
				errs = append(errs, fmt.Errorf("%s: %s has no licence in licencesOfReaders: look at it", d.manifest, name))
			}
			if licence != "" && !seen[name] {
				fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", d.language, name, version, licence)
			}
			seen[name] = true
		}
		if len(seen) < 3 {
			errs = append(errs, fmt.Errorf("%s: %d packages found", d.manifest, len(seen)))
		}
	}
	_, err := b.WriteTo(w)
	return errors.Join(append(errs, err)...)
}

// list writes the page.
func list(w io.Writer, all []*dependency) error {
	var b bytes.Buffer
	b.WriteString("# What bale is built of\n\nThis page is for reviewers of dependencies. After it you will be able to say which modules a program with bale links, and how old they are.\n\nThese are the direct requirements of bale's modules, with version in use, day of publication and licence. A module whose version is older than two years\n" +
		"is dormant: it may be finished, or left alone. A look by hand on " + asOf.Format(time.DateOnly) + " found none archived by its authors. `go run ./internal/dependencies` writes this page.\n\n" +
		"A program links what its imports need, and no more: frame, codec, stats and redismem need the standard library alone.\n\n")
	for _, f := range folders {
		fmt.Fprintf(&b, "- `%s`: %s\n", f.path, f.about)
	}
	b.WriteString("\n| Module | Version | Published | Licence | State | Used by |\n| --- | --- | --- | --- | --- | --- |\n")
	var errs []error
	for _, d := range all {
		licence, err := licenceOf(d.Dir)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", d.Path, err))
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | `%s` |\n", d.Path, d.Version, d.Time.Format(time.DateOnly), licence, state(d), strings.Join(d.usedBy, "`, `"))
	}
	_, err := b.WriteTo(w)
	return errors.Join(append(errs, err)...)
}

// state is by the age of the version on a day that is written down, so that the page does not
// change by itself.
func state(d *dependency) string {
	s := "kept"
	if asOf.Sub(d.Time) > dormantAfter {
		s = "dormant"
	}
	if note := notes[d.Path]; note != "" {
		s += "; " + note
	}
	return s
}

// asOf is the day of the last look at all of them.
var asOf = time.Date(2026, time.November, 22, 0, 0, 0, 0, time.UTC)

// licences are those that bale's own allows, each with a sentence of its text. That of BSD-2-Clause
// is in BSD-3-Clause, too.
var licences = []struct{ name, says string }{
	{"Apache-2.0", "Apache License Version 2.0"},
	{"BSD-3-Clause", "Neither the name"},
	{"BSD-2-Clause", "Redistributions in binary form must reproduce"},
	{"MPL-2.0", "Mozilla Public License Version 2.0"},
	{"MIT", "Permission is hereby granted, free of charge, to any person obtaining"},
}

// licenceOf reads the licence of a module.
func licenceOf(dir string) (string, error) {
	for _, pattern := range []string{"LICENSE*", "COPYING*", "LICENCE*"} {
		files, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return "", err
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				return "", err
			}
			words := strings.Join(strings.Fields(string(text)), " ")
			var found []string // of its parts
			for _, l := range licences {
				if strings.Contains(words, l.says) && !(l.name == "BSD-2-Clause" && slices.Contains(found, "BSD-3-Clause")) {
					found = append(found, l.name)
				}
			}
			if len(found) > 0 {
				return strings.Join(found, ", "), nil
			}
		}
	}
	return "unknown", fmt.Errorf("%s has no licence that is known here", dir)
}

// goJSON runs the go command in a folder and reads what it prints.
func goJSON(dir string, v any, args ...string) error {
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("go %s in %s: %w: %s", strings.Join(args, " "), dir, err, &said)
	}
	return json.Unmarshal(out, v)
}
