package redismem

// Hash adds up the memory of one hash in Redis, field by field, without its key: [Hash.Add] for
// each field, then [Hash.Bytes]. The zero value is an empty hash on the zero [Server]. It allocates
// nothing and keeps no argument. It is not safe for concurrent use.
type Hash struct {
	Server Server // to be set before the first Add

	fields   int
	listpack int  // bytes of its entries, if it is a listpack
	table    int  // bytes of its entries, if it is a table
	long     bool // it has a field or value that is too long for a listpack
}

const (
	dictSize       = 56  // dict
	hashtableSize  = 88  // hashtable of Valkey, with what a hash has beside it
	entryTogether  = 128 // EMBED_VALUE_MAX_ALLOC_SIZE of Valkey: up to here a field and its value share an allocation
	listpackBeside = 7   // bytes of a listpack beside its entries: 6 before and 1 after them

	// With libc one in 20 allocations of fields reuses freed memory, and takes 16 bytes more, if one
	// HSET has hundreds of fields; and one in 400 if each has one (Valkey 9.1.2). This is between.
	reused = 40
)

// Add adds a field that the hash does not have yet.
func (h *Hash) Add(field, value []byte) {
	s := h.Server
	h.fields++
	h.listpack += s.listpackEntry(field) + s.listpackEntry(value)
	h.table += s.Field(len(field), len(value))
	h.long = h.long || max(len(field), len(value)) > setting(s.HashMaxListpackValue, 64)
}

// Field is the allocation for a field of a hash table, with its value; name and value are lengths
// in bytes. Fields of a listpack take less: see [Hash].
func (s Server) Field(name, value int) int {
	if s.Layout != Valkey91 {
		return s.structure(entrySize) + s.text(name) + s.text(value)
	}
	const header, terminator = 3, 1 // sdshdr8
	if n := nameHeader(name) + name + terminator + header + value + terminator; n <= entryTogether {
		return s.class(n)
	}
	return s.class(pointerSize+max(nameHeader(name), header)+name+terminator) + s.text(value)
}

// Bytes is the memory of the added fields in Redis: one listpack, or a hash table if there are too
// many or too long fields for it. A hash that was once a table stays one, even after deletions.
// Just after it grows beyond a power of two of fields, a hash still has its former table. That is
// up to 8 bytes a field, and further reads and writes remove it. The hash's object is counted if it
// is not the key's, as in Redis70.
func (h *Hash) Bytes() int { return h.BytesOf(h.fields) }

// BytesOf scales [Hash.Bytes] to a hash of another number of fields, all like the added ones. The
// encoding stays that of the added ones. It is 0 if none was added.
func (h *Hash) BytesOf(fields int) int {
	s := h.Server
	if h.fields == 0 || fields <= 0 {
		return 0 // Redis has no empty hashes
	}
	scaled := func(n int) int { return int(int64(n) * int64(fields) / int64(h.fields)) }
	object := 0
	if s.Layout == Redis70 {
		object = s.class(objectSize)
	}
	if !h.long && h.fields <= setting(s.HashMaxListpackEntries, 512) {
		return object + s.class(listpackBeside+scaled(h.listpack))
	}
	table := dictSize
	if s.Layout == Valkey91 {
		table = hashtableSize
	} else {
		s.Layout = Redis70 // whose entries are part of the fields
	}
	size := object + s.structure(table) + s.table(fields) + scaled(h.table)
	if s.Libc {
		size += 16 * fields / reused
	}
	return size
}

// setting is a limit as Redis has it: 0 in [Server] is the default, and below that 0.
func setting(n, or int) int {
	if n == 0 {
		return or
	}
	return max(n, 0)
}

// listpackEntry is the size of v as an entry of a listpack. The entry holds a whole number or a
// text, followed by its length, for reading backwards (listpack.c, lpEncodeGetType and
// lpEncodeBacklen).
func (s Server) listpackEntry(v []byte) int {
	n, ok := whole(v)
	if !ok {
		size := len(v)
		switch {
		case size < 1<<6:
			size += 1
		case size < 1<<12:
			size += 2
		default:
			size += 5
		}
		switch {
		case size <= 127:
			return size + 1
		case size < 1<<14-1, size == 1<<14-1 && s.Layout == Valkey91:
			return size + 2
		case size < 1<<21-1:
			return size + 3
		case size < 1<<28-1:
			return size + 4
		}
		return size + 5
	}
	switch {
	case n >= 0 && n <= 127:
		return 1 + 1
	case n >= -1<<12 && n < 1<<12:
		return 2 + 1
	case n >= -1<<15 && n < 1<<15:
		return 3 + 1
	case n >= -1<<23 && n < 1<<23:
		return 4 + 1
	case n >= -1<<31 && n < 1<<31:
		return 5 + 1
	}
	return 9 + 1
}
