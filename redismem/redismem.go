// Package redismem models how many bytes Redis allocates for its data, which is more than the bytes
// of names and values. The methods of [Server] have keys and strings; [Hash] has hashes. A whole
// key space is the sum over its keys of [Server.KeyValue], or of [Server.Key] and [Hash.Bytes],
// plus [Server.Tables].
//
// The zero [Server] is Redis 7.0 with jemalloc, on a 64-bit machine, with hash tables that are not
// growing. [Of] reads the [Layout] and allocator of a server from INFO. Tests compare each layout
// with a server's used_memory, and with its MEMORY USAGE, which counts less: see the field
// MemoryUsage.
//
// Other versions were not measured. Redis 7.2 and Valkey 7.2 are almost the same as Redis 7.0.
// Redis 7.4 and 8.0 and Valkey 8.0 take up to 16 bytes less per key, Valkey 8.1 and 9.0 up to 16
// bytes more than Valkey 9.1. [Candidates] has the models to choose from by MEMORY USAGE.
package redismem

import (
	"math"
	"math/bits"
	"strconv"
	"strings"
)

// Layout is the memory layout of keys and values, by server version.
type Layout uint8

// The layouts that were measured. [Of] chooses the nearest.
const (
	// Redis70 is Redis 7.0: a key's name, its entry in the table of keys and its value are separate
	// allocations.
	Redis70 Layout = iota

	// Redis82 is Redis 8.2: a key's name, its expiry and a short value share one allocation of up
	// to 64 bytes. Most keys need no entry beside the table.
	Redis82

	// Valkey91 is Valkey 9.1: a key's name, its expiry and a short value share one allocation of up
	// to 128 bytes. So do a hash's field and its value. Tables have buckets of 64 bytes for 7 keys
	// or fields.
	Valkey91
)

// Server has the build and settings of a server that the model depends on. The zero value is a
// single server as built by Debian, with Redis' default settings.
type Server struct {
	// Layout is the layout of the server's version. Default Redis70.
	Layout Layout

	// Libc means that the allocator is the GNU C library's malloc and not jemalloc: mem_allocator
	// of INFO is "libc". Sizes are counted as in used_memory, without malloc's own 8 bytes per
	// allocation.
	Libc bool

	// FineClasses means that the allocator also has classes of 24, 40 and 56 bytes. The jemalloc in
	// Redis' source has them (it is built with a quantum of 8 bytes), and so have the official
	// images. The jemalloc of Debian and Ubuntu, which their Redis uses, does not. INFO does not
	// report them, but MEMORY USAGE shows them: a string of 17 to 20 bytes then takes 8 bytes less.
	FineClasses bool

	// Cluster is the setting cluster-enabled.
	Cluster bool

	// MemoryUsage counts like the command MEMORY USAGE with SAMPLES 0, for comparison, instead of
	// the allocated bytes. The entry of a key or a field is 24 bytes, though the allocator may take
	// 32. A shared number is 16 bytes, and an expiry none. In the layouts after Redis70 the entries
	// of keys are not counted.
	MemoryUsage bool

	// Unshared means that whole numbers from 0 to 9999 are separate values. By default all keys
	// share them, unless maxmemory is set with a policy of LRU or LFU.
	Unshared bool

	// HashMaxListpackEntries is the setting of that name: the maximum number of fields of a hash in
	// one listpack. Default 512; below 0 for a setting of 0.
	HashMaxListpackEntries int

	// HashMaxListpackValue is the setting of that name: the maximum bytes of a field or value of a
	// hash in one listpack. Default 64; below 0 for a setting of 0.
	HashMaxListpackValue int
}

