// Package rivals holds benchmarks of bale against what a team would use else: a Redis client and
// encoding/json by hand, and go-redis/cache. They are in a module of their own, so that the rivals
// stay out of bale's dependencies. There is nothing to import.
//
// All run through a real redis-server on loopback, and those who are compared take turns within one
// benchmark, so that the ratios hold on a machine that is not quiet. Every read compares what comes
// back with what was written.
package rivals
