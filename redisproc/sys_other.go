//go:build !linux

package redisproc

import "syscall"

func attributes() *syscall.SysProcAttr { return nil }
