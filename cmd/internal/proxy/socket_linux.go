package proxy

import (
	"cmp"
	"syscall"
)

// private makes a Unix socket begin with permissions for its own user alone. Linux gives it those
// of its descriptor, less the umask.
func private(_, _ string, c syscall.RawConn) (err error) {
	failed := c.Control(func(fd uintptr) { err = syscall.Fchmod(int(fd), 0o600) })
	return cmp.Or(failed, err)
}
