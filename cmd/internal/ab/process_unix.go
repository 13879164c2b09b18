//go:build unix

package ab

import (
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// ownGroup makes the command the leader of a process group, which gets a SIGTERM when the command's
// context ends.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
}

// killGroup ends what is left of the group. There is mostly nothing, which is the error that is not
// looked at.
func killGroup(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }

// peakRSS is the largest resident set in bytes of the process, or of one that it waited for.
func peakRSS(state *os.ProcessState) (float64, bool) {
	usage, ok := state.SysUsage().(*syscall.Rusage)
	if !ok {
		return 0, false
	}
	if runtime.GOOS == "darwin" || runtime.GOOS == "ios" {
		return float64(usage.Maxrss), true // in bytes there, in KiB elsewhere
	}
	return float64(usage.Maxrss) * 1024, true
}
