package inspect

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/balekv/bale"
	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/printable"
	"github.com/balekv/bale/cmd/internal/registry"
	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/stream"
)

// Pack packs stdin to stdout.
func Pack(o Options) error {
	if o.Setting.Dict && len(o.Dictionaries) == 0 {
		return fmt.Errorf("%w: --compress %s: --dict FILE says with which dictionary", cli.ErrUsage, o.Setting)
	}
	var d *frame.Dictionary
	for _, path := range o.Dictionaries {
		var err error
		if d, err = registry.ReadFile(path); err != nil {
			return err
		}
	}
	c, err := o.Setting.New(d)
	if errors.Is(err, compress.ErrNoDictionary) {
		return fmt.Errorf("%w: --dict: %w", cli.ErrUsage, err)
	} else if err != nil {
		return err
	}
	defer c.Close()
	packer, err := bale.NewPacker(bale.PackerOptions{Compressors: &compress.Set{Write: c}, MaxSize: o.MaxSize})
	if err != nil {
		return err
	}
	defer packer.Close()
	value, err := io.ReadAll(io.LimitReader(o.In, int64(o.MaxSize)+1))
	if err != nil {
		return fmt.Errorf("stdin: %w", err)
	}
	if len(value) > o.MaxSize && !frame.HasMagic(value) {
		_, err := io.Copy(o.Raw, io.MultiReader(bytes.NewReader(value), o.In)) // as it is, whatever its size
		return err
	}
	packed, err := packer.Pack(nil, value)
	if err != nil {
		return err
	}
	_, err = o.Raw.Write(packed)
	return err
}

// Unpack unpacks stdin to stdout, or prints the value of a Key.
func Unpack(ctx context.Context, o Options) (err error) {
	readers, err := readersOf(o.Dictionaries)
	if err != nil {
		return err
	}
	reading := &compress.Set{Read: readers}
	var packer *bale.Packer
	var reg *registry.Registry
	if o.Registry == nil {
		packer, err = bale.NewPacker(bale.PackerOptions{MaxSize: o.MaxSize, Compressors: reading})
	} else {
		o.Registry.LookOnly = true
		if reg, err = registry.Open(ctx, *o.Registry); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, reg.Close()) }()
		packer, err = reg.Packer(reading, bale.PackerOptions{MaxSize: o.MaxSize})
	}
	if err != nil {
		return err
	}
	defer packer.Close()
	if o.Key == "" {
		return o.unpackInput(ctx, packer)
	}
	stored, err := o.fetch(ctx, reg)
	if err != nil {
		return err
	}
	value, err := o.unpack(ctx, packer, stored)
	if err == nil {
		err = o.show(ctx, value)
	}
	if err != nil {
		return &bale.KeyError{Op: "get", Key: o.Key, Err: err}
	}
	return nil
}

// show prints a value in a form, in pieces: escapes and indents make it many times as large.
func (o *Options) show(ctx context.Context, value []byte) (err error) {
	switch o.Form {
	case RawForm:
		_, err = o.Raw.Write(value)
		return err
	case HexForm:
		w := bufio.NewWriter(o.Raw)
		dump := hex.Dumper(w)
		_, err = dump.Write(value)
		return errors.Join(err, dump.Close(), w.Flush())
	case JSONForm:
		if !json.Valid(value) {
			return errors.New("the value is not JSON: leave out --json, or give --hex")
		}
		for in := (indenter{}); len(value) > 0 && err == nil; err = cmp.Or(err, ctx.Err()) {
			shown, used := in.next(value, maxShown)
			value = value[used:]
			_, err = io.WriteString(o.Raw, printable.JSON(string(shown)))
		}
	default:
		for n := 0; len(value) > 0 && err == nil; err = cmp.Or(err, ctx.Err()) {
			n, err = o.Out.Write(value[:min(len(value), maxShown)])
			value = value[n:]
		}
	}
	if err == nil {
		_, err = io.WriteString(o.Out, "\n")
	}
	return err
}

