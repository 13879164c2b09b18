package advise

import (
	"cmp"
	"math"

	"github.com/balekv/bale/redismem"
)

// memory is the model of what the server allocates.
type memory struct {
	redismem.Server

	// The model is of another version, or of libc's malloc, which may take 16 bytes more where it
	// uses freed memory again: a group's sizes are scaled by its MEMORY USAGE.
	inexact bool
	scale   float64 // 0 for 1
}

// zeros stands for values of which the model looks at the size alone. Nobody reads or writes it, so
// that it takes no memory, however large a value a forged frame claims.
var zeros [packedMax]byte

// calibrated is the model that fits MEMORY USAGE of a group's entries, which it resizes.
func (m *memory) calibrated(entries []*entry) *memory {
	var modelled, usage float64
	for _, e := range entries {
		if e.modelled > 0 && e.usage > 0 {
			modelled, usage = modelled+float64(e.modelled), usage+float64(e.usage)
		}
	}
	if !m.inexact || modelled == 0 {
		return m
	}
	c := *m
	c.scale = usage / modelled
	for _, e := range entries {
		if e.modelled > 0 {
			e.now = int64(math.Round(float64(e.now) * c.scale / cmp.Or(e.scale, 1)))
			e.scale = c.scale
		}
	}
	return &c
}

func (m *memory) scaled(n int) int64 {
	if m.scale == 0 {
		return int64(n)
	}
	return int64(math.Round(m.scale * float64(n)))
}

// key is a key's own bytes, without its value.
func (m *memory) key(e *entry) int64 { return m.scaled(m.Key(len(e.name), e.expires)) }

// string is a key with a string of a size; start is all of it if it is short enough to be a number.
func (m *memory) string(e *entry, start []byte, size int64) int64 {
	if int64(len(start)) == size {
		return m.scaled(m.KeyValue(len(e.name), start, e.expires))
	}
	return m.scaled(m.KeyString(len(e.name), int(size), e.expires))
}

// hash is the memory of a hash whose items have the sizes in stored, or their own if it is nil. It
// stays in its encoding. If only part of it was read, the rest is assumed to be similar.
func (m *memory) hash(e *entry, stored []int64) int64 {
	h := m.empty(e)
	for i, it := range e.items {
		n := it.size
		if stored != nil {
			n = stored[i]
		}
		h.Add(it.name, valueOf(it, n))
	}
	return m.scaled(h.BytesOf(int(max(e.size, int64(len(e.items))))))
}

// entry is a key with its value, as far as that was read.
func (m *memory) entry(e *entry) int64 {
	if e.kind == Hash {
		return m.key(e) + m.hash(e, nil)
	}
	return m.string(e, e.items[0].head, e.size)
}

// field is what a field takes within a hash, beside others.
func (m *memory) field(e *entry, it item, stored int64) int64 {
	h := m.empty(e)
	h.Add(nil, nil)
	one := h.Bytes()
	h.Add(it.name, valueOf(it, stored))
	return m.scaled(h.Bytes() - one)
}

// empty is a hash in the encoding that it has, or that it would have by the server's own settings.
func (m *memory) empty(e *entry) redismem.Hash {
	h := redismem.Hash{Server: m.Server}
	switch {
	case e.encoding == "listpack":
		h.Server.HashMaxListpackEntries, h.Server.HashMaxListpackValue = math.MaxInt, math.MaxInt
	case e.encoding == "hashtable" || e.size > int64(len(e.items)):
		h.Server.HashMaxListpackEntries = -1
	}
	return h
}

// valueOf is a value of a size for the model, which looks at the content of numbers alone.
func valueOf(it item, n int64) []byte {
	if n == it.size && n == int64(len(it.head)) {
		return it.head
	}
	return zeros[:min(n, packedMax)]
}
