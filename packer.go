package bale

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"time"

	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/frame"
)

// Compressor makes and reads the payloads of one algorithm; the packages below compress
// have them. It is an alias, so that those packages need not import this one.
type Compressor = compress.Compressor

const (
	defaultMinSize = 64       // bytes; smaller ones gain less than the header costs, and Redis allocates in steps of 16
	defaultMaxSize = 64 << 20 // bytes
	defaultBudget  = 256 << 20
	defaultMinGain = 0.05
)

// PackerOptions are the settings of a [Packer]; the zero value is useful.
type PackerOptions struct {
	// Compressors writes and reads the values. A *compress.Set has fixed ones. A *dict.Group follows
	// the dictionaries of a registry. Defaults to the zero Set: it writes zstd at its default level,
	// and reads every algorithm of this module. The Packer closes that default; the caller closes
	// others, after the Packer.
	Compressors Compressors

	// MinSize is the size in bytes below which a value is stored plain without being tried. With
	// math.MaxInt the Packer writes plain values, and reads packed ones; GetOrLoad of a Cache stores
	// their freshness with them, in a frame. Defaults to 64; at least 1.
	MinSize int

	// MinGain is the minimum saving for storing a value packed, as a part of its size. Below it a
	// plain value is cheaper to read. Defaults to 0.05; below 1. Negative means that a single byte
	// is enough.
	MinGain float64

	// NoChecksum leaves out the checksum over the content. This saves 4 bytes for each value, but a
	// wrong byte may go unnoticed. Values with a checksum are still verified.
	NoChecksum bool

	// MaxSize is the largest decoded value in bytes. A frame that claims more is ErrTooLarge, and
	// nothing is allocated for it. A larger value is stored plain, so that a Packer never writes a
	// frame that it would not read. Defaults to 64 MiB.
	MaxSize int

	// Budget bounds the decoded bytes of one operation on many values: a GetMany, GetEntries or
	// GetOrLoadMany, and a command or pipeline through the hook of package goredis. A value beyond
	// it is ErrBudget, and nothing is allocated for it; GetOrLoadMany loads it. Plain values do not
	// count. For values above 1 MiB it is also a limit across all callers of the Packer: together
	// they decode at most Budget bytes at a time, and others wait. Defaults to 256 MiB, or to
	// MaxSize if that is larger; at least MaxSize.
	Budget int

	// Strict treats a value with a frame's first bytes and a wrong header check as damaged:
	// ErrCorrupt. Otherwise it is a foreign value. Use Strict for caches where every writer packs:
	// packing escapes values that happen to start like a frame.
	Strict bool
}

// Compressors supplies a [Packer] with compressors. It is safe for concurrent use.
type Compressors interface {
	// Writer returns the current compressor for writing. The Packer calls it for each value, so it
	// must not block. The Packer uses the compressor right away.
	Writer() Compressor

	// Reader returns the compressor that reads payloads of an algorithm with a dictionary, 0 for
	// none. It may wait briefly to fetch the dictionary, but not beyond ctx. With a ctx that has
	// ended it returns what is at hand, and begins no fetch: a Batch first asks this way. An error
	// is one of ErrUnknownAlgorithm or ErrUnknownDictionary. Any other error means that fetching
	// the dictionary failed. The Packer then returns ErrUnknownDictionary.
	Reader(ctx context.Context, a frame.Algorithm, id frame.DictionaryID) (Compressor, error)

	// Packed receives each value that was tried, and its stored size in bytes, without the 11 that
	// say when a value of GetOrLoad expires. It must not keep the value, and must not block.
	Packed(plain []byte, stored int)

	// Unpacked receives each value from MinSize to MaxSize that was read, as it was before packing.
	// It must not keep the value, and must not block.
	Unpacked(plain []byte)
}

// Packer turns bytes into fewer bytes and back. It writes with one compressor and reads with many,
// so that a fleet can change settings while old values remain. Make one with [NewPacker]; it is
// safe for concurrent use.
type Packer struct {
	compressors Compressors
	own         *compress.Set // the default, for Close
	minSize     int
	minGain     float64
	maxSize     int
	budget      int
	gate        *gate
	noChecksum  bool
	strict      bool
}

// readerKey identifies the compressor of a frame: its algorithm and dictionary.
type readerKey struct {
	algorithm  frame.Algorithm
	dictionary frame.DictionaryID
}

