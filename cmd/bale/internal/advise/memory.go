package advise

import (
	"math"
	"slices"

	"github.com/balekv/bale/redismem"
)

// What a hash table takes once, beside its fields (redisObject and dict of Redis 7.0).
const (
	objectSize = 16
	dictSize   = 56
)

// memory is the model of what the server allocates.
type memory struct {
	redismem.Server
	zeros []byte
}

// key is a key's own bytes, without its value.
func (m *memory) key(e *entry) int64 { return int64(m.Key(len(e.name), e.expires)) }

// string is a string of a size; start is all of it if it is short enough to be a number.
func (m *memory) string(start []byte, size int64) int64 {
	if int64(len(start)) == size {
		return int64(m.Value(start))
	}
	return int64(m.String(int(size)))
}

// hash is a hash whose items have the sizes that stored says, or their own if it is nil. It stays in the encoding that it has. Of one that
// was read in part the rest is taken to be like it.
func (m *memory) hash(e *entry, stored []int64) int64 {
	h := redismem.Hash{Server: m.Server}
	h.Server.HashMaxListpackEntries, h.Server.HashMaxListpackValue = math.MaxInt, math.MaxInt
	if e.encoding == "hashtable" {
		h.Server.HashMaxListpackEntries = -1
	}
	for i, it := range e.items {
		v := it.head
		if stored != nil && stored[i] != it.size || it.size != int64(len(v)) {
			n := it.size
			if stored != nil {
				n = stored[i]
			}
			v = m.blank(n)
		}
		h.Add(it.name, v)
	}
	bytes := int64(h.Bytes())
	if n, read := e.size, int64(len(e.items)); n > read && e.encoding == "hashtable" {
		fixed, table := int64(m.Class(objectSize)+m.Class(dictSize)), int64(redismem.Table(int(read)))
		bytes = (bytes-fixed-table)*n/read + fixed + int64(redismem.Table(int(n)))
	}
	return bytes
}

// blank is a value of a size that is no number; the model looks at nothing else.
func (m *memory) blank(n int64) []byte {
	m.zeros = slices.Grow(m.zeros[:0], int(n))[:n]
	return m.zeros
}
