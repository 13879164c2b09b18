// Package inspect works on one stored value: [Run] explains it field by field, [Unpack] unpacks it
// and [Pack] makes it.
package inspect

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/balekv/bale"
	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/engine"
	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/cmd/internal/page"
	"github.com/balekv/bale/cmd/internal/printable"
	"github.com/balekv/bale/cmd/internal/registry"
	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/stream"
	"github.com/redis/go-redis/v9"
)

// Options are the settings of the functions of this package. Each uses some of them.
type Options struct {
	*cli.Streams          // Pack and Unpack read In and write Raw; a Key is printed to Out, too
	Dictionaries []string // files: the one to pack with, or those that a value may have been packed with
	Setting      engine.Setting
	MaxSize      int // bytes of the largest value of Pack and Unpack; a larger one stays as it is

	// The value to explain: in a File, empty or "-" for In, or under a Key in the Redis of Registry.
	File string

	// Registry has the dictionaries that Run and Unpack fetch; nil for none.
	Registry   *registry.Options
	Key, Field string // Field is empty for a string
	Form       Form   // in which Unpack prints the value of a Key
}

// Form is how a value is printed.
type Form int

// The forms of a value.
const (
	TextForm Form = iota // for people: what a terminal would obey is escaped
	RawForm              // as it is
	HexForm              // as hexdump -C shows it
	JSONForm             // indented
)

// chunkRate is how many chunks a second are looked for: those of the largest stream in half a
// minute.
const chunkRate = 5000

// Run explains a value. With an error it also returns what it found before.
func Run(ctx context.Context, o Options) (_ *Result, err error) {
	readers, err := readersOf(o.Dictionaries)
	if err != nil {
		return nil, err
	}
	reading := &compress.Set{Read: readers}
	r := &Result{now: time.Now(), key: "KEY"}
	var packer *bale.Packer
	var reg *registry.Registry
	if o.Registry == nil {
		if r.stored, err = o.read(); err == nil {
			packer, err = bale.NewPacker(bale.PackerOptions{Compressors: reading, MaxSize: cli.MaxValue})
		}
		if err != nil {
			return nil, err
		}
		defer packer.Close()
		r.stored = withoutNewline(ctx, packer, r.stored, o.Err)
	} else {
		o.Registry.LookOnly, o.Registry.Pace.Rate = true, chunkRate
		if reg, err = registry.Open(ctx, *o.Registry); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, reg.Close()) }()
		r.prefix = reg.Prefix
		if err := reg.WarnOfDenied(ctx); err != nil {
			return nil, err
		}
		if r.stored, err = o.fetch(ctx, reg); err != nil {
			return nil, err
		}
		if packer, err = reg.Packer(reading, bale.PackerOptions{}); err != nil {
			return nil, err
		}
	}
	return r, r.explain(ctx, &o, packer, reg)
}

// explain fills in what is known of the value.
func (r *Result) explain(
	ctx context.Context, o *Options, packer *bale.Packer, reg *registry.Registry,
) (err error) {
	packed := false
	if r.fields, packed = frame.Describe(r.stored); !packed {
		r.content, r.value = plain, r.stored
		return nil
	}
	var offset int
	r.header, offset, _ = frame.Parse(r.stored)
	if r.header.Version == frame.V2 {
		if f, _, _, ok := frame.ParseTrailer(r.stored[offset:]); ok { // else Describe has said so
			r.freshness = &f
		}
	}
	switch {
	case r.freshness != nil && r.freshness.Absent:
		r.content = absent
		return nil
	case r.header.Algorithm == frame.Chunks:
		return r.lookAtChunks(ctx, o, reg)
	}
	r.value, err = packer.Unpack(ctx, nil, r.stored)
	switch {
	case err == nil:
		r.content = unpacked
	case errors.Is(err, dict.ErrUnknown), errors.Is(err, bale.ErrUnknownDictionary) && reg == nil:
		r.content, err = undecoded, nil
	}
	return err
}