// NewPacker makes a Packer. An option out of range is [ErrInvalid].
func NewPacker(o PackerOptions) (*Packer, error) {
	p := &Packer{
		compressors: o.Compressors,
		minSize:     o.MinSize,
		minGain:     o.MinGain,
		maxSize:     o.MaxSize,
		budget:      o.Budget,
		noChecksum:  o.NoChecksum,
		strict:      o.Strict,
	}
	if p.minSize == 0 {
		p.minSize = defaultMinSize
	}
	if p.maxSize == 0 {
		p.maxSize = defaultMaxSize
	}
	if p.budget == 0 {
		p.budget = max(defaultBudget, p.maxSize)
	}
	if p.minGain == 0 {
		p.minGain = defaultMinGain
	}
	switch {
	case p.minSize < 0:
		return nil, fmt.Errorf("bale: %w: MinSize is %d, must be at least 1, or 0 for %d", ErrInvalid, o.MinSize, defaultMinSize)
	case p.maxSize < 0:
		return nil, fmt.Errorf("bale: %w: MaxSize is %d, must be at least 1, or 0 for %d", ErrInvalid, o.MaxSize, defaultMaxSize)
	case p.budget < p.maxSize:
		return nil, fmt.Errorf("bale: %w: Budget is %d, must be at least MaxSize, %d, or 0 for %d", ErrInvalid, o.Budget, p.maxSize, max(defaultBudget, p.maxSize))
	case p.minGain >= 1 || math.IsNaN(p.minGain):
		return nil, fmt.Errorf("bale: %w: MinGain is %v, must be below 1, or 0 for %v", ErrInvalid, o.MinGain, defaultMinGain)
	}
	p.gate = newGate(p.budget)
	if p.compressors == nil {
		p.own = &compress.Set{}
		p.compressors = p.own
	}
	switch w := p.compressors.Writer(); {
	case w == nil:
		_, err := p.compressors.Reader(context.Background(), frame.Zstd, 0)
		if err == nil {
			err = errors.New("it is nil")
		}
		return nil, fmt.Errorf("bale: %w: the writer of Compressors: %w", ErrInvalid, err)
	case w.Algorithm() >= maxAlgorithms:
		return nil, fmt.Errorf("bale: %w: a frame has no room for %v", ErrInvalid, w.Algorithm())
	}
	return p, nil
}

// maxAlgorithms is how many algorithms a frame can name.
const maxAlgorithms = 16

// MaxPackedLen is the room in bytes that dst needs so that [Packer.Pack] does not allocate. It
// covers a value of n bytes and all compressors of this module. The largest bounds among these are
// libzstd's, n+n/256+64, and Snappy's, 32+n+n/6. The header adds to them.
func MaxPackedLen(n int) int { return n + n/6 + 64 + frame.MaxHeaderSize + frame.FreshnessSize }

// maxPayload bounds the payload of n bytes for every algorithm and every encoder of its format.
// Random bytes take n/6+32 bytes more with Snappy, n/8 in gzip with fixed codes, n/255 with lz4 and
// n/256 with zstd. The kilobyte is for headers, such as gzip's with the name of a file. A larger
// payload keeps a decoder busy: empty blocks without end.
func maxPayload(n int) int { return n + n/6 + 1<<10 }

// Pack appends the stored form of src to dst and returns it. The stored form is a frame, or src
// itself if a frame saves less than MinGain. On an error it returns dst unchanged. It keeps no
// reference to dst or src, which must not overlap.
func (p *Packer) Pack(dst, src []byte) ([]byte, error) {
	dst, _, err := p.pack(dst, src, nil)
	return dst, err
}

// Escape appends src to dst unchanged, or in a frame if Unpack would take it for one. Use it if a
// program unpacks on reading and writes plain values: an upload that is a frame then comes back
// unchanged. In all else it is like Pack.
func (p *Packer) Escape(dst, src []byte) ([]byte, error) {
	if _, _, packed, err := p.parse(src); !packed && err == nil {
		return append(dst, src...), nil
	}
	if len(src) > p.maxSize {
		return dst, p.errEscape(src)
	}
	return append(p.header(readerKey{}, src, nil).Append(dst), src...), nil
}

func (p *Packer) errEscape(src []byte) error {
	return fmt.Errorf("%w: %d bytes that start like a frame must be escaped, and MaxSize is %d", ErrTooLarge, len(src), p.maxSize)
}

// pack is Pack that also returns how it packed. With a freshness the stored form is always a frame
// with that trailer, unless src is beyond MaxSize.
func (p *Packer) pack(dst, src []byte, fresh *frame.Freshness) ([]byte, readerKey, error) {
	plain := readerKey{}
	escape := frame.HasMagic(src)
	if len(src) > p.maxSize && escape {
		return dst, plain, p.errEscape(src)
	}
	if len(src) > p.maxSize {
		fresh = nil // no reader would take it
	}
	// A frame is never packed again: a dictionary that it needs stays to be seen in the stored bytes,
	// and bale dict gc removes none that it sees.
	if _, _, isFrame := frame.Parse(src); len(src) >= p.minSize && len(src) <= p.maxSize && !isFrame {
		w := p.compressors.Writer()
		key := readerKey{w.Algorithm(), w.DictionaryID()}
		packed, ok, err := p.compress(w, key, dst, src, fresh)
		if err != nil {
			return dst, key, fmt.Errorf("pack with %v: %w", w.Algorithm(), err)
		}
		if ok {
			size := len(packed) - len(dst)
			if fresh != nil {
				size -= frame.FreshnessSize
			}
			p.compressors.Packed(src, size)
			return packed, key, nil
		}
		p.compressors.Packed(src, len(src))
		dst = packed
	}
	if escape || fresh != nil {
		dst = p.header(plain, src, fresh).Append(dst)
	}
	dst = append(dst, src...)
	if fresh != nil {
		dst = fresh.Append(dst)
	}
	return dst, plain, nil
}

