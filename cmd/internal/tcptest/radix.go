package tcptest

import "go.uber.org/goleak"

// RadixLeaves are what tests of radix must let pass: version 4.1.4 leaves a connection that its
// pool makes in place of a lost one while Close is called.
func RadixLeaves() []goleak.Option {
	const radix = "github.com/mediocregopher/radix/v4."
	return []goleak.Option{goleak.IgnoreAnyFunction(radix + "(*conn).reader"), goleak.IgnoreAnyFunction(radix + "(*connWriter).run")}
}
