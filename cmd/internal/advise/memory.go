package advise

import (
	"math"
	"slices"

	"github.com/balekv/bale/redismem"
)

// memory is the model of what the server allocates.
type memory struct {
	redismem.Server
	zeros []byte
}

// key is a key's own bytes, without its value.
func (m *memory) key(e *entry) int64 { return int64(m.Key(len(e.name), e.expires)) }

// string is a key with a string of a size; start is all of it if it is short enough to be a number.
func (m *memory) string(e *entry, start []byte, size int64) int64 {
	if int64(len(start)) == size {
		return int64(m.KeyValue(len(e.name), start, e.expires))
	}
	return int64(m.KeyString(len(e.name), int(size), e.expires))
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
		h.Add(it.name, m.value(it, n))
	}
	return int64(h.BytesOf(int(max(e.size, int64(len(e.items))))))
}

// field is what a field takes within a hash, beside others.
func (m *memory) field(e *entry, it item, stored int64) int64 {
	h := m.empty(e)
	h.Add(nil, nil)
	one := h.Bytes()
	h.Add(it.name, m.value(it, stored))
	return int64(h.Bytes() - one)
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

// value is a value of a size for the model, which looks at the content of numbers alone.
func (m *memory) value(it item, n int64) []byte {
	if n == it.size && n == int64(len(it.head)) {
		return it.head
	}
	return m.blank(n)
}

// blank is a value of a size that is no number; the model looks at nothing else.
func (m *memory) blank(n int64) []byte {
	m.zeros = slices.Grow(m.zeros[:0], int(n))[:n]
	return m.zeros
}