// compress appends a frame if that is small enough; else it returns dst, perhaps with more room.
func (p *Packer) compress(w Compressor, key readerKey, dst, src []byte, fresh *frame.Freshness) ([]byte, bool, error) {
	if key.algorithm == frame.Stored {
		return dst, false, nil
	}
	n := len(dst)
	h := p.header(key, src, fresh)
	dst = slices.Grow(dst, MaxPackedLen(len(src)))
	payload := n + h.PayloadOffset()
	out, err := w.Compress(dst[:payload], src)
	if err != nil {
		return dst, false, err
	}
	if gain := len(src) - (len(out) - n); gain < max(1, int(p.minGain*float64(len(src)))) {
		return out[:n], false, nil
	}
	h.Append(out[:n])
	if fresh != nil {
		out = fresh.Append(out)
	}
	return out, true, nil
}

func (p *Packer) header(key readerKey, src []byte, fresh *frame.Freshness) frame.Header {
	h := frame.Header{Algorithm: key.algorithm, DictionaryID: key.dictionary, Length: uint64(len(src))}
	if fresh != nil {
		h.Version = frame.V2
	}
	if !p.noChecksum {
		h.HasChecksum = true
		h.Checksum = frame.Checksum(src)
	}
	return h
}

// Unpack appends the content of the stored value src to dst and returns it. It appends a value that
// is no frame unchanged. A cached miss is ErrNotFound. On an error, a [DecodeError], it returns dst
// unchanged. It allocates nothing when dst has room for the content, and keeps no reference to dst
// or src, which must not overlap. The context bounds its waits: for a dictionary, and while other
// large values are decoded (PackerOptions.Budget).
func (p *Packer) Unpack(ctx context.Context, dst, src []byte) ([]byte, error) {
	return p.unpack(ctx, dst, src, nil)
}

// unpack is Unpack for a value of a batch, nil for none.
func (p *Packer) unpack(ctx context.Context, dst, src []byte, b *Batch) ([]byte, error) {
	h, offset, packed, err := p.parse(src)
	if err != nil {
		return dst, err
	}
	if !packed {
		p.read(src)
		return append(dst, src...), nil
	}
	r, payload, _, err := p.check(ctx, src[offset:], &h, b)
	if err != nil {
		return dst, err
	}
	if h.Length > largeValue {
		if err := p.gate.enter(ctx, int(h.Length)); err != nil {
			return dst, decodeError(&h, err)
		}
		defer p.gate.leave(int(h.Length))
	}
	return p.decode(r, dst, payload, &h)
}

// parse separates frames from plain values, for callers that need no copy of plain ones.
func (p *Packer) parse(src []byte) (h frame.Header, offset int, packed bool, err error) {
	h, offset, packed = frame.Parse(src)
	if !packed && p.strict && frame.HasMagic(src) {
		err = fmt.Errorf("%w: starts like a frame, but its header check is wrong", ErrCorrupt)
	}
	return h, offset, packed, err
}

// check finds the reader of a frame, its payload without a trailer, and the freshness in its frame,
// if any. The value counts against its batch, nil for none. It comes before the gate: an unreadable
// frame must not hold up others.
func (p *Packer) check(ctx context.Context, payload []byte, h *frame.Header, b *Batch) (r Compressor, _ []byte, fresh frame.Freshness, err error) {
	if h.Version == frame.V2 {
		f, kind, size, ok := frame.ParseTrailer(payload)
		switch {
		case ok && f.Absent:
			return nil, nil, f, decodeError(h, ErrNotFound)
		case ok:
			fresh, payload = f, payload[:len(payload)-size]
		case kind == frame.FreshnessTrailer:
			return nil, nil, f, decodeError(h, fmt.Errorf("%w: trailer checksum mismatch: the value is damaged, or cut", ErrCorrupt))
		default:
			return nil, nil, f, decodeError(h, fmt.Errorf("%w: the frame has a trailer of kind %d: upgrade bale", ErrUnknownAlgorithm, kind))
		}
	}
	if h.Length > uint64(p.maxSize) {
		return nil, nil, fresh, decodeError(h, fmt.Errorf("%w: %d bytes decoded, and MaxSize is %d", ErrTooLarge, h.Length, p.maxSize))
	}
	if most := maxPayload(int(h.Length)); len(payload) > most && h.Known() && h.Algorithm != frame.Chunks {
		return nil, nil, fresh, decodeError(h, fmt.Errorf("%w: a payload of %d bytes for %d decoded, at most %d", ErrCorrupt, len(payload), h.Length, most))
	}
	if err := b.take(h); err != nil {
		return nil, nil, fresh, decodeError(h, err)
	}
	if r, err = p.reader(ctx, h, b); err != nil {
		return nil, nil, fresh, decodeError(h, err)
	}
	return r, payload, fresh, nil
}