// lookAtChunks looks at a stream, and for its chunks if it is in a Redis.
func (r *Result) lookAtChunks(ctx context.Context, o *Options, reg *registry.Registry) error {
	m, err := stream.ParseManifest(r.stored)
	if err != nil {
		return err
	}
	r.content, r.manifest = chunked, &m
	if reg == nil || o.Field != "" {
		return nil
	}
	r.key = o.Key
	if r.lives, err = keyspace.Lives(ctx, reg.Client(), o.Key); err != nil {
		return err
	}
	chunks, err := keyspace.LookAt(ctx, reg.Client(), m.Chunks,
		func(i int) string { return m.ChunkKey(o.Key, i) }, reg.Pacer)
	if err != nil {
		return err
	}
	if len(chunks.Missing) > 0 || chunks.Bytes != m.Stored {
		now, err := o.fetch(ctx, reg)
		switch {
		case errors.Is(err, bale.ErrNotFound):
			return errors.New("the stream was deleted while it was looked at")
		case err != nil:
			return err
		case !bytes.Equal(now, r.stored):
			return errors.New("the stream was replaced while it was looked at: look again")
		}
	}
	if err := chunks.WholeOf(m.Stored); err != nil {
		return err
	}
	r.chunks = chunks
	return nil
}

// fetch reads the value from Redis.
func (o *Options) fetch(ctx context.Context, reg *registry.Registry) ([]byte, error) {
	b, err := keyspace.Fetch(ctx, reg.Client(), o.Key, o.Field, o.Field != "",
		int64(bale.MaxPackedLen(cli.MaxValue)))
	switch {
	case errors.Is(err, redis.Nil):
		err = bale.ErrNotFound
	case redis.HasErrorPrefix(err, "WRONGTYPE"):
		if kind, failed := reg.Client().Type(ctx, o.Key).Result(); failed == nil {
			err = errKind(kind)
		}
	}
	if err != nil {
		return nil, &bale.KeyError{Op: "get", Key: o.Key, Err: err}
	}
	return b, nil
}

// errKind says how to read a value of another type than was asked for.
func errKind(kind string) error {
	switch kind {
	case "hash":
		return errors.New("it is a hash: --field NAME reads one of its fields")
	case "string":
		return errors.New("it is a string: leave out --field")
	}
	return fmt.Errorf("it is a %s: bale packs strings and fields of hashes alone", kind)
}

// read reads the value from a file.
func (o *Options) read() ([]byte, error) {
	if o.File == "" || o.File == "-" {
		return readStored(o.In, "stdin")
	}
	f, err := os.Open(o.File)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readStored(f, o.File)
}

// readStored reads a stored value, which is bounded as that of a Packer is.
func readStored(r io.Reader, name string) ([]byte, error) {
	limit := bale.MaxPackedLen(cli.MaxValue)
	var b bytes.Buffer
	if f, ok := r.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
			b.Grow(int(min(info.Size(), int64(limit))) + bytes.MinRead) // and not by doubling
		}
	}
	if _, err := b.ReadFrom(io.LimitReader(r, int64(limit)+1)); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if b.Len() > limit {
		return nil, fmt.Errorf("%w: %s has more than %s", bale.ErrTooLarge, name, printable.Size(limit))
	}
	return b.Bytes(), nil
}

// Result is a stored value and what is known of it.
type Result struct {
	stored    []byte
	fields    []frame.Field
	header    frame.Header
	freshness *frame.Freshness // of a loaded value, else nil
	content   content
	value     []byte // as far as it is decoded

	// Of a stream.
	manifest *stream.Manifest
	key      string
	lives    time.Duration
	chunks   *keyspace.Chunks // nil if they were not looked for, or are not whole

	now    time.Time
	prefix string // of the registry, empty for none
}

// content is what a stored value turned out to hold.
type content int

const (
	unknown content = iota // it was not found out
	plain
	unpacked
	absent    // a cached miss
	undecoded // the dictionary is missing
	chunked
)

