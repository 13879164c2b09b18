package rdb

import (
	"bufio"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// ErrUntrusted: the file has an entry that a server would run, that takes memory on the file's word
// alone, or that this package does not know. It loads only with Options.Trust.
var ErrUntrusted = errors.New("untrusted RDB file")

// What stands where the type of a value may stand.
const (
	opSlotInfo  = 0xf4
	opFunction  = 0xf5
	opModuleAux = 0xf7
	opIdle      = 0xf8
	opFrequency = 0xf9
	opResize    = 0xfb
	opExpiryMS  = 0xfc
	opExpiry    = 0xfd
	opSelect    = 0xfe
	opEnd       = 0xff
)

const (
	// Lzf writes 3 bytes for at most 264: strings that claim more are forged.
	lzfRatio = 88

	// Tables of a server are made as large as the file says, before there is a key in them: 8 bytes
	// for each, or 16. The file of a server is exact.
	hintSlack = 1 << 16
)

// scan walks the file from end to end at the speed of the disk, without decoding a value and
// without memory for claimed sizes. It returns ErrUntrusted if loading would run code or take
// memory for missing keys, and ErrModules if it needs modules. A cut file is ErrDamaged. Entries
// that this version does not know are ErrUntrusted, because anything may follow them.
func scan(ctx context.Context, path string, size int64, valkey bool) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	s := scanner{r: bufio.NewReaderSize(reader{ctx, f}, 1<<20), left: size, valkey: valkey}
	if err := s.file(); err != nil {
		if cause := ctx.Err(); cause != nil {
			return fmt.Errorf("looking through %s: %w", path, cause)
		}
		return s.explain(path, size, err)
	}
	return nil
}

// reader reads until the context ends.
type reader struct {
	ctx context.Context
	io.Reader
}

func (r reader) Read(b []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(b)
}

// errCut says that the file ends where it should not.
var errCut = errors.New("it ends too early")

func (s *scanner) explain(path string, size int64, err error) error {
	at := size - s.left
	if errors.Is(err, errCut) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: %s: it ends within what begins before byte %d of %d", ErrDamaged, path, at, size)
	}
	if name, ok := errors.AsType[moduleError](err); ok {
		return name.in(path)
	}
	return fmt.Errorf("%w: %s: %w (before byte %d). It is loaded with --trust-rdb, which is for the files of your own servers; bale advise can also look at the live server",
		ErrUntrusted, path, err, at)
}

// moduleError is the name of a module type.
type moduleError string

func (e moduleError) Error() string { return string(e) }

func (e moduleError) in(path string) error {
	return fmt.Errorf("%w: %s has data of the module type %q: bale advise can look at the live server instead", ErrModules, path, string(e))
}

// scanner reads what is left of a file.
type scanner struct {
	r      *bufio.Reader
	left   int64
	valkey bool // 22 is a hash of Valkey 9

	keys, hinted uint64
}

func (s *scanner) file() error {
	if err := s.skip(9); err != nil { // the magic and the version: of ReadHeader
		return err
	}
	for {
		op, err := s.byte()
		if err != nil {
			return err
		}
		switch op {
		case opEnd:
			if s.hinted > 4*s.keys+hintSlack { // keys and those that expire, of databases and of slots
				return fmt.Errorf("it asks for tables of %d keys, and has %d", s.hinted, s.keys)
			}
			return nil
		case opFunction, 0xf6:
			return errors.New("it has a library of functions, whose Lua runs as it is loaded")
		case opModuleAux:
			return s.module()
		case aux:
			if err = s.fact(); err == nil {
				err = s.strings(1)
			}
		case opSelect, opIdle:
			_, err = s.number()
		case opFrequency:
			err = s.skip(1)
		case opExpiryMS:
			err = s.skip(8)
		case opExpiry:
			err = s.skip(4)
		case opResize:
			err = s.hints(2)
		case opSlotInfo:
			if _, err = s.number(); err == nil {
				err = s.hints(2)
			}
		default:
			if s.keys++; op == 6 || op == 7 {
				if err = s.strings(1); err == nil {
					err = s.module()
				}
			} else if err = s.strings(1); err == nil {
				err = s.value(op)
			}
		}
		if err != nil {
			return err
		}
	}
}

