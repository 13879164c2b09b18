//go:build !linux

package redisproc

import "syscall"

func attributes() *syscall.SysProcAttr { return nil }

func (*Server) lower(*syscall.SysProcAttr) error { return nil }
