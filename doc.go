// Package bale keeps typed values in Redis small: it serializes, compresses and stores them,
// and reads them back, among plain values that were there before.
//
// The two entry points are [New], which makes a typed [Cache] over a [Store], and [NewPacker],
// which packs and unpacks bytes alone. A Store is an adapter to a Redis client: package
// github.com/balekv/bale/adapter/goredis has one for go-redis (rueidis and redigo have theirs), and
// a hook that packs the values of an existing program without any change to it but one line.
//
// A value goes one way: a [Codec] turns it into bytes, the [Packer] into fewer bytes with a header
// that says how (package frame), the Store sends them. Reading goes the same way back. Values that
// were stored without bale are read as they are, and a value that does not get smaller is stored
// without a header, so that bale can be rolled into a live cache and out of it again.
//
// [Cache.GetOrLoad] loads what is missing, once for all who wait. A Store can stand on another one:
// package batch writes many values as few pipelines; package stream keeps values that are too large
// for a key; module near keeps decoded ones in the process. Package stats tells what goes on,
// package ready whether it works.
//
// Everything is safe for concurrent use unless its comment says otherwise. No goroutine is started
// but the loads of GetOrLoad, which [Cache.Close] ends. Nothing is released yet: until version 1
// the API may change, but every value that was ever written stays readable (package frame promises
// it and tests it against frozen vectors).
package bale
