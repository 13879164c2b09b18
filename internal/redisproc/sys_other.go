//go:build !linux

package redisproc

import "syscall"

// Attributes are none: there a server outlives a killed parent.
func Attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }

// Lower does nothing.
func Lower(*syscall.SysProcAttr, string, bool, ...[]string) error { return nil }
