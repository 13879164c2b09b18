// Package eventfile keeps operations in compact files: some 20 bytes an event. [NewWriter] makes
// the sink of a stats.Ring, and [Read] reads its file. bale stats sums up such files. No event
// contains a key or a value. Later versions read the files of earlier ones.
package eventfile

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/stats"
)

// A file is a magic, followed by batches until the end. Integers are uvarints, and
// times are zig-zag varints. A string is its length and its bytes. A batch is
//
//	length of what follows
//	From and To, in nanoseconds since 1970
//	dropped
//	number of new groups, and their names: groups are numbered from 0 in the order in which the file names them
//	number of events, and for each
//	    group, op, class, bits (1 timed), keys, hits, misses, errors, algorithm, dictionary, fresh, plain, stored
//	    if timed the times of all stages in nanoseconds: first their number
const fileMagic = "bale stats 1\n"

// maxFileBatch bounds in bytes what [Read] allocates for a batch: 4,096 events of the maximum
// length, and their groups.
const maxFileBatch = 4 << 20

// The limits for the groups of a file: [Read] keeps all their names.
const (
	maxFileGroups     = 10_000
	maxFileGroupBytes = 1 << 20 // of their names together
)

// OtherGroups is the group of events beyond the limits of a file: 10,000 groups, or 1 MiB of names.
const OtherGroups = "(other groups)"

// ErrFormat: the input is not a file of a [Writer], or it is damaged.
var ErrFormat = errors.New("eventfile: not a file of events")

// errGroups: the file names more groups than a Writer does. It comes with ErrFormat.
var errGroups = errors.New("too many groups")

// Writer is a [stats.Sink] that writes a file. Make one with [NewWriter]; a [stats.Ring] calls it
// from one goroutine at a time.
type Writer struct {
	w      io.Writer
	groups map[string]uint64
	names  int // bytes of the groups' names
	buf    []byte
	begun  bool
	broken error // a Write that failed in the middle
}

// NewWriter makes a Writer. Each batch is one Write to w, which stays the caller's.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w, groups: map[string]uint64{}} }

// Write implements [stats.Sink].
func (f *Writer) Write(_ context.Context, b *stats.Batch) error {
	if f.broken != nil {
		return fmt.Errorf("an earlier batch was cut: %w", f.broken)
	}
	p := binary.AppendVarint(nil, b.From.UnixNano())
	p = binary.AppendVarint(p, b.To.UnixNano())
	p = binary.AppendUvarint(p, b.Dropped)
	var fresh []string
	numbers := make([]uint64, len(b.Groups))
	for i, g := range b.Groups {
		number, known := f.groups[g]
		if !known && (len(f.groups)+1 >= maxFileGroups || f.names+len(g) > maxFileGroupBytes-len(OtherGroups)) {
			g = OtherGroups
			number, known = f.groups[g]
		}
		if !known {
			number = uint64(len(f.groups))
			f.groups[g] = number
			f.names += len(g)
			fresh = append(fresh, g)
		}
		numbers[i] = number
	}
	p = binary.AppendUvarint(p, uint64(len(fresh)))
	for _, g := range fresh {
		p = binary.AppendUvarint(p, uint64(len(g)))
		p = append(p, g...)
	}
	p = binary.AppendUvarint(p, uint64(len(b.Events)))
	for i := range b.Events {
		p = appendEvent(p, numbers[i], &b.Events[i])
	}
	f.buf = f.buf[:0]
	if !f.begun {
		f.buf = append(f.buf, fileMagic...)
	}
	f.buf = binary.AppendUvarint(f.buf, uint64(len(p)))
	f.buf = append(f.buf, p...)
	n, err := f.w.Write(f.buf)
	if err != nil {
		if n > 0 {
			f.broken = err
		} else {
			for _, g := range fresh {
				delete(f.groups, g) // their names are not there; they are the last numbers
				f.names -= len(g)
			}
		}
		return err
	}
	f.begun = true
	return nil
}

func appendEvent(p []byte, group uint64, e *stats.Event) []byte {
	p = binary.AppendUvarint(p, group)
	timed := byte(0)
	if e.Timed {
		timed = 1
	}
	p = append(p, byte(e.Op), byte(e.Class), timed)
	for _, v := range []uint64{uint64(e.Keys), uint64(e.Hits), uint64(e.Misses), uint64(e.Errors), uint64(e.Algorithm), uint64(e.DictionaryID), uint64(e.Fresh), uint64(e.Plain), uint64(e.Stored)} {
		p = binary.AppendUvarint(p, v)
	}
	if e.Timed {
		p = append(p, stats.Stages)
		for _, d := range e.Times {
			p = binary.AppendUvarint(p, uint64(max(d, 0)))
		}
	}
	return p
}