// WriteText writes the explanation.
func (r *Result) WriteText(w page.Sheet) {
	for _, f := range r.fields {
		if line := fmt.Sprint(f); !w.Terminal || w.Fits(line) {
			printable.Fprintf(w, "%s\n", line)
		} else {
			w.Hanging("        ", line)
		}
	}
	if f := r.freshness; f != nil {
		switch left := f.Expires.Sub(r.now); {
		case f.Expires.IsZero():
			printable.Fprintf(w, "fresh: never expires\n")
		case left > 0:
			printable.Fprintf(w, "fresh: for another %s\n", about(left))
		default:
			printable.Fprintf(w, "expired: %s ago, and to be loaded anew; it is kept in case that fails\n",
				about(-left))
		}
	}
	switch r.content {
	case plain:
		showValue(w, r.value)
	case unpacked:
		content := fmt.Sprintf("content: %d bytes stored in %d (ratio %.2f)", len(r.value), len(r.stored),
			float64(len(r.value))/float64(len(r.stored)))
		if r.header.HasChecksum {
			content += ", the checksum matches"
		}
		w.Lines(content)
		showValue(w, r.value)
	case absent:
		printable.Fprintf(w, "content: none, for the frame says that there is no value: it was looked for and not found\n")
	case undecoded:
		if r.prefix == "" {
			printable.Fprintf(w, "content: not decoded, for it needs the dictionary: give it with --dict FILE\n")
		} else {
			printable.Fprintf(w, "content: not decoded, for it needs the dictionary, which the registry (prefix %s) does not hold: give it with --dict FILE, or the registry's --prefix\n", r.prefix)
		}
	case chunked:
		printable.Fprintf(w, "content: %v\nchunks: %s\n", r.manifest, chunkKeys(r.manifest, r.key))
		if r.chunks != nil {
			r.writeChunks(w)
		}
	}
}

func (r *Result) writeChunks(w io.Writer) {
	c := r.chunks
	printable.Fprintf(w, "the key expires: %s; all chunks are there, with %d bytes", expires(r.lives), c.Bytes)
	switch {
	case c.Number == 0:
	case c.Shortest == c.Longest:
		printable.Fprintf(w, "; they expire: %s", expires(c.Shortest))
	default:
		printable.Fprintf(w, "; they expire: %s to %s", expires(c.Shortest), expires(c.Longest))
	}
	printable.Fprintf(w, "\n")
	if c.Number > 0 && c.Shortest < r.lives {
		printable.Fprintf(w, "WARNING: chunks expire before the key does, and the value is lost then. Right after it was written that lasts for a moment\n")
	}
}

// maxShown bounds what is shown of a value, indented, in bytes: more than people read.
const maxShown = 1 << 20

// showValue prints the start of a value that is JSON.
func showValue(w io.Writer, value []byte) {
	if !json.Valid(value) {
		printable.Fprintf(w, "value: not JSON\n")
		return
	}
	value = bytes.TrimSpace(value)
	shown, used := new(indenter).next(value, maxShown)
	io.WriteString(w, printable.JSON(string(shown))+"\n")
	if left := len(value) - used; left > 0 {
		printable.Fprintf(w, "... and another %d bytes: bale unpack writes the whole value\n", left)
	}
}

// deepest is the level from which on deeper ones are indented alike. Valid JSON has up to 10,000
// levels, at which each byte of a value would become 20 KB.
const deepest = 100

// indenter makes of valid JSON what json.Indent does, piece by piece.
type indenter struct {
	depth          int
	opened, quoted bool
}

// next returns the next piece, of most bytes and a little more, and how many bytes of value that
// took. It ends between characters. Bytes that are no part of one can end it anywhere.
func (in *indenter) next(value []byte, most int) (shown []byte, used int) {
	newline := func() { shown = append(append(shown, '\n'), strings.Repeat("  ", min(in.depth, deepest))...) }
	for used < len(value) && (len(shown) < most || len(shown) < most+utf8.UTFMax && !utf8.RuneStart(value[used])) {
		c := value[used]
		used++
		if in.quoted {
			shown = append(shown, c)
			if c == '\\' {
				shown = append(shown, value[used])
				used++
			}
			in.quoted = c != '"'
			continue
		}
		closes := c == '}' || c == ']'
		switch {
		case strings.IndexByte(" \t\r\n", c) >= 0:
			continue
		case in.opened && !closes: // an empty object or list stays on its line
			in.depth++
			newline()
		case closes && !in.opened:
			in.depth--
			newline()
		}
		shown = append(shown, c)
		in.opened, in.quoted = c == '{' || c == '[', c == '"'
		switch c {
		case ',':
			newline()
		case ':':
			shown = append(shown, ' ')
		}
	}
	return shown, used
}

// expires returns when a key with d to live expires, as text.
func expires(d time.Duration) string {
	if d == keyspace.ForEver {
		return "never"
	}
	return "in " + about(d)
}

// about is a time to the second, a short one to the millisecond.
func about(d time.Duration) string {
	if d < 10*time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}
