// Package redismem says how many bytes Redis allocates for what it stores, which is more than the bytes that one
// writes: [Class] for an allocation, [String] for a value of so many bytes, and the methods of [Server] for values
// by their content, for keys, and, with [Hash], for hashes. A whole key space is the sum over its keys of
// [Server.Key] and of the value, and [Table] of the number of keys, and Table of the number of those that expire.
//
// The model is Redis 7.0 with jemalloc, on a 64-bit machine, with hash tables that are not just growing. Tests
// compare it with a server's used_memory, and with its MEMORY USAGE, which counts less: see the field
// MemoryUsage.
//
// Other versions were not measured. As far as is known, Redis 7.2 is much the same. 7.4 has in a cluster a table
// of keys for each slot, in place of 16 bytes in each key's entry, and fields of hashes that can expire. Valkey 8.0
// keeps a key's name in its entry, and Redis 8.2 and Valkey 8.1 keep it beside the value. These take less for each
// key (Valkey 8.1 says 20 to 30 bytes less), so that for them the model is too high for small values, and close
// for large ones.
package redismem

import "math/bits"

// Server is what of a server's build and settings the model depends on. The zero value is a single server as
// Debian builds it, with Redis' own settings.
type Server struct {
	// FineClasses says that the allocator has classes of 24, 40 and 56 bytes as well. The jemalloc that comes with
	// Redis' source has them (it is built with a quantum of 8 bytes), and with it the official images; the
	// jemalloc of Debian and Ubuntu, which their Redis uses, has not. INFO does not tell; MEMORY USAGE does: a
	// string of 17 to 20 bytes takes 8 bytes less where there are such classes.
	FineClasses bool

	// Cluster is the setting cluster-enabled.
	Cluster bool

	// MemoryUsage counts as the command MEMORY USAGE does with SAMPLES 0, to compare with it, instead of what is
	// allocated: the entry of a key or a field is 24 bytes, though the allocator may take 32, a shared number is
	// 16, and an expiry nothing.
	MemoryUsage bool

	// Unshared says that whole numbers from 0 to 9999 are values of their own, which otherwise all keys share. They
	// are where maxmemory is set with a policy of LRU or LFU.
	Unshared bool

	// HashMaxListpackEntries is the setting of that name: the fields of the largest hash that is one listpack.
	// Default 512; below 0 for a setting of 0.
	HashMaxListpackEntries int

	// HashMaxListpackValue is the setting of that name: the bytes of the longest field or value in a hash that is
	// one listpack. Default 64; below 0 for a setting of 0.
	HashMaxListpackValue int
}

const (
	objectSize  = 16 // redisObject, of every value
	entrySize   = 24 // dictEntry: pointers to the key, the value and the next entry
	slotSize    = 16 // clusterDictEntryMetadata: the keys before and after in the same slot
	embeddedMax = 44 // OBJ_ENCODING_EMBSTR_SIZE_LIMIT: up to here the string is in the same allocation
	sharedMax   = 9999
	tableMin    = 4  // DICT_HT_INITIAL_SIZE
	wholeMax    = 20 // bytes of the longest whole number: the least of 64 bits with its sign
)

// Class is [Server.Class] of the zero Server.
func Class(n int) int { return Server{}.Class(n) }

// Class is the size in bytes that jemalloc takes for an allocation of n bytes: its size classes are 8, the
// multiples of 16 up to 128, and then four for each doubling (jemalloc(3), "Size classes"). See FineClasses for
// further ones.
func (s Server) Class(n int) int {
	switch {
	case n <= 8:
		return 8
	case n <= 64 && s.FineClasses:
		return (n + 7) &^ 7
	case n <= 128:
		return (n + 15) &^ 15
	}
	step := 1 << (bits.Len(uint(n-1)) - 3)
	return (n + step - 1) &^ (step - 1)
}

// String is [Server.String] of the zero Server.
func String(n int) int { return Server{}.String(n) }

// String is what Redis allocates for a string value of n bytes: the object and its string, without the key and
// its place in the key table. A whole number takes less: see [Server.Value]. From 32 KiB on Redis may keep a
// value in the buffer it was read into, which at the end of a class is the next larger one.
func (s Server) String(n int) int {
	if n <= embeddedMax {
		const header, terminator = 3, 1 // sdshdr8, even for the shortest: object.c
		return s.Class(objectSize + header + n + terminator)
	}
	return s.Class(objectSize) + s.text(n)
}

// Value is what Redis allocates for the string value v: as [Server.String] says, or, for a whole number of at most
// 64 bits, the object alone, and nothing if all keys share it (object.c, tryObjectEncoding). It holds for values
// as they are set, not for those that APPEND or SETRANGE grew. It does not keep v.
func (s Server) Value(v []byte) int {
	n, ok := whole(v)
	switch {
	case !ok:
		return s.String(len(v))
	case n >= 0 && n <= sharedMax && !s.Unshared && !s.MemoryUsage:
		return 0
	}
	return s.Class(objectSize)
}

// Key is what Redis allocates for a key with a name of n bytes, beside its value: the name, its entry in the key
// table, and another entry if it expires. The buckets of the tables are not in it: see [Table].
func (s Server) Key(n int, expires bool) int {
	entry := entrySize
	if s.Cluster {
		entry += slotSize
	}
	size := s.text(n) + s.structure(entry)
	if expires && !s.MemoryUsage {
		size += s.structure(entrySize) // which has no slot, and shares the name
	}
	return size
}

// Table is what Redis allocates for the buckets of a hash table with so many keys: 8 bytes for each of a power of
// two of them, at least one a key. Each database has a table for its keys and one for those that expire. While
// a table grows, the former one, of half the size, is there as well; and a table keeps its buckets until nine in ten
// are empty.
func Table(keys int) int {
	if keys <= 0 {
		return 0
	}
	return 8 << bits.Len(uint(max(keys, tableMin)-1))
}

// structure is the allocation of a C structure of n bytes.
func (s Server) structure(n int) int {
	if s.MemoryUsage {
		return n
	}
	return s.Class(n)
}

// text is the allocation of n bytes with the header of sds.h and a terminator, as names and what is in hashes are
// kept.
func (s Server) text(n int) int {
	header := 1 // sdshdr5, which has no place for an empty text to grow
	switch {
	case uint64(n) >= 1<<32:
		header = 17
	case n >= 1<<16:
		header = 9
	case n >= 1<<8:
		header = 5
	case n >= 1<<5 || n == 0:
		header = 3
	}
	const terminator = 1
	return s.Class(header + n + terminator)
}

// whole reads v if it is a whole number of 64 bits in the one way of writing it that Redis gives back: without plus
// sign, leading zeros or spaces (util.c, string2ll).
func whole(v []byte) (n int64, ok bool) {
	if len(v) == 0 || len(v) > wholeMax {
		return 0, false
	}
	digits, limit := v, uint64(1<<63-1)
	if v[0] == '-' {
		digits, limit = v[1:], 1<<63
	}
	if len(digits) == 0 || digits[0] == '0' && len(v) > 1 {
		return 0, false
	}
	var u uint64 // holds any 19 digits; of 20 none is within the limit
	for i, d := range digits {
		if d < '0' || d > '9' || i == 19 {
			return 0, false
		}
		u = u*10 + uint64(d-'0')
	}
	if u > limit {
		return 0, false
	}
	if len(digits) < len(v) {
		return -int64(u), true
	}
	return int64(u), true
}
