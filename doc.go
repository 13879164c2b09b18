// Package bale keeps typed values in Redis small. [New] makes a typed [Cache] over a [Store];
// adapter/goredis has one. A [Packer] packs bytes without a Cache. Values that were stored without
// bale stay readable.
package bale
