package main

import (
	"context"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/balekv/bale"
	"github.com/balekv/bale/adapter/goredis"
	"github.com/balekv/bale/cmd/internal/cli/clitest"
	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/stream"
)

// streamScripts are what the scripts about frames of version 2 and streams need.
var streamScripts = map[string]func(*testscript.TestScript, bool, []string){
	"fresh":        fresh,
	"redis-stream": redisStream,
	"redis-get":    redisGet,
	"redis-lose":   redisLose,
	"redis-expire": redisExpire,
}

// fresh FROM TO EXPIRES TOOK makes the frame of a value that was loaded; it expires in a time,
// which may be negative, or 0 for never. TOOK is a time, or absent.
func fresh(ts *testscript.TestScript, neg bool, args []string) {
	in, err := time.ParseDuration(args[2])
	ts.Check(err)
	f := frame.Freshness{Absent: args[3] == "absent"}
	if in != 0 {
		f.Expires = time.Now().Add(in)
	}
	content := []byte(ts.ReadFile(args[0]))
	algorithm := frame.Zstd
	if f.Absent {
		content, algorithm = nil, frame.Stored
	} else {
		f.Took, err = time.ParseDuration(args[3])
		ts.Check(err)
	}
	c, err := compress.Setting{Algorithm: algorithm}.New(nil)
	ts.Check(err)
	defer c.Close()
	h := frame.Header{Version: frame.V2, Algorithm: algorithm, HasChecksum: true, Checksum: frame.Checksum(content), Length: uint64(len(content))}
	b, err := c.Compress(h.Append(nil), content)
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), f.Append(b), 0o600))
}

// redis-stream KEY BYTES TTL stores a stream of random bytes in chunks of 64 KiB.
func redisStream(ts *testscript.TestScript, neg bool, args []string) {
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	ttl, err := time.ParseDuration(args[2])
	ts.Check(err)
	s, err := stream.New(goredis.NewStore(clitest.Client(ts)), stream.Options{Chunk: 64 << 10})
	ts.Check(err)
	_, err = s.PutReader(context.Background(), args[0], io.LimitReader(rand.NewChaCha8([32]byte{}), int64(n)), bale.TTL(ttl))
	ts.Check(err)
}

// redis-get KEY FILE writes what a key holds to a file.
func redisGet(ts *testscript.TestScript, neg bool, args []string) {
	b, err := clitest.Client(ts).Get(context.Background(), args[0]).Bytes()
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), b, 0o600))
}

// redis-lose PATTERN removes keys, one at least.
func redisLose(ts *testscript.TestScript, neg bool, args []string) {
	eachKey(ts, args[0], func(key string) error { return clitest.Client(ts).Del(context.Background(), key).Err() })
}

// redis-expire PATTERN TTL gives keys, one at least, another expiry.
func redisExpire(ts *testscript.TestScript, neg bool, args []string) {
	ttl, err := time.ParseDuration(args[1])
	ts.Check(err)
	eachKey(ts, args[0], func(key string) error { return clitest.Client(ts).PExpire(context.Background(), key, ttl).Err() })
}

func eachKey(ts *testscript.TestScript, pattern string, do func(key string) error) {
	keys, err := clitest.Client(ts).Keys(context.Background(), pattern).Result()
	ts.Check(err)
	if len(keys) == 0 {
		ts.Fatalf("no key is like %s", pattern)
	}
	for _, k := range keys {
		ts.Check(do(k))
	}
}
