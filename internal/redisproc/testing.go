package redisproc

import (
	"context"
	"errors"
	"os"
)

// RequireEnv names the variable that, when not empty, makes a test without a redis-server fail
// instead of skip. Continuous integration sets it.
const RequireEnv = "BALE_REQUIRE_REDIS"

// RequireTLSEnv names the variable that, when not empty, makes a test that needs TLS fail instead
// of skip on a server without it. Continuous integration sets it for the server that it has from
// its distribution.
const RequireTLSEnv = "BALE_REQUIRE_TLS"

// TB is the needed part of testing.TB. This package does not import testing, so that programs can
// use it.
type TB interface {
	Helper()
	Skipf(format string, args ...any)
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
	Cleanup(func())
}

// ForTest runs a server until the test ends. Without a redis-server the test is skipped, or fails
// where [RequireEnv] is set. So is a test that asks for TLS of a server without it, see
// [RequireTLSEnv].
func ForTest(tb TB, args ...string) *Server {
	tb.Helper()
	return ForTestWith(tb, Options{Args: args})
}

// ForTestWith is [ForTest] for a server as Options say.
func ForTestWith(tb TB, o Options) *Server {
	tb.Helper()
	s, err := StartWith(context.Background(), o)
	return keep(tb, s, err)
}

// ClusterForTest runs a cluster until the test ends, like [ForTest].
func ClusterForTest(tb TB, n int) *Cluster {
	tb.Helper()
	return ClusterForTestWith(tb, n, Options{})
}

// ClusterForTestWith is [ClusterForTest] for servers as Options say.
func ClusterForTestWith(tb TB, n int, o Options) *Cluster {
	tb.Helper()
	c, err := StartClusterWith(context.Background(), n, o)
	return keep(tb, c, err)
}

// SentinelForTest runs a sentinel until the test ends, like [ForTest].
func SentinelForTest(tb TB, name string, master *Server) *Server {
	tb.Helper()
	s, err := StartSentinel(context.Background(), name, master)
	return keep(tb, s, err)
}

func keep[T interface{ Close() error }](tb TB, s T, err error) T {
	tb.Helper()
	switch {
	case errors.Is(err, ErrNotInstalled) && os.Getenv(RequireEnv) == "":
		tb.Skipf("%v", err)
	case errors.Is(err, ErrNoTLS) && os.Getenv(RequireTLSEnv) == "":
		tb.Skipf("%v", ErrNoTLS)
	case err != nil:
		tb.Fatalf("%v", err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Errorf("redisproc: close: %v", err)
		}
	})
	return s
}
