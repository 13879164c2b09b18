// Package bale keeps typed values in Redis small: it serializes, compresses and stores them,
// and reads them back, among plain values that were there before.
//
// The two entry points are [New], which makes a typed [Cache] over a [Store], and
// [NewPacker], which packs and unpacks bytes alone. A Store is an adapter to a Redis client:
// package github.com/balekv/bale/goredis has one for go-redis, and a hook that packs
// the values of an existing program without any change to it but one line.
//
// A value goes one way: a [Codec] turns it into bytes, the [Packer] into fewer bytes with a
// header that says how (package frame), the Store sends them. Reading goes the same way back. Values that were
// stored without bale are read as they are, and a value that does not get smaller is stored without a
// header, so that bale can be rolled into a live cache and out of it again.
//
// Everything is safe for concurrent use unless its comment says otherwise, and no goroutine is
// started. Nothing is released yet: until version 1 the API may change, but every value that was ever
// written stays readable (package frame promises it and tests it against frozen vectors).
package bale