const (
	objectSize  = 16 // redisObject, of every value
	entrySize   = 24 // dictEntry: pointers to the key, the value and the next entry
	slotSize    = 16 // clusterDictEntryMetadata: the keys before and after in the same slot
	embeddedMax = 44 // OBJ_ENCODING_EMBSTR_SIZE_LIMIT: up to here the string is in the same allocation
	sharedMax   = 9999
	tableMin    = 4  // DICT_HT_INITIAL_SIZE
	linkSize    = 16 // dictEntryNoValue: pointers to the key and the next entry
	pointerSize = 8

	slotDictSize      = 2496 // dict and its metadata, with histograms of sizes
	slotExpirySize    = 64   // the same without them
	slotHashtableSize = 104  // hashtable of Valkey and its metadata

	expirySize = 8
	expiryFrom = 128 // bytes of a name, from which on there is room for an expiry in any case
	usualName  = 24
	wholeMax   = 20 // bytes of the longest whole number: the least of 64 bits with its sign
)

// Of is the model of a server by the fields of its INFO: the server's version, mem_allocator and
// cluster_enabled. FineClasses is set for Redis 8.2 and later and Valkey 8.1 and later, whose
// packages come with the jemalloc of their source; for earlier versions see there. A version that
// was not measured gets the nearest layout; see [Candidates].
func Of(info map[string]string) Server { return Candidates(info)[0] }

// Candidates are the models that a server may have by its INFO, which does not report everything.
// The first is [Of], and one of them has the least difference to MEMORY USAGE of the server's keys.
// A measured version has at most two: with FineClasses and without. Another version has those of
// each layout, and of both allocators if INFO names neither.
func Candidates(info map[string]string) []Server {
	first := Server{Cluster: info["cluster_enabled"] == "1", Libc: info["mem_allocator"] == "libc"}
	version, measured := info["redis_version"], "7.0."
	if valkey := info["valkey_version"]; valkey != "" {
		if version, measured = valkey, "9.1."; atLeast(version, 8, 1) {
			first.Layout = Valkey91
		}
	} else if atLeast(version, 8, 2) {
		first.Layout, measured = Redis82, "8.2."
	}
	first.FineClasses = first.Layout != Redis70 && !first.Libc
	layouts, allocators := []Layout{Redis70, Redis82, Valkey91}, []bool{first.Libc}
	if strings.HasPrefix(version, measured) {
		layouts = []Layout{first.Layout}
	} else if !first.Libc && !strings.HasPrefix(info["mem_allocator"], "jemalloc") {
		allocators = []bool{false, true}
	}
	all := []Server{first}
	for _, layout := range layouts {
		for _, libc := range allocators {
			for _, fine := range []bool{false, true} {
				s := Server{Layout: layout, Libc: libc, FineClasses: fine, Cluster: first.Cluster}
				if s != first && !(libc && fine) {
					all = append(all, s)
				}
			}
		}
	}
	return all
}

func atLeast(version string, major, minor int) bool {
	first, rest, _ := strings.Cut(version, ".")
	second, _, _ := strings.Cut(rest, ".")
	a, _ := strconv.Atoi(first)
	b, _ := strconv.Atoi(second)
	return a > major || a == major && b >= minor
}

