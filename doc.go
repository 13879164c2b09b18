// Package bale keeps typed values in Redis small. [New] makes a typed [Cache] over a [Store], as
// adapter/goredis has one. [NewPacker] packs bytes alone. Every stored value stays readable.
package bale
