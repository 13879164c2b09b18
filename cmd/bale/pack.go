package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/balekv/bale"
	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/engine"
	"github.com/balekv/bale/cmd/internal/printable"
	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/stream"
)

type packCommand struct {
	Compress string    `default:"zstd:fastest" placeholder:"SETTING" help:"none, snappy, s2, lz4, gzip or zstd, with a level where wanted: zstd:better. Default: ${default}."`
	Dict     string    `placeholder:"FILE" type:"existingfile" help:"Compress with this dictionary."`
	MaxSize  cli.Bytes `default:"64MiB" placeholder:"N" help:"The largest value that is packed; a larger one is stored as it is. Default: ${default}."`
}

// Help is shown below the options.
func (packCommand) Help() string {
	return `A value that does not get smaller comes out as it is, as bale stores it.

Examples:
  bale pack < value.json > value.packed
  bale pack --compress zstd:better < value.json | redis-cli -x SET user:1
  bale pack --compress zstd --dict users.dict < value.json > value.packed`
}

// Run packs.
func (p *packCommand) Run(s *cli.Streams) error {
	setting, err := engine.Parse(p.Compress)
	if err != nil {
		return fmt.Errorf("%w: --compress: %w", cli.ErrUsage, err)
	}
	if setting.Dict {
		return fmt.Errorf("%w: --compress %s: the dictionary is given with --dict", cli.ErrUsage, setting)
	}
	var d *frame.Dictionary
	if p.Dict != "" {
		if d, err = readDictionary(p.Dict); err != nil {
			return err
		}
	}
	c, err := setting.New(d)
	if errors.Is(err, compress.ErrNoDictionary) {
		return fmt.Errorf("%w: --dict: %w", cli.ErrUsage, err)
	} else if err != nil {
		return err
	}
	defer c.Close()
	packer, err := bale.NewPacker(bale.PackerOptions{Compressors: &compress.Set{Write: c}, MaxSize: int(p.MaxSize)})
	if err != nil {
		return err
	}
	defer packer.Close()
	value, err := io.ReadAll(io.LimitReader(s.In, int64(p.MaxSize)+1))
	if err != nil {
		return fmt.Errorf("stdin: %w", err)
	}
	if len(value) > int(p.MaxSize) && !frame.HasMagic(value) {
		_, err := io.Copy(s.Raw, io.MultiReader(bytes.NewReader(value), s.In)) // as it is, whatever its size
		return err
	}
	packed, err := packer.Pack(nil, value)
	if err != nil {
		return err
	}
	_, err = s.Raw.Write(packed)
	return err
}

type unpackCommand struct {
	Dict    []string  `placeholder:"FILE" type:"existingfile" sep:"none" help:"A dictionary that the value may have been packed with. Repeatable."`
	MaxSize cli.Bytes `default:"64MiB" placeholder:"N" help:"The largest value that is unpacked. Default: ${default}."`
}

// Help is shown below the options.
func (unpackCommand) Help() string {
	return `A damaged value gives no output but an error, and exit status 1; so does a frame that says that there is no value, and a stream, whose content is under other keys. The newline that redis-cli appends to a value is left out.

Examples:
  bale unpack < value.packed
  redis-cli --raw GET user:1 | bale unpack
  bale unpack --dict users.dict < value.packed`
}

// Run unpacks.
func (u *unpackCommand) Run(ctx context.Context, s *cli.Streams) error {
	packer, err := newReader(u.Dict, u.MaxSize, nil)
	if err != nil {
		return err
	}
	defer packer.Close()
	// A value that cannot be a frame goes straight through, whatever its size. A frame is never
	// larger than the largest one that holds MaxSize bytes.
	start := make([]byte, 2)
	n, err := io.ReadFull(s.In, start)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return fmt.Errorf("stdin: %w", err)
	}
	in := io.MultiReader(bytes.NewReader(start[:n]), s.In)
	if !frame.HasMagic(start[:n]) {
		_, err := io.Copy(s.Raw, in)
		return err
	}
	limit := bale.MaxPackedLen(int(u.MaxSize))
	stored, err := io.ReadAll(io.LimitReader(in, int64(limit)+1))
	if err != nil {
		return fmt.Errorf("stdin: %w", err)
	}
	if len(stored) <= limit {
		stored = withoutNewline(ctx, packer, stored, s.Err)
	}
	if h, _, packed := frame.Parse(stored); len(stored) > limit {
		if !packed {
			_, err := io.Copy(s.Raw, io.MultiReader(bytes.NewReader(stored), in))
			return err
		}
		if h.Length <= uint64(u.MaxSize) {
			return fmt.Errorf("%w: a frame of %d bytes decoded has more than %d", bale.ErrCorrupt, h.Length, limit)
		}
	}
	if h, _, _ := frame.Parse(stored); h.Algorithm == frame.Chunks && h.Version == frame.V1 {
		return errStream(stored)
	}
	value, err := packer.Unpack(ctx, nil, stored)
	if errors.Is(err, bale.ErrNotFound) {
		return errors.New("there is no value: the frame says that it was looked for and not found (bale inspect shows for how long that is good)")
	}
	if e, ok := errors.AsType[*bale.DecodeError](err); ok && errors.Is(err, bale.ErrUnknownDictionary) {
		return &bale.DecodeError{Algorithm: e.Algorithm, DictionaryID: e.DictionaryID, Err: fmt.Errorf("%w: give it with --dict FILE", bale.ErrUnknownDictionary)}
	}
	if err != nil {
		return err
	}
	_, err = s.Raw.Write(value)
	return err
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

// newReader makes a Packer that reads every algorithm with every one of the dictionaries in files,
// and with those of a registry, if it is not nil.
func newReader(dictionaries []string, maxSize cli.Bytes, registry *registryReader) (*bale.Packer, error) {
	set := &compress.Set{Engine: engine.Default}
	o := bale.PackerOptions{MaxSize: int(maxSize), Compressors: set}
	if registry != nil {
		set = &registry.Set
		o.Compressors = registry
	}
	for _, path := range dictionaries {
		d, err := readDictionary(path)
		if err != nil {
			return nil, err
		}
		for _, a := range []frame.Algorithm{frame.S2, frame.LZ4, frame.Zstd} {
			c, err := engine.Default.New(compress.Setting{Algorithm: a}, d)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			set.Read = append(set.Read, c)
		}
	}
	return bale.NewPacker(o)
}

func readDictionary(path string) (*frame.Dictionary, error) {
	b, err := readStart(path, frame.MaxDictionarySize+1)
	if err != nil {
		return nil, err
	}
	d, err := frame.NewDictionary(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return d, nil
}

// readStart reads a file up to a size in bytes.
func readStart(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit))
}
