package lab

import (
	"slices"

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
	var names []string
	for _, d := range c.Datasets {
		names = append(names, d.Codecs(c.Codecs)...)
	}
	for _, name := range names {
		if i := slices.IndexFunc(codecs, func(i dataset.CodecInfo) bool { return i.Name == name }); i >= 0 {
			add(outcome.Library{Name: name, Module: codecs[i].Library, Version: codecs[i].Version(), Note: codecs[i].Note})
		}
	}
	for _, s := range c.Compress {
		switch {
		case s.Algorithm == frame.Stored:
		case s.Cgo:
			add(outcome.Library{Name: "zstd/cgo", Module: "libzstd", Version: engine.Libzstd})
		case s.Algorithm == frame.Zstd:
			add(module("zstd", compressorModule(s.Algorithm), "values with a dictionary use bale's own engine"))
		default:
			add(module(s.Algorithm.String(), compressorModule(s.Algorithm), ""))
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
