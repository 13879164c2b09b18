// Package goredis keeps bale's values in Redis through go-redis (v9).
//
// [NewStore] makes the Store of a typed bale.Cache. [NewHook] makes a hook that packs the values of
// a program that knows nothing of bale; one call puts it on the client:
//
//	err := hook.Install(rdb)
package goredis
