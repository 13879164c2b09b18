package link

import (
	"fmt"
	"os/exec"
	"strings"
)

// Unavailable is a reason why this machine cannot limit a network, and says what to do.
type Unavailable string

// The reasons there are.
const (
	NotLinux     Unavailable = "a limited network needs Linux"
	NotRoot      Unavailable = "a limited network needs root (sudo; in a container also the capabilities NET_ADMIN and SYS_ADMIN)"
	NotInstalled Unavailable = "a limited network needs ip and tc in PATH (Debian: apt-get install iproute2)"
	NoTBF        Unavailable = "the kernel has no tbf, which limits the rate of a network (modprobe sch_tbf; in a kernel of your own CONFIG_NET_SCH_TBF)"
	NoNetem      Unavailable = "the kernel has no netem, which delays packets (modprobe sch_netem; in a kernel of your own CONFIG_NET_SCH_NETEM)"
)

func (u Unavailable) Error() string { return string(u) }

// tools are the programs that make a link.
type tools struct{ ip, tc string }

// find looks for the tools, and for what forbids to use them.
func find(system string, user int) (tools, error) {
	if system != "linux" {
		return tools{}, NotLinux
	}
	if user != 0 {
		return tools{}, NotRoot
	}
	var t tools
	var err error
	if t.ip, err = exec.LookPath("ip"); err == nil {
		t.tc, err = exec.LookPath("tc")
	}
	if err != nil {
		return tools{}, NotInstalled
	}
	return t, nil
}

// unknownQueue is what kernels say of a queue that they do not have: since 4.16, and before.
var unknownQueue = []string{"qdisc kind is unknown", "RTNETLINK answers: No such file or directory"}

// explain finds the reason in what a command said before it failed.
func explain(command []string, said string, err error) error {
	for _, u := range unknownQueue {
		if !strings.Contains(said, u) {
			continue
		}
		for _, word := range command {
			switch word {
			case "tbf":
				return NoTBF
			case "netem":
				return NoNetem
			}
		}
	}
	failure := fmt.Errorf("%s: %w: %s", strings.Join(command, " "), err, strings.TrimSpace(said))
	if strings.Contains(said, "Operation not permitted") || strings.Contains(said, "Permission denied") {
		return fmt.Errorf("%w: %w", NotRoot, failure)
	}
	return failure
}
