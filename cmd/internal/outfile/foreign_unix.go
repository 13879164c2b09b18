//go:build unix

package outfile

import (
	"os"
	"syscall"
)

// foreign reports whether a file belongs to neither the user nor root.
func foreign(info os.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return !ok || stat.Uid != 0 && int(stat.Uid) != os.Geteuid()
}
