package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/balekv/bale"
	"github.com/balekv/bale/adapter/goredis"
	"github.com/balekv/bale/cmd/internal/cli/clitest"
	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
)

// dictScripts are what the scripts about dictionaries need.
var dictScripts = map[string]func(*testscript.TestScript, bool, []string){
	"redis-load":        redisLoad,
	"redis-load-packed": redisLoad,
	"redis-load-hash":   redisLoadHash,
	"redis-clear":       redisClear,
	"redis-hide":        redisHide,
	"redis-reader":      redisReader,
	"dict-id":           dictID,
	"dict-wait":         dictWait,
}

// redis-load PREFIX FILE [DICTIONARY] stores each line of a file, packed if there is a dictionary.
func redisLoad(ts *testscript.TestScript, neg bool, args []string) {
	c := clitest.Client(ts)
	pack := func(v []byte) []byte { return v }
	if len(args) == 3 {
		pack = packer(ts, args[2])
	}
	for i, line := range strings.Split(strings.TrimSpace(ts.ReadFile(args[1])), "\n") {
		ts.Check(c.Set(context.Background(), fmt.Sprint(args[0], i), pack([]byte(line)), 0).Err())
	}
}

// redis-load-hash KEY FILE stores each line of a file as a field.
func redisLoadHash(ts *testscript.TestScript, neg bool, args []string) {
	c := clitest.Client(ts)
	for i, line := range strings.Split(strings.TrimSpace(ts.ReadFile(args[1])), "\n") {
		ts.Check(c.HSet(context.Background(), args[0], fmt.Sprint(i), line).Err())
	}
}

// packer packs with a dictionary in a file.
func packer(ts *testscript.TestScript, file string) func([]byte) []byte {
	d, err := frame.NewDictionary([]byte(ts.ReadFile(file)))
	ts.Check(err)
	c, err := compress.Setting{Algorithm: frame.Zstd}.New(d)
	ts.Check(err)
	ts.Defer(func() { c.Close() })
	p, err := bale.NewPacker(bale.PackerOptions{Compressors: &compress.Set{Write: c}})
	ts.Check(err)
	return func(v []byte) []byte {
		packed, err := p.Pack(nil, v)
		ts.Check(err)
		return packed
	}
}

// redis-clear PREFIX removes keys, in all databases that the scripts use.
func redisClear(ts *testscript.TestScript, neg bool, args []string) {
	ctx := context.Background()
	for db := range 4 {
		o := *clitest.Client(ts).Options()
		o.DB, o.PushNotificationProcessor = db, nil
		c := redis.NewClient(&o)
		keys, err := c.Keys(ctx, args[0]+"*").Result()
		if err == nil && len(keys) > 0 {
			err = c.Del(ctx, keys...).Err()
		}
		ts.Check(errors.Join(err, c.Close()))
	}
}

// redis-hide WHERE DICTIONARY puts a packed value where one has to look for it, under the key
// "hidden".
func redisHide(ts *testscript.TestScript, neg bool, args []string) {
	ctx, c := context.Background(), clitest.Client(ts)
	value := packer(ts, args[1])([]byte(strings.SplitN(ts.ReadFile("profiles.ndjson"), "\n", 2)[0]))
	switch args[0] {
	case "hash":
		for i := range 1000 {
			ts.Check(c.HSet(ctx, "hidden", fmt.Sprint(i), "plain").Err())
		}
		ts.Check(c.HSet(ctx, "hidden", "field", value).Err())
	case "list":
		ts.Check(c.RPush(ctx, "hidden", "plain", "plain", value).Err())
	case "otherdb":
		o := *c.Options()
		o.DB, o.PushNotificationProcessor = 3, nil
		other := redis.NewClient(&o)
		ts.Check(errors.Join(other.Set(ctx, "hidden", value, 0).Err(), other.Close()))
	}
}

// redis-reader [RULE...] makes a user who may read, with further rules in place of "all keys", and
// sets READER_URL.
func redisReader(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) == 0 {
		args = []string{"~*"}
	}
	rules := []any{"ACL", "SETUSER", "reader", "reset", "on", ">secret", "&*", "+@read", "+@connection", "+info"}
	for _, rule := range args {
		rules = append(rules, rule)
	}
	ts.Check(clitest.Client(ts).Do(context.Background(), rules...).Err())
	ts.Setenv("READER_URL", strings.Replace(ts.Getenv("REDIS_URL"), "redis://", "redis://reader:secret@", 1))
}

// dict-id FILE VARIABLE sets a variable to the id of a dictionary.
func dictID(ts *testscript.TestScript, neg bool, args []string) {
	b, err := os.ReadFile(ts.MkAbs(args[0]))
	ts.Check(err)
	d, err := frame.NewDictionary(b)
	ts.Check(err)
	ts.Setenv(args[1], d.ID().String())
}

// dict-wait GROUP ID waits until no writer may use a dictionary any more.
func dictWait(ts *testscript.TestScript, neg bool, args []string) {
	r, err := dict.NewRegistry(goredis.NewStore(clitest.Client(ts)), dict.RegistryOptions{})
	ts.Check(err)
	id, err := frame.ParseDictionaryID(args[1])
	ts.Check(err)
	ts.Check(awaitRemovable(context.Background(), r, args[0], id))
}

// awaitRemovable waits until no writer may use a dictionary any more.
func awaitRemovable(ctx context.Context, r *dict.Registry, group string, id frame.DictionaryID) error {
	for end := time.Now().Add(fleetPatience); ; time.Sleep(5 * time.Millisecond) {
		s, err := r.State(ctx, group)
		if err == nil {
			_, err = r.Removable(ctx, s, id)
		}
		if err == nil || time.Now().After(end) {
			return err
		}
	}
}
