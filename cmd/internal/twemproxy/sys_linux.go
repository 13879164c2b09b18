package twemproxy

import "syscall"

// attributes make the kernel end the proxy with us, and keep Ctrl-C in a terminal from reaching it
// before we are done with it.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
