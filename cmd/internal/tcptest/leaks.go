package tcptest

import (
	"testing"

	"go.uber.org/goleak"
)

// VerifyTestMain is that of goleak, for tests of programs that speak to Redis: it passes what the
// clients leave.
func VerifyTestMain(m *testing.M) {
	const (
		goredis = "github.com/redis/go-redis/v9/internal/pool."
		radix   = "github.com/mediocregopher/radix/v4."
		rueidis = "github.com/redis/rueidis."
	)
	goleak.VerifyTestMain(m,
		// That of a pool whose server is gone ends up to a second, and an attempt to connect, later.
		goleak.IgnoreAnyFunction(goredis+"(*ConnPool).tryDial"),
		// Version 4.1.4 leaves a connection that its pool makes for a lost one during Close.
		goleak.IgnoreAnyFunction(radix+"(*conn).reader"), goleak.IgnoreAnyFunction(radix+"(*connWriter).run"),
		// Refreshes sleep for seconds, also after Close.
		goleak.IgnoreAnyFunction(rueidis+"(*clusterClient)._refresh.func2"), goleak.IgnoreAnyFunction(rueidis+"(*call).DelayDo.func1"))
}