// factNames are the facts about a file that Redis up to 8.2 and Valkey up to 9.1 write. It leaves
// out "lua", a script, which servers before Redis 6.2.7 compile as they load it. Servers compare
// names only up to a NUL, and ignore case.
var factNames = map[string]bool{
	"redis-ver": true, "valkey-ver": true, "redis-bits": true, "ctime": true, "used-mem": true,
	"repl-stream-db": true, "repl-id": true, "repl-offset": true, "aof-preamble": true, "aof-base": true,
	"slot-info": true, "cluster-slot-states": true, // of Valkey in a cluster: other servers do not look at them
}

// fact walks over the name of a fact about the file.
func (s *scanner) fact() error {
	size, err := s.byte()
	if err != nil {
		return err
	}
	if size > 0x3f { // a length of more than a byte, a number, or compressed
		return errors.New("the name of a fact about it is in a form that no server writes")
	}
	if int64(size) > s.left {
		return errCut
	}
	name, err := s.r.Peek(int(size))
	switch {
	case err != nil:
		return err
	case strings.EqualFold(string(name), "lua"):
		return errors.New("it has a script, whose Lua servers before Redis 6.2.7 compile as they load it")
	case !factNames[string(name)]:
		return fmt.Errorf("it has a fact %q about itself, which this version of bale does not know", name)
	}
	return s.skip(uint64(size))
}

// hints are how large tables shall be.
func (s *scanner) hints(n int) error {
	for range n {
		hint, err := s.number()
		if err != nil {
			return err
		}
		if s.hinted += hint; hint > uint64(s.left)+hintSlack { // no key takes less than a byte
			return fmt.Errorf("it asks for tables of %d keys, and has %d bytes more", hint, s.left)
		}
	}
	return nil
}

// module names the module type of a value or of other data.
func (s *scanner) module() error {
	id, err := s.number()
	if err != nil {
		return err
	}
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	var name [9]byte
	for i := range name {
		name[i] = letters[id>>(64-6*(i+1))&63]
	}
	return moduleError(name[:])
}

// value walks over a value of a type.
func (s *scanner) value(kind byte) error {
	switch kind {
	case 0, 9, 10, 11, 12, 13, 16, 17, 20: // a string, or what is packed into one
		return s.strings(1)
	case 1, 2, 14: // list, set, quicklist
		return s.items(func() error { return s.strings(1) })
	case 3: // sorted set
		return s.items(func() error {
			if err := s.strings(1); err != nil {
				return err
			}
			n, err := s.byte()
			if err != nil || n >= 253 { // not a number, and the infinities
				return err
			}
			return s.skip(uint64(n))
		})
	case 4: // hash
		return s.items(func() error { return s.strings(2) })
	case 5: // sorted set with binary scores
		return s.items(func() error { return cmp.Or(s.strings(1), s.skip(8)) })
	case 18: // quicklist of listpacks
		return s.items(func() error { return s.numbersAndStrings(1, 1) })
	case 15, 19, 21:
		return s.stream(kind)
	case 22: // hash whose fields expire, of Valkey; of Redis a release candidate's
		if s.valkey {
			return s.items(func() error { return cmp.Or(s.strings(2), s.skip(8)) })
		}
	case 24: // hash whose fields expire, of Redis
		if err := s.skip(8); err != nil {
			return err
		}
		return s.items(func() error { return s.numbersAndStrings(1, 2) })
	case 25: // the same in a listpack
		return cmp.Or(s.skip(8), s.strings(1))
	}
	return fmt.Errorf("it has a value of type %d, which this version of bale does not know, and cannot tell what comes after it", kind)
}

