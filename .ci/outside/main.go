// Command outside is a program of somebody else, who has bale from a module proxy: it uses the
// core, every adapter and every extra.
package main

import (
	"context"
	"fmt"
	"log"

	rediscli "github.com/gomodule/redigo/redis"
	"github.com/prometheus/client_golang/prometheus"
	goredisclient "github.com/redis/go-redis/v9"

	"github.com/balekv/bale"
	"github.com/balekv/bale/adapter/goredis"
	"github.com/balekv/bale/adapter/redigo"
	"github.com/balekv/bale/adapter/rueidis"
	"github.com/balekv/bale/adapter/valkey"
	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/extra/czstd"
	"github.com/balekv/bale/extra/formats/msgpack"
	"github.com/balekv/bale/extra/near"
	"github.com/balekv/bale/extra/observe/otelbale"
	"github.com/balekv/bale/extra/observe/prom"
	"github.com/balekv/bale/extra/resilient"
	"github.com/balekv/bale/testkit/storetest"
)

// Variables that must link. Nothing here is called, because there is no server.
var (
	_ = rueidis.NewStore
	_ = valkey.NewStore
	_ = near.New[string]
	_ = otelbale.NewRecorder
	_ = resilient.NewStore
	_ = storetest.Run
	_ = msgpack.Codec[string]{}
)

func main() {
	client := goredisclient.NewClient(&goredisclient.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	defer client.Close()
	packer, err := bale.NewPacker(bale.PackerOptions{Compressors: &compress.Set{Engine: czstd.Engine}})
	if err != nil {
		log.Fatal(err)
	}
	defer packer.Close()
	value := []byte(`{"name":"Ada","name2":"Ada","name3":"Ada","name4":"Ada","name5":"Ada","name6":"Ada","name7":"Ada","name8":"Ada"}`)
	packed, err := packer.Pack(nil, value)
	if err != nil {
		log.Fatal(err)
	}
	got, err := packer.Unpack(context.Background(), nil, packed)
	if err != nil || string(got) != string(value) || len(packed) >= len(value) {
		log.Fatalf("%d bytes of %d: %v", len(packed), len(value), err)
	}
	for name, store := range map[string]bale.Store{"goredis": goredis.NewStore(client), "redigo": redigo.NewStore(&rediscli.Pool{Dial: func() (rediscli.Conn, error) {
		return rediscli.Dial("tcp", "127.0.0.1:1")
	}})} {
		if _, err := store.GetMany(context.Background(), []string{"k"}); err == nil {
			log.Fatalf("%s: no error without a server", name)
		}
	}
	collector, err := prom.NewCollector(prom.Options{})
	if err != nil {
		log.Fatal(err)
	}
	prometheus.NewRegistry().MustRegister(collector)
	fmt.Printf("%d bytes became %d; libzstd: %v\n", len(value), len(packed), czstd.Native)
}
