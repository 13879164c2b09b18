// Package bale keeps typed values in Redis small. It serializes, compresses and stores them, and
// reads them back, next to existing plain values.
//
// The two entry points are [New], which makes a typed [Cache] over a [Store], and [NewPacker],
// which packs and unpacks bytes alone. A Store is an adapter to a Redis client. Package
// github.com/balekv/bale/adapter/goredis has a Store for go-redis, and a hook that packs the values
// of an existing program. rueidis, valkey-go and redigo have Stores in packages of their own.
//
// A write has three steps. A [Codec] turns the value into bytes. The [Packer] turns these into
// fewer bytes, with a header that says how (package frame). The Store sends them. A read takes the
// same steps backwards. Values that were stored without bale are read unchanged. A value that does
// not get smaller is stored without a header. So you can roll bale into a live cache, and out of it
// again.
//
// [Cache.GetOrLoad] loads a missing value once for all waiting callers. A Store can wrap another
// one. Package batch writes many values in few pipelines. Package stream stores values that are too
// large for one key. Module near keeps decoded values in the process. Package stats records
// operations. Package ready reports readiness.
//
// Everything is safe for concurrent use unless its comment says otherwise. The only goroutines are
// the loads of GetOrLoad, and [Cache.Close] ends them. Nothing is released yet: until version 1 the
// API may change, but every stored value stays readable. Package frame promises this and tests it
// against frozen vectors.
package bale