// class is the size in bytes that the allocator takes for an allocation of n bytes. The size
// classes of jemalloc are 8, the multiples of 16 up to 128, and then four per doubling
// (jemalloc(3), "Size classes"); see FineClasses for further ones. The classes of libc are 24, 40,
// 56 and so on. libc may take 16 bytes more when it reuses freed memory. From 128 KiB on it maps
// whole pages, as long as the program has freed none of those (mallopt(3), M_MMAP_THRESHOLD).
func (s Server) class(n int) int {
	switch {
	case s.Libc:
		const before, page = 8, 4096 // bytes of each piece, which is a multiple of 16 and at least 32
		piece := max((n+before+15)&^15, 32)
		if piece >= 128<<10 {
			return (piece+before+page-1)&^(page-1) - 2*before
		}
		return piece - before
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

// String is the memory of a string value of n bytes: the object and its string, without the key and
// its place in the key table. A whole number takes less: see [Server.KeyValue]. From 32 KiB on
// Redis may keep a value in the buffer of its command. At the end of a class that is the next
// larger class.
//
// In the layouts after Redis70 a short value shares its key's allocation: String is then the bytes
// that it adds to a name of 24 bytes. See [Server.KeyString] for other names.
func (s Server) String(n int) int {
	if s.Layout != Redis70 {
		return s.KeyString(usualName, n, false) - s.Key(usualName, false)
	}
	if n <= embeddedMax {
		const header, terminator = 3, 1 // sdshdr8, even for the shortest: object.c
		return s.class(objectSize + header + n + terminator)
	}
	return s.class(objectSize) + s.text(n)
}

// value is the memory of the string value v, as in [Server.String]. A whole number of at most 64
// bits takes only the object. It takes nothing if all keys share it (object.c, tryObjectEncoding),
// or if it is in the key's own allocation, as in the layouts after Redis70.
func (s Server) value(v []byte) int {
	n, ok := whole(v)
	switch {
	case !ok:
		return s.String(len(v))
	case s.Layout != Redis70, n >= 0 && n <= sharedMax && !s.Unshared && !s.MemoryUsage:
		return 0
	}
	return s.class(objectSize)
}

// Key is the memory of a key with a name of n bytes, without its value. It includes the name, its
// entry in the key table, and another entry if it expires. It does not include the buckets of the
// tables: see [Server.Tables].
func (s Server) Key(n int, expires bool) int {
	if s.Layout != Redis70 {
		return s.class(s.object(objectSize, n, expires || n >= expiryFrom))
	}
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

// KeyString is the allocation for a key and its string value, which is no whole number. The name
// has name bytes, the value n. If the server allocates the two separately, it is the sum of
// [Server.Key] and [Server.String].
func (s Server) KeyString(name, n int, expires bool) int {
	if s.Layout == Redis70 {
		return s.Key(name, expires) + s.String(n)
	}
	const header, terminator = 3, 1 // sdshdr8, even for the shortest
	object, most, counted := objectSize, 64, nameHeader(name)
	if s.Layout == Valkey91 {
		object, most = objectSize-pointerSize, 128 // the value follows, and needs no pointer
	} else {
		counted = 1 // the header of a short name, even where it is longer: object.c, kvobjSet
	}
	together := object + 1 + counted + name + terminator + header + n + terminator
	size := s.object(object, name, false) + header + n + terminator
	// A value in the same allocation as its key stays there when the key gets an expiry, if there
	// is room for both.
	fits := n < 1<<8 && (s.Layout == Valkey91 || n <= embeddedMax) && together <= most
	if fits && (!expires || s.class(size) >= size+expirySize || together+expirySize <= most) {
		if expires {
			size += expirySize
		}
		return s.class(size)
	}
	return s.Key(name, expires) + s.text(n)
}

// KeyValue is the allocation for a key and its string value v: name is the length of the name in
// bytes. A whole number of at most 64 bits takes only an object, or nothing if all keys share it.
// All other values are as in [Server.KeyString]. KeyValue is for values after SET, not after APPEND
// or SETRANGE. It does not keep v.
func (s Server) KeyValue(name int, v []byte, expires bool) int {
	if _, ok := whole(v); ok || s.Layout == Redis70 {
		return s.Key(name, expires) + s.value(v)
	}
	return s.KeyString(name, len(v), expires)
}

// object is the size of an object with its key's name and, if it has one, its expiry; size is that
// of the object alone.
func (s Server) object(size, name int, expires bool) int {
	if expires {
		size += expirySize
	}
	const headerSize, terminator = 1, 1 // a byte says how long the header is
	return size + headerSize + nameHeader(name) + name + terminator
}

// table is the memory of a hash table for this number of keys, see [Server.Tables].
func (s Server) table(keys int) int {
	if keys <= 0 {
		return 0
	}
	switch s.Layout {
	case Redis82:
		buckets := 1 << bits.Len(uint(max(keys, tableMin)-1))
		used := -math.Expm1(float64(keys)*math.Log1p(-1/float64(buckets))) * float64(buckets)
		return 8*buckets + int(math.Round((float64(keys)-used)*float64(s.structure(linkSize))))
	case Valkey91:
		return s.bucketTable(keys)
	}
	return 8 << bits.Len(uint(max(keys, tableMin)-1))
}

// Tables is the allocation for both hash tables of a database: one of all keys, one of the keys
// that expire. A table has 8 bytes per bucket. The number of buckets is a power of two, at least
// the number of keys. While a table grows, its predecessor of half the size exists as well. A table
// keeps its buckets until nine in ten are empty.
//
// Redis 8.2 takes 16 bytes more for each key that shares a bucket. Valkey 9.1 has buckets of 64
// bytes for 7 keys, and adds one where a bucket overflows. Both are averages.
//
// In a cluster, Redis 8.2 and Valkey 9.1 have two tables for each of the 16,384 slots:
// count the keys of all masters together. Redis 8.2 takes 2.6 KB for each slot that has a key, and
// outside a cluster once.
func (s Server) Tables(keys, expiring int) int {
	var ofKeys, ofExpiring int // sizes of what a table has beside its buckets
	switch s.Layout {
	case Redis70:
		return s.table(keys) + s.table(expiring)
	case Redis82:
		ofKeys, ofExpiring = slotDictSize, slotExpirySize
	case Valkey91:
		ofKeys, ofExpiring = slotHashtableSize, hashtableSize
	}
	if s.Cluster {
		return s.slotTables(keys, ofKeys) + s.slotTables(expiring, ofExpiring)
	}
	size := s.table(keys) + s.table(expiring)
	if keys > 0 {
		size += s.class(ofKeys)
	}
	if expiring > 0 {
		size += s.class(ofExpiring)
	}
	return size
}

// slotTables is the memory of the tables of all slots; structure is the additional size per slot
// with keys.
func (s Server) slotTables(keys, structure int) int {
	const slots = 16384
	if keys <= 0 {
		return 0
	}
	mean := float64(keys) / slots
	if mean > 500 {
		return slots * (s.class(structure) + s.table(int(mean)))
	}
	// The keys of a slot are Poisson distributed, nearly.
	p, sum := math.Exp(-mean), 0.0
	for k := 1; k < int(mean+12*math.Sqrt(mean))+20; k++ {
		p *= mean / float64(k)
		sum += p * float64(s.class(structure)+s.table(k))
	}
	return int(math.Round(slots * sum))
}

// bucketTable is a table of buckets of seven. A bucket that overflows has six, and a pointer to the
// next one.
func (s Server) bucketTable(keys int) int {
	const bucketSize, perBucket = 64, 7
	buckets := 1
	for buckets <= (keys-1)/perBucket { // a product would overflow
		buckets *= 2
	}
	if buckets == 1 {
		return s.structure(bucketSize)
	}
	// The keys of a bucket are Poisson distributed, nearly.
	mean := float64(keys) / float64(buckets)
	p, further := math.Exp(-mean), 0.0
	for k := 1; k < 64; k++ {
		if p *= mean / float64(k); k > perBucket {
			further += p * math.Ceil(float64(k-perBucket)/(perBucket-1))
		}
	}
	return s.structure(buckets*bucketSize) + int(math.Round(further*float64(buckets)*float64(s.structure(bucketSize))))
}

// structure is the allocation of a C structure of n bytes.
func (s Server) structure(n int) int {
	if s.MemoryUsage {
		return n
	}
	return s.class(n)
}

// text is the allocation of n bytes with the header of sds.h and a terminator, the form of names
// and of the content of hashes.
func (s Server) text(n int) int {
	header := nameHeader(n)
	if n == 0 {
		header = 3 // for sdshdr5 has no place for an empty text to grow
	}
	const terminator = 1
	return s.class(header + n + terminator)
}

// nameHeader is the size of the header of sds.h for a text of n bytes that does not grow.
func nameHeader(n int) int {
	switch {
	case uint64(n) >= 1<<32:
		return 17
	case n >= 1<<16:
		return 9
	case n >= 1<<8:
		return 5
	case n >= 1<<5:
		return 3
	}
	return 1
}

// whole parses v if it is a whole number of 64 bits in Redis' canonical form: without plus sign,
// leading zeros or spaces (util.c, string2ll).
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
