//go:build !linux

package main

// gentle does nothing here.
func gentle() {}