// decode appends the content of a payload that check has found.
func (p *Packer) decode(r Compressor, dst, payload []byte, h *frame.Header) ([]byte, error) {
	out, err := r.Decompress(dst, payload, int(h.Length))
	if err != nil {
		if !errors.Is(err, os.ErrClosed) { // which says nothing about the value
			err = fmt.Errorf("%w: %w", ErrCorrupt, noMiss(err))
		}
		return dst, decodeError(h, err)
	}
	content := out[len(dst):]
	if uint64(len(content)) != h.Length {
		return dst, decodeError(h, fmt.Errorf("%w: %d bytes decoded, %d expected", ErrCorrupt, len(content), h.Length))
	}
	if h.HasChecksum && frame.Checksum(content) != h.Checksum {
		return dst, decodeError(h, fmt.Errorf("%w: the checksum of the content differs", ErrCorrupt))
	}
	p.read(content)
	return out, nil
}

// read shows a value to the Compressors, if it is one that they would be asked to pack.
func (p *Packer) read(plain []byte) {
	if len(plain) >= p.minSize && len(plain) <= p.maxSize {
		p.compressors.Unpacked(plain)
	}
}

func decodeError(h *frame.Header, err error) error {
	return &DecodeError{h.Algorithm, h.DictionaryID, err}
}

// Causes that make a value unreadable here, but do not justify its replacement.
var (
	errNoAnswer = errors.New("it could not be fetched")
	errStream   = errors.New("the value is a stream, in chunks under other keys: read it with package stream")
)

// reader finds the compressor that reads the frame's payload, of a value of a batch or of none.
func (p *Packer) reader(ctx context.Context, h *frame.Header, b *Batch) (Compressor, error) {
	if h.Version > frame.V2 {
		return nil, fmt.Errorf("%w: frame version %d, this reader knows versions up to %d: upgrade bale", ErrUnknownAlgorithm, h.Version, frame.V2)
	}
	if h.Algorithm == frame.Chunks {
		return nil, fmt.Errorf("%w: %w", ErrUnknownAlgorithm, errStream)
	}
	first, enough := ctx, false
	if b != nil {
		first = over // for what is at hand
	}
	r, err := p.compressors.Reader(first, h.Algorithm, h.DictionaryID)
	if b != nil && err != nil && !errors.Is(err, ErrUnknownAlgorithm) {
		if enough = b.unknown >= maxUnknown || b.fetched >= maxFetched; !enough {
			b.fetched++
			began := time.Now()
			if b.waited >= patience {
				brief, cancel := context.WithTimeout(ctx, soon)
				defer cancel()
				ctx = brief
			}
			if r, err = p.compressors.Reader(ctx, h.Algorithm, h.DictionaryID); err != nil {
				b.waited += time.Since(began)
			}
		}
	}
	err = noMiss(err)
	if err != nil && h.DictionaryID != 0 && !errors.Is(err, ErrUnknownAlgorithm) && !errors.Is(err, ErrUnknownDictionary) {
		err = fmt.Errorf("%w: %w: %w", ErrUnknownDictionary, errNoAnswer, err)
	}
	if b != nil && errors.Is(err, ErrUnknownDictionary) {
		if b.unknown++; enough && errors.Is(err, errNoAnswer) {
			err = fmt.Errorf("%w: %w: this operation has asked for those of %d other values, and asks for no more", ErrUnknownDictionary, errNoAnswer, b.fetched)
		}
	}
	return r, err
}

// Unobserved returns a Packer with the same settings. Its Compressors do not observe its values.
// Use it for probes, which are neither a sample nor a saving. It ends with p, and needs no Close.
func (p *Packer) Unobserved() *Packer {
	q := *p
	q.compressors, q.own = unobserved{p.compressors}, nil
	return &q
}

type unobserved struct{ Compressors }

func (unobserved) Packed([]byte, int) {}
func (unobserved) Unpacked([]byte)    {}

// Close releases what the Packer made for itself. You may call it while the Packer is in use. Calls
// in progress finish; later calls may return an error that is [os.ErrClosed].
func (p *Packer) Close() error {
	if p.own == nil {
		return nil
	}
	return p.own.Close()
}
