//go:build !linux

package twemproxy

import "syscall"

func attributes() *syscall.SysProcAttr { return nil }