// Read reads a file and calls each for all its batches; each must not keep them. A file may end
// within a batch, for example if the program was killed. Read then returns ErrFormat and
// io.ErrUnexpectedEOF, after the batches before.
func Read(r io.Reader, each func(b *stats.Batch) error) error {
	from := source{r: r}
	in := bufio.NewReader(&from)
	magic := make([]byte, len(fileMagic))
	if _, err := io.ReadFull(in, magic); err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return err
	}
	if string(magic) != fileMagic {
		return fmt.Errorf("%w: it does not start with %q", ErrFormat, fileMagic)
	}
	var groups fileGroups
	var batch stats.Batch
	for {
		size, err := binary.ReadUvarint(in)
		if err == io.EOF {
			return nil
		}
		if err == nil && size > maxFileBatch {
			return fmt.Errorf("%w: a batch of %d bytes, more than %d", ErrFormat, size, maxFileBatch)
		}
		var p bytes.Buffer
		if err == nil {
			_, err = io.CopyN(&p, in, int64(size)) // grows with what is there, not with what is claimed
		}
		if err != nil {
			if err == io.EOF || err == io.ErrUnexpectedEOF {
				return fmt.Errorf("%w: it ends within a batch: %w", ErrFormat, io.ErrUnexpectedEOF)
			}
			if from.err == nil {
				return fmt.Errorf("%w: the size of a batch: %w", ErrFormat, err)
			}
			return err
		}
		d := decoder{p: p.Bytes()}
		d.batch(&batch, &groups)
		if len(groups.names) > maxFileGroups || groups.bytes > maxFileGroupBytes {
			return fmt.Errorf("%w: %w: more than %d, or more than %d bytes of names", ErrFormat, errGroups, maxFileGroups, maxFileGroupBytes)
		}
		if d.failed || len(d.p) > 0 {
			return fmt.Errorf("%w: a batch does not end where it should", ErrFormat)
		}
		if err := each(&batch); err != nil {
			return err
		}
	}
}

// source is a Reader that remembers its error, to separate read errors from format errors.
type source struct {
	r   io.Reader
	err error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}

// decoder reads a batch; once it has failed it reads zeros.
type decoder struct {
	p      []byte
	failed bool
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.p)
	if n <= 0 {
		d.failed, d.p = true, nil
		return 0
	}
	d.p = d.p[n:]
	return v
}

func (d *decoder) varint() int64 {
	v, n := binary.Varint(d.p)
	if n <= 0 {
		d.failed, d.p = true, nil
		return 0
	}
	d.p = d.p[n:]
	return v
}

// fileGroups are the groups that a file has named so far.
type fileGroups struct {
	names []string
	bytes int
}

// batch reads a batch. It stops at a group too many.
func (d *decoder) batch(b *stats.Batch, groups *fileGroups) {
	b.From, b.To = time.Unix(0, d.varint()), time.Unix(0, d.varint())
	b.Dropped = d.uvarint()
	for n := d.uvarint(); n > 0 && !d.failed; n-- {
		size := d.uvarint()
		if size > uint64(len(d.p)) {
			d.failed = true
			return
		}
		groups.names, groups.bytes = append(groups.names, string(d.p[:size])), groups.bytes+int(size)
		d.p = d.p[size:]
		if len(groups.names) > maxFileGroups || groups.bytes > maxFileGroupBytes {
			return
		}
	}
	b.Groups, b.Events = b.Groups[:0], b.Events[:0]
	for n := d.uvarint(); n > 0 && !d.failed; n-- {
		var e stats.Event
		group := d.uvarint()
		if group >= uint64(len(groups.names)) {
			d.failed = true
			return
		}
		e.Op, e.Class = stats.Op(d.uvarint()), stats.Class(d.uvarint())
		e.Timed = d.uvarint()&1 != 0
		e.Keys, e.Hits, e.Misses, e.Errors = int32(d.uvarint()), int32(d.uvarint()), int32(d.uvarint()), int32(d.uvarint())
		e.Algorithm, e.DictionaryID = frame.Algorithm(d.uvarint()), frame.DictionaryID(d.uvarint())
		e.Fresh = int32(d.uvarint())
		e.Plain, e.Stored = int(d.uvarint()), int(d.uvarint())
		if e.Timed {
			for stage, n := uint64(0), d.uvarint(); stage < n && !d.failed; stage++ {
				if t := d.uvarint(); stage < stats.Stages { // a later version may have more
					e.Times[stage] = time.Duration(t)
				}
			}
		}
		b.Groups, b.Events = append(b.Groups, groups.names[group]), append(b.Events, e)
	}
}
