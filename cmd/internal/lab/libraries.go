package lab

import (
	"slices"
	"strings"

	"github.com/balekv/bale/cmd/internal/dataset"
	"github.com/balekv/bale/cmd/internal/engine"
	"github.com/balekv/bale/cmd/internal/outcome"
	"github.com/balekv/bale/frame"
)

// libraries are what does the work in a run: serializers, then compressors, then clients, each
// once.
func libraries(c *Config) (all []outcome.Library) {
	add := func(l outcome.Library) {
		if !slices.Contains(all, l) {
			all = append(all, l)
		}
	}
	module := func(name, path, note string) outcome.Library {
		return outcome.Library{Name: name, Module: path, Version: dataset.ModuleVersion(path), Note: note}
	}
	codecs := dataset.CodecInfos()
	for _, name := range c.Codecs {
		if i := slices.IndexFunc(codecs, func(i dataset.CodecInfo) bool { return i.Name == name }); i >= 0 {
			add(outcome.Library{Name: name, Module: codecs[i].Library, Version: codecs[i].Version(), Note: codecs[i].Note})
		}
	}
	for _, s := range c.Compress {
		switch {
		case s.Algorithm == frame.Stored:
		case s.Algorithm == frame.Zstd && !s.Go && engine.Default != nil:
			library, version, _ := strings.Cut(engine.Name, " ")
			add(outcome.Library{Name: s.Algorithm.String(), Module: library, Version: version})
		default:
			name := engine.Setting{Setting: s.Setting, Go: s.Go}
			name.Level = ""
			add(module(name.String(), compressorModule(s.Algorithm), ""))
		}
	}
	for _, s := range c.Clients {
		path, note := clientModule(s.Name)
		add(module(s.Name, path, note))
	}
	return all
}

func compressorModule(a frame.Algorithm) string {
	if a == frame.LZ4 {
		return "github.com/pierrec/lz4/v4"
	}
	return "github.com/klauspost/compress"
}

// clientModule is where a client comes from, and what to know of it.
func clientModule(name string) (path, note string) {
	switch name {
	case "goredis":
		return "github.com/redis/go-redis/v9", ""
	case "rueidis":
		return "github.com/redis/rueidis", ""
	case "redigo":
		return "github.com/gomodule/redigo", ""
	case "radix":
		return "github.com/mediocregopher/radix/v4", "dormant"
	}
	return "", ""
}
