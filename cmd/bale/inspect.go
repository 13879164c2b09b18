package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale"
	"github.com/balekv/bale/cmd/bale/internal/keyspace"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
)

type inspectCommand struct {
	File  string   `arg:"" optional:"" placeholder:"FILE" help:"The stored value; - or nothing for stdin."`
	Redis string   `placeholder:"URL" help:"Read the value from this Redis, which is not changed."`
	Key   string   `placeholder:"K" help:"The key of the value in Redis."`
	Field string   `placeholder:"F" help:"The field, if the key is a hash."`
	Dict  []string `placeholder:"FILE" type:"existingfile" sep:"none" help:"A dictionary that the value may have been packed with. Repeatable."`

	Prefix string `default:"bale:dict:" placeholder:"TEXT" help:"With --redis: what the keys of the registry start with, whose dictionaries the value is read with. Default: ${default}."`
}

// Help is shown below the options.
func (inspectCommand) Help() string {
	return `Shows the header, the sizes, and the decoded value when it is JSON. With --redis the dictionary comes from the registry that is in that Redis. A value that was loaded says until when it is good, and what loading it took. Of a stream, which is in chunks under other keys, its size is shown; with --redis also whether all chunks are there and how long they live. The exit status is 1 when the value is damaged or not whole.

Examples:
  bale inspect value.packed
  bale pack < value.json | bale inspect
  redis-cli --raw GET user:1 | bale inspect
  bale inspect --redis redis://127.0.0.1:6379 --key user:1`
}

// Run explains a value.
func (c *inspectCommand) Run(ctx context.Context, s *streams) error {
	switch {
	case (c.Redis == "") != (c.Key == ""):
		return fmt.Errorf("%w: --redis and --key go together", errUsage)
	case c.Redis != "" && c.File != "":
		return fmt.Errorf("%w: either a file or --redis", errUsage)
	case c.Field != "" && c.Key == "":
		return fmt.Errorf("%w: --field goes with --key", errUsage)
	}
	var client redis.UniversalClient
	var registry bale.Dictionaries
	if c.Redis != "" {
		var err error
		if client, err = keyspace.Open(ctx, c.Redis); err != nil {
			return err
		}
		defer client.Close()
		if registry, err = newRegistryReader(client, c.Prefix); err != nil {
			return err
		}
	}
	stored, err := c.read(ctx, s, client)
	if err != nil {
		return err
	}
	packer, err := newReader(c.Dict, maxValue, registry)
	if err != nil {
		return err
	}
	defer packer.Close()
	if client == nil {
		stored = withoutNewline(ctx, packer, stored, s.err)
	}
	fields, packed := frame.Describe(stored)
	for _, f := range fields {
		fmt.Fprintln(s.out, f)
	}
	if !packed {
		showValue(s.out, stored)
		return nil
	}
	h, offset, _ := frame.Parse(stored)
	absent := showFreshness(s.out, &h, stored[offset:], time.Now())
	switch {
	case h.Algorithm == frame.Chunks && !absent:
		return c.showStream(ctx, s.out, client, stored)
	case absent:
		fmt.Fprintln(s.out, "content: none, for the frame says that there is no value: it was looked for and not found")
		return nil
	}
	value, err := packer.UnpackContext(ctx, nil, stored)
	switch {
	case errors.Is(err, dict.ErrUnknown):
		fmt.Fprintf(s.out, "content: not decoded, for it needs the dictionary, which the registry (prefix %s) does not hold: give it with --dict FILE, or the registry's --prefix\n", c.Prefix)
		return nil
	case errors.Is(err, bale.ErrUnknownDictionary) && registry == nil:
		fmt.Fprintln(s.out, "content: not decoded, for it needs the dictionary: give it with --dict FILE")
		return nil
	case err != nil:
		return err
	}
	fmt.Fprintf(s.out, "content: %d bytes stored in %d (ratio %.2f)", len(value), len(stored), float64(len(value))/float64(len(stored)))
	if h.HasChecksum {
		fmt.Fprint(s.out, ", the checksum matches")
	}
	fmt.Fprintln(s.out)
	showValue(s.out, value)
	return nil
}

// showFreshness says whether a value that was loaded has expired, and reports one that says that there is none.
func showFreshness(w io.Writer, h *frame.Header, payload []byte, now time.Time) (absent bool) {
	if h.Version != frame.V2 {
		return false
	}
	f, _, _, ok := frame.ParseTrailer(payload)
	switch left := f.Expires.Sub(now); {
	case !ok: // which Describe has said
	case f.Expires.IsZero():
		fmt.Fprintln(w, "fresh: for ever")
	case left > 0:
		fmt.Fprintf(w, "fresh: for another %s\n", about(left))
	default:
		fmt.Fprintf(w, "expired: %s ago, and to be loaded anew; it is kept in case that fails\n", about(-left))
	}
	return ok && f.Absent
}

// showValue prints a value that is JSON.
func showValue(w io.Writer, value []byte) {
	var indented bytes.Buffer
	if json.Indent(&indented, value, "", "  ") != nil {
		fmt.Fprintln(w, "value: not JSON")
		return
	}
	fmt.Fprintln(w, indented.String())
}

// read reads from the client, if there is one.
func (c *inspectCommand) read(ctx context.Context, s *streams, client redis.UniversalClient) ([]byte, error) {
	switch {
	case client != nil:
		return c.fetch(ctx, client)
	case c.File == "" || c.File == "-":
		return readStored(s.in, "stdin")
	}
	f, err := os.Open(c.File)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readStored(f, c.File)
}

// readStored reads a stored value, which is bounded as that of a Packer is.
func readStored(r io.Reader, name string) ([]byte, error) {
	limit := bale.MaxPackedLen(maxValue)
	b, err := io.ReadAll(io.LimitReader(r, int64(limit)+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if len(b) > limit {
		return nil, fmt.Errorf("%w: %s has more than %d bytes", bale.ErrTooLarge, name, limit)
	}
	return b, nil
}

func (c *inspectCommand) fetch(ctx context.Context, client redis.UniversalClient) ([]byte, error) {
	get := client.Get(ctx, c.Key)
	if c.Field != "" {
		get = client.HGet(ctx, c.Key, c.Field)
	}
	b, err := get.Bytes()
	if errors.Is(err, redis.Nil) {
		return nil, &bale.KeyError{Op: "get", Key: c.Key, Err: bale.ErrNotFound}
	}
	if err != nil {
		return nil, &bale.KeyError{Op: "get", Key: c.Key, Err: err}
	}
	return b, nil
}
