//go:build !linux

package proxy

import "syscall"

// private: elsewhere a Unix socket has the permissions of the umask until it is listened on.
var private func(network, address string, c syscall.RawConn) error
