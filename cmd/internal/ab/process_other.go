//go:build !unix

package ab

import (
	"os"
	"os/exec"
)

// ownGroup does nothing where there are no process groups: the process itself is killed.
func ownGroup(*exec.Cmd) {}

func killGroup(*exec.Cmd) {}

func peakRSS(*os.ProcessState) (float64, bool) { return 0, false }
