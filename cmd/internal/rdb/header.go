package rdb

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"
)

// Header holds the facts at the start of a file. A missing fact is zero.
type Header struct {
	Version    int       // of the format
	Server     string    // that wrote it: "Redis 7.0.15"
	Saved      time.Time // when
	UsedMemory int64     // of that server then, bytes
	AppendOnly bool      // it is the base of an append-only file
	Size       int64     // of the file, bytes
	valkey     bool      // its types are those of Valkey from 9.0 on
}

const (
	headerSize = 4096 // more than all that a file says of itself takes
	aux        = 0xfa // starts a field of it
)

// foreign are the files that are taken for an RDB file, by their first bytes.
var foreign = []struct{ start, is string }{
	{"\x1f\x8b", "it is compressed with gzip: unpack it with gunzip first"},
	{"\x28\xb5\x2f\xfd", "it is compressed with zstd: unpack it with unzstd first"},
	{"\xfd7zXZ\x00", "it is compressed with xz: unpack it with unxz first"},
	{"BZh", "it is compressed with bzip2: unpack it with bunzip2 first"},
	{"PK\x03\x04", "it is a zip archive: unpack it first"},
	{"*", "it is an append-only file of commands: make an RDB file with redis-cli BGSAVE, or redis-cli --rdb FILE"},
	{"#TS:", "it is an append-only file of commands: make an RDB file with redis-cli BGSAVE, or redis-cli --rdb FILE"},
	{"file ", "it is the manifest of an append-only file: give the file that it names whose name ends in .base.rdb, or make an RDB file with redis-cli BGSAVE"},
}

// ReadHeader reads the start of a file.
func ReadHeader(path string) (*Header, error) {
	info, err := os.Stat(path) // before it is opened, for a pipe would wait for its writer
	switch {
	case err != nil:
		return nil, err
	case info.IsDir():
		return nil, fmt.Errorf("%w: %s is a folder: give the file in it, which is dump.rdb mostly", ErrNotRDB, path)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%w: %s is a pipe or device: write it to a file first", ErrNotRDB, path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	start := make([]byte, headerSize)
	n, err := io.ReadFull(f, start)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return nil, err
	}
	h := &Header{Size: info.Size()}
	if err := h.parse(start[:n]); err != nil {
		return nil, fmt.Errorf("%w: %s: %s", ErrNotRDB, path, err)
	}
	return h, nil
}

// parse reads the first bytes of a file: a magic, four digits (three after the longer magic), and
// fields.
func (h *Header) parse(start []byte) error {
	maker := "Redis"
	rest, ok := bytes.CutPrefix(start, []byte("REDIS"))
	digits := 4
	if !ok {
		maker, digits = "Valkey", 3 // from Valkey 9.0
		rest, ok = bytes.CutPrefix(start, []byte("VALKEY"))
	}
	if !ok || len(rest) < digits {
		for _, f := range foreign {
			if bytes.HasPrefix(start, []byte(f.start)) {
				return errors.New(f.is)
			}
		}
		if len(start) == 0 {
			return errors.New("it is empty")
		}
		return errors.New("one starts with REDIS and a version")
	}
	var err error
	if h.Version, err = strconv.Atoi(string(rest[:digits])); err != nil {
		return errors.New("one starts with REDIS and a version")
	}
	if maker == "Valkey" {
		h.Server, h.valkey = maker, true
	}
	rest = rest[digits:]
	for len(rest) > 0 && rest[0] == aux {
		var name, value string
		if name, rest, ok = text(rest[1:]); !ok {
			return nil // the server will say what is wrong with it
		}
		if value, rest, ok = text(rest); !ok {
			return nil
		}
		n, _ := strconv.ParseInt(value, 10, 64)
		switch name {
		case "redis-ver":
			h.Server = "Redis " + value
		case "valkey-ver":
			h.Server = "Valkey " + value
		case "ctime":
			h.Saved = time.Unix(n, 0)
		case "used-mem":
			h.UsedMemory = max(n, 0)
		case "aof-base", "aof-preamble": // from Redis 7.0, and before
			h.AppendOnly = h.AppendOnly || n == 1
		}
	}
	return nil
}

// text reads a string. Its first byte shows how its length is written, or that it is a number. A
// header has no strings that are compressed or longer than 16 KiB.
func text(b []byte) (s string, rest []byte, ok bool) {
	if len(b) == 0 {
		return "", nil, false
	}
	size, number := 0, 0
	switch kind := b[0]; {
	case kind < 0x40:
		b, size = b[1:], int(kind)
	case kind < 0x80:
		if len(b) < 2 {
			return "", nil, false
		}
		b, size = b[2:], int(kind&0x3f)<<8|int(b[1])
	case kind >= 0xc0 && kind <= 0xc2:
		b, number = b[1:], 1<<(kind&3)
	default:
		return "", nil, false
	}
	if len(b) < size+number {
		return "", nil, false
	}
	switch number {
	case 1:
		return strconv.Itoa(int(int8(b[0]))), b[1:], true
	case 2:
		return strconv.Itoa(int(int16(binary.LittleEndian.Uint16(b)))), b[2:], true
	case 4:
		return strconv.Itoa(int(int32(binary.LittleEndian.Uint32(b)))), b[4:], true
	}
	return string(b[:size]), b[size:], true
}