// unpackInput is Unpack for stdin.
func (o *Options) unpackInput(ctx context.Context, packer *bale.Packer) error {
	// A value that cannot be a frame goes straight through, whatever its size. A frame is never
	// larger than the largest one that holds MaxSize bytes.
	start := make([]byte, 2)
	n, err := io.ReadFull(o.In, start)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return fmt.Errorf("stdin: %w", err)
	}
	in := io.MultiReader(bytes.NewReader(start[:n]), o.In)
	if !frame.HasMagic(start[:n]) {
		_, err := io.Copy(o.Raw, in)
		return err
	}
	limit := bale.MaxPackedLen(o.MaxSize)
	stored, err := io.ReadAll(io.LimitReader(in, int64(limit)+1))
	if err != nil {
		return fmt.Errorf("stdin: %w", err)
	}
	if len(stored) <= limit {
		stored = withoutNewline(ctx, packer, stored, o.Err)
	}
	if h, _, packed := frame.Parse(stored); len(stored) > limit {
		if !packed {
			_, err := io.Copy(o.Raw, io.MultiReader(bytes.NewReader(stored), in))
			return err
		}
		if h.Length <= uint64(o.MaxSize) {
			return fmt.Errorf("%w: a frame of %d bytes decoded has more than %d", bale.ErrCorrupt, h.Length,
				limit)
		}
	}
	value, err := o.unpack(ctx, packer, stored)
	if err != nil {
		return err
	}
	_, err = o.Raw.Write(value)
	return err
}

// unpack is the content of a stored value, or an error that says what to do.
func (o *Options) unpack(ctx context.Context, packer *bale.Packer, stored []byte) ([]byte, error) {
	if h, _, _ := frame.Parse(stored); h.Algorithm == frame.Chunks && h.Version == frame.V1 {
		return nil, errStream(stored, cmp.Or(o.Key, "KEY"))
	}
	value, err := packer.Unpack(ctx, nil, stored)
	if errors.Is(err, bale.ErrNotFound) {
		return nil, errors.New("there is no value: the frame says that it was looked for and not found (bale inspect shows for how long that is good)")
	}
	if e, ok := errors.AsType[*bale.DecodeError](err); ok &&
		o.Registry == nil && errors.Is(err, bale.ErrUnknownDictionary) {
		return nil, &bale.DecodeError{Algorithm: e.Algorithm, DictionaryID: e.DictionaryID,
			Err: fmt.Errorf("%w: give it with --dict FILE, or the registry that has it with --redis URL", bale.ErrUnknownDictionary)}
	}
	return value, err
}

// chunkKeys says where the chunks are.
func chunkKeys(m *stream.Manifest, key string) string {
	switch m.Chunks {
	case 0:
		return "there is none"
	case 1:
		return m.ChunkKey(key, 0)
	}
	return fmt.Sprintf("%s to %d", m.ChunkKey(key, 0), m.Chunks-1)
}

// errStream says that a value is a stream, and how to get it.
func errStream(stored []byte, key string) error {
	m, err := stream.ParseManifest(stored)
	if err != nil {
		return err
	}
	return fmt.Errorf("it is %v: its content is under other keys of the same Redis (%s), and a program reads it with stream.Streams.GetReader; bale inspect --redis URL --key KEY shows whether all is there",
		&m, chunkKeys(&m, key))
}

// withoutNewline drops the newline that redis-cli appends to a value, and reports it, if stored is
// a frame that decodes only without it.
func withoutNewline(ctx context.Context, packer *bale.Packer, stored []byte, w io.Writer) []byte {
	shorter, ends := bytes.CutSuffix(stored, []byte("\n"))
	if !ends || decodes(ctx, packer, stored) || !decodes(ctx, packer, shorter) {
		return stored
	}
	printable.Fprintf(w, "the last byte, a newline as redis-cli appends, was left out\n")
	return shorter
}

// decodes reports whether stored is a whole frame: of a value, of a stream, or of a cached miss. A
// frame whose dictionary the packer lacks counts as not whole.
func decodes(ctx context.Context, packer *bale.Packer, stored []byte) bool {
	h, _, packed := frame.Parse(stored)
	switch {
	case !packed:
		return false
	case h.Algorithm == frame.Chunks && h.Version == frame.V1:
		_, err := stream.ParseManifest(stored)
		return err == nil
	}
	_, err := packer.Unpack(ctx, nil, stored)
	return err == nil || errors.Is(err, bale.ErrNotFound)
}

// readersOf read every algorithm with every one of the dictionaries in files.
func readersOf(dictionaries []string) (readers []compress.Compressor, err error) {
	for _, path := range dictionaries {
		d, err := registry.ReadFile(path)
		if err != nil {
			return nil, err
		}
		for _, a := range []frame.Algorithm{frame.S2, frame.LZ4, frame.Zstd} {
			c, err := compress.Setting{Algorithm: a}.New(d)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			readers = append(readers, c)
		}
	}
	return readers, nil
}