// stream walks over a stream: entries, counters, and groups with what is pending and their
// consumers.
func (s *scanner) stream(kind byte) error {
	counters := 3 // length and last id
	if kind >= 19 {
		counters = 8 // first id, largest id deleted, entries added
	}
	if err := s.items(func() error { return s.strings(2) }); err != nil {
		return err
	}
	if err := s.numbersAndStrings(counters, 0); err != nil {
		return err
	}
	return s.items(func() error { // groups
		counters := 2 // last id
		if kind >= 19 {
			counters = 3 // entries read
		}
		if err := cmp.Or(s.strings(1), s.numbersAndStrings(counters, 0)); err != nil {
			return err
		}
		if err := s.items(func() error { return cmp.Or(s.skip(16+8), s.numbersAndStrings(1, 0)) }); err != nil { // an id, when, how often
			return err
		}
		return s.items(func() error { // consumers
			times := uint64(8)
			if kind >= 21 {
				times = 16
			}
			if err := cmp.Or(s.strings(1), s.skip(times)); err != nil {
				return err
			}
			return s.items(func() error { return s.skip(16) })
		})
	})
}

// items walks over as many items as a number says. Each takes a byte at least, so that the file's
// size bounds them.
func (s *scanner) items(item func() error) error {
	n, err := s.number()
	if err != nil {
		return err
	}
	if n > uint64(s.left) {
		return errCut
	}
	for range n {
		if err := item(); err != nil {
			return err
		}
	}
	return nil
}

func (s *scanner) numbersAndStrings(numbers, strings int) error {
	for range numbers {
		if _, err := s.number(); err != nil {
			return err
		}
	}
	return s.strings(strings)
}

// strings walks over strings: plain, as a number, or compressed.
func (s *scanner) strings(n int) error {
	for range n {
		size, special, err := s.length()
		if err != nil {
			return err
		}
		switch {
		case special && size <= 2:
			size = 1 << size
		case special && size == 3:
			if size, err = s.number(); err != nil {
				return err
			}
			full, err := s.number()
			if err != nil {
				return err
			}
			if full > lzfRatio*size+lzfRatio {
				return fmt.Errorf("it has a string of %d bytes that claims to be one of %d", size, full)
			}
		case special:
			return fmt.Errorf("it has a string of kind %d, which there is not", size)
		}
		if err := s.skip(size); err != nil {
			return err
		}
	}
	return nil
}

// number is a length that is one.
func (s *scanner) number() (uint64, error) {
	n, special, err := s.length()
	if err == nil && special {
		err = fmt.Errorf("it has a string of kind %d where a number stands", n)
	}
	return n, err
}

// length is a number, or how a string is written.
func (s *scanner) length() (n uint64, special bool, err error) {
	first, err := s.byte()
	if err != nil {
		return 0, false, err
	}
	low := uint64(first & 0x3f)
	switch first >> 6 {
	case 0:
		return low, false, nil
	case 1:
		second, err := s.byte()
		return low<<8 | uint64(second), false, err
	case 3:
		return low, true, nil
	}
	var b [8]byte
	number := b[:4]
	switch first {
	case 0x80:
	case 0x81:
		number = b[:]
	default:
		return 0, false, fmt.Errorf("it has a length of kind %#x, which there is not", first)
	}
	if s.left < int64(len(number)) {
		return 0, false, errCut
	}
	s.left -= int64(len(number))
	if _, err := io.ReadFull(s.r, number); err != nil {
		return 0, false, err
	}
	if first == 0x80 {
		return uint64(binary.BigEndian.Uint32(number)), false, nil
	}
	return binary.BigEndian.Uint64(number), false, nil
}

func (s *scanner) byte() (byte, error) {
	if s.left < 1 {
		return 0, errCut
	}
	s.left--
	return s.r.ReadByte()
}

func (s *scanner) skip(n uint64) error {
	if n > uint64(s.left) {
		return errCut
	}
	s.left -= int64(n)
	for n > 0 {
		part := min(n, 1<<30)
		if _, err := s.r.Discard(int(part)); err != nil {
			return err
		}
		n -= part
	}
	return nil
}
