//go:build !linux

package advise

// Yield does nothing here.
func Yield() {}
