// Package rivals holds benchmarks of bale against what a team would use else: a Redis client and
// encoding/json by hand, and go-redis/cache. They are in a module of their own, so that the rivals
// stay out of bale's dependencies. There is nothing to import.
//
// All benchmarks run through a real redis-server on loopback. The contestants take turns within one
// benchmark, so that the ratios hold on a busy machine. Every read is compared with the written
// value.
package rivals
