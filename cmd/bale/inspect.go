package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale"
	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/cmd/internal/printable"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
)

type inspectCommand struct {
	registryFlags
	File  string   `arg:"" optional:"" placeholder:"FILE" help:"The stored value; - or nothing for stdin."`
	Redis string   `placeholder:"URL" help:"Read the value from this Redis, which is not changed. Default: the environment's BALE_REDIS_URL."`
	Key   string   `placeholder:"K" help:"The key of the value in Redis."`
	Field string   `placeholder:"F" help:"The field, if the key is a hash."`
	Dict  []string `placeholder:"FILE" type:"existingfile" sep:"none" help:"A dictionary that the value may have been packed with. Repeatable."`
}

// Help is shown below the options.
func (inspectCommand) Help() string {
	return `Shows the header, the sizes, and the decoded value when it is JSON, of which it shows the first MiB. With --redis the dictionary comes from the registry in that Redis, or in that of --registry. A value that was loaded says until when it is good, and what loading it took. Of a stream, which is in chunks under other keys, its size is shown; with --redis also whether all chunks are there and how long they live. The exit status is 1 when the value is damaged or not whole.

Examples:
  bale inspect value.packed
  bale pack < value.json | bale inspect
  redis-cli --raw GET user:1 | bale inspect
  bale inspect --redis redis://127.0.0.1:6379 --key user:1`
}

// Run explains a value.
func (c *inspectCommand) Run(ctx context.Context, s *cli.Streams) error {
	if c.Key != "" {
		c.Redis = cmp.Or(c.Redis, os.Getenv(cli.URLEnv))
	}
	switch {
	case (c.Redis == "") != (c.Key == ""):
		return fmt.Errorf("%w: --redis and --key go together", cli.ErrUsage)
	case c.Redis != "" && c.File != "":
		return fmt.Errorf("%w: either a file or --redis", cli.ErrUsage)
	case c.Registry != "" && c.Redis == "":
		return fmt.Errorf("%w: --registry goes with --redis", cli.ErrUsage)
	case c.Field != "" && c.Key == "":
		return fmt.Errorf("%w: --field goes with --key", cli.ErrUsage)
	}
	var client redis.UniversalClient
	var registry *registryReader
	if c.Redis != "" {
		servers, err := c.open(ctx, 0, c.Redis)
		if err != nil {
			return err
		}
		defer servers.close()
		servers.onlyLook = true
		defer servers.sayQuarantined(s.Err, "inspect")
		if err := servers.sayLost(ctx, s.Err, "inspect"); err != nil {
			return err
		}
		client, registry = servers.data[0].client, newRegistryReader(servers)
	}
	stored, err := c.read(ctx, s, client)
	if err != nil {
		return err
	}
	packer, err := newReader(c.Dict, cli.MaxValue, registry)
	if err != nil {
		return err
	}
	defer packer.Close()
	if client == nil {
		stored = withoutNewline(ctx, packer, stored, s.Err)
	}
	fields, packed := frame.Describe(stored)
	for _, f := range fields {
		printable.Fprintf(s.Out, "%v\n", f)
	}
	if !packed {
		showValue(s.Out, stored)
		return nil
	}
	h, offset, _ := frame.Parse(stored)
	absent := showFreshness(s.Out, &h, stored[offset:], time.Now())
	switch {
	case h.Algorithm == frame.Chunks && !absent:
		return c.showStream(ctx, s.Out, client, stored)
	case absent:
		printable.Fprintf(s.Out, "content: none, for the frame says that there is no value: it was looked for and not found\n")
		return nil
	}
	value, err := packer.Unpack(ctx, nil, stored)
	switch {
	case errors.Is(err, dict.ErrUnknown):
		printable.Fprintf(s.Out, "content: not decoded, for it needs the dictionary, which the registry (prefix %s) does not hold: give it with --dict FILE, or the registry's --prefix\n", c.Prefix)
		return nil
	case errors.Is(err, bale.ErrUnknownDictionary) && registry == nil:
		printable.Fprintf(s.Out, "content: not decoded, for it needs the dictionary: give it with --dict FILE\n")
		return nil
	case err != nil:
		return err
	}
	printable.Fprintf(s.Out, "content: %d bytes stored in %d (ratio %.2f)", len(value), len(stored), float64(len(value))/float64(len(stored)))
	if h.HasChecksum {
		printable.Fprintf(s.Out, ", the checksum matches")
	}
	printable.Fprintf(s.Out, "\n")
	showValue(s.Out, value)
	return nil
}

// showFreshness prints whether a loaded value has expired. absent reports a frame that caches a
// miss.
func showFreshness(w io.Writer, h *frame.Header, payload []byte, now time.Time) (absent bool) {
	if h.Version != frame.V2 {
		return false
	}
	f, _, _, ok := frame.ParseTrailer(payload)
	switch left := f.Expires.Sub(now); {
	case !ok: // which Describe has said
	case f.Expires.IsZero():
		printable.Fprintf(w, "fresh: for ever\n")
	case left > 0:
		printable.Fprintf(w, "fresh: for another %s\n", about(left))
	default:
		printable.Fprintf(w, "expired: %s ago, and to be loaded anew; it is kept in case that fails\n", about(-left))
	}
	return ok && f.Absent
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
	shown, used := indented(value, maxShown)
	io.WriteString(w, printable.JSON(string(shown))+"\n")
	if left := len(value) - used; left > 0 {
		printable.Fprintf(w, "... and another %d bytes: bale unpack writes the whole value\n", left)
	}
}

// indented returns the start of valid JSON as json.Indent makes it, until it has most bytes or more,
// and the number of bytes that it read. The JSON must have no spaces around it.
func indented(value []byte, most int) (shown []byte, used int) {
	depth, opened, quoted := 0, false, false
	newline := func() { shown = append(append(shown, '\n'), strings.Repeat("  ", depth)...) }
	for used < len(value) && len(shown) < most {
		c := value[used]
		used++
		if quoted {
			shown = append(shown, c)
			if c == '\\' {
				shown = append(shown, value[used])
				used++
			}
			quoted = c != '"'
			continue
		}
		closes := c == '}' || c == ']'
		switch {
		case strings.IndexByte(" \t\r\n", c) >= 0:
			continue
		case opened && !closes: // an empty object or list stays on its line
			depth++
			newline()
		case closes && !opened:
			depth--
			newline()
		}
		shown = append(shown, c)
		opened, quoted = c == '{' || c == '[', c == '"'
		switch c {
		case ',':
			newline()
		case ':':
			shown = append(shown, ' ')
		}
	}
	return shown, used
}

// read reads from the client, if there is one.
func (c *inspectCommand) read(ctx context.Context, s *cli.Streams, client redis.UniversalClient) ([]byte, error) {
	switch {
	case client != nil:
		return c.fetch(ctx, client)
	case c.File == "" || c.File == "-":
		return readStored(s.In, "stdin")
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
		return nil, fmt.Errorf("%w: %s has more than %d bytes", bale.ErrTooLarge, name, limit)
	}
	return b.Bytes(), nil
}

func (c *inspectCommand) fetch(ctx context.Context, client redis.UniversalClient) ([]byte, error) {
	b, err := keyspace.Fetch(ctx, client, c.Key, c.Field, c.Field != "", int64(bale.MaxPackedLen(cli.MaxValue)))
	if errors.Is(err, redis.Nil) {
		return nil, &bale.KeyError{Op: "get", Key: c.Key, Err: bale.ErrNotFound}
	}
	if err != nil {
		return nil, &bale.KeyError{Op: "get", Key: c.Key, Err: err}
	}
	return b, nil
}
