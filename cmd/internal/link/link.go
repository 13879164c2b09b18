// Package link makes a limited network to a server on this machine. It is a network namespace for
// the server, and a cable to it with a rate and a delay.
//
// [Parse] reads a [Setting], and [Open] makes a [Link] of it, with tc, as root on Linux. Start a
// server through [Link.Prefix] on the address [Link.ServerIP]; programs outside reach it there. tbf
// limits both directions, and netem delays them if there is a delay. An [Unavailable] error gives
// the reason why this machine cannot have a link.
//
// A link costs the machine's own processor time, about as much as loopback does: a rate that it
// cannot carry is not reached.
package link

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/balekv/bale/internal/redisproc"
)

// A Link's namespace and its device outside have the same name, with the process that made it:
// bale-PID-xxx, the PID in hexadecimal digits. It fits into the 15 characters of a device.
var nameOfLink = regexp.MustCompile(`^bale-([0-9a-f]{1,6})-[a-z2-7]{3}$`)

// inside is the device in the namespace.
const inside = "eth0"

// cleanTime is how long Close may take; it takes some milliseconds.
const cleanTime = 10 * time.Second

// Link is a limited network. It must not be used by several goroutines at once.
type Link struct {
	tools
	name   string
	server netip.Addr
	closed bool
}

// Open makes a limited network, and removes what processes that are gone have left of theirs. If it
// fails nothing stays; the error is an [Unavailable] where the machine is the reason. The caller
// closes it. Other links may be open.
func Open(ctx context.Context, s Setting) (_ *Link, err error) {
	if err := s.validate(); err != nil {
		return nil, fmt.Errorf("link: %w", err)
	}
	t, err := find(runtime.GOOS, os.Geteuid())
	if err != nil {
		return nil, fmt.Errorf("link: %w", err)
	}
	l := &Link{tools: t, name: fmt.Sprintf("bale-%x-%s", os.Getpid(), strings.ToLower(rand.Text()[:3]))}
	l.removeStale(ctx)
	defer func() {
		if err != nil {
			err = errors.Join(err, l.Close())
		}
	}()
	routes, err := run(ctx, l.ip, "-json", "-4", "route", "show", "table", "all")
	if err != nil {
		return nil, err
	}
	subnet, err := freeSubnet([]byte(routes))
	if err != nil {
		return nil, fmt.Errorf("link: %w", err)
	}
	client := subnet.Addr().Next()
	l.server = client.Next()
	for _, args := range [][]string{
		{"netns", "add", l.name},
		{"link", "add", l.name, "type", "veth", "peer", "name", inside, "netns", l.name},
		{"address", "add", netip.PrefixFrom(client, subnetBits).String(), "dev", l.name},
		{"-netns", l.name, "address", "add", netip.PrefixFrom(l.server, subnetBits).String(), "dev", inside},
		{"-netns", l.name, "link", "set", "lo", "up"},
		{"-netns", l.name, "link", "set", inside, "up"},
		{"link", "set", l.name, "up"},
	} {
		if _, err := run(ctx, l.ip, args...); err != nil {
			return nil, err
		}
	}
	if err := l.shape(ctx, s); err != nil {
		return nil, err
	}
	return l, nil
}

// shape gives both ends their queues.
func (l *Link) shape(ctx context.Context, s Setting) error {
	for _, end := range []struct {
		where  []string
		device string
	}{{nil, l.name}, {[]string{"-netns", l.name}, inside}} {
		for _, args := range s.queues(end.device) {
			_, err := run(ctx, l.tc, append(end.where, args...)...)
			if errors.Is(err, NoNetem) {
				err = fmt.Errorf("%w; leave the delay out: --link %s", err, Setting{Bits: s.Bits})
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// Prefix is the command that runs another inside, by becoming it.
func (l *Link) Prefix() []string { return []string{l.ip, "netns", "exec", l.name} }

// ServerIP is the address that a server inside listens on.
func (l *Link) ServerIP() string { return l.server.String() }

// Close removes the network. End the programs inside first: nothing can reach them afterwards.
func (l *Link) Close() error {
	if l.closed {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), cleanTime)
	defer cancel()
	if err := l.remove(ctx, l.name); err != nil {
		return err
	}
	l.closed = true
	return nil
}

// remove removes what there is of a link. The device goes first: with the namespace it goes as
// well, but some time later.
func (l *Link) remove(ctx context.Context, name string) error {
	_, device := run(ctx, l.ip, "link", "delete", name)
	if device != nil && strings.Contains(device.Error(), "Cannot find device") {
		device = nil
	}
	_, namespace := run(ctx, l.ip, "netns", "delete", name)
	if namespace != nil && strings.Contains(namespace.Error(), "No such file or directory") {
		namespace = nil
	}
	return errors.Join(device, namespace)
}

// removeStale removes links whose process is gone. What cannot be removed disturbs nobody, and
// another process may be at it, too.
func (l *Link) removeStale(ctx context.Context) {
	list, err := run(ctx, l.ip, "netns", "list")
	if err != nil {
		return
	}
	for line := range strings.Lines(list) {
		name, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		match := nameOfLink.FindStringSubmatch(name)
		if match == nil {
			continue
		}
		pid, err := strconv.ParseInt(match[1], 16, 32)
		if err != nil {
			continue
		}
		if _, err := os.Stat("/proc/" + strconv.FormatInt(pid, 10)); errors.Is(err, os.ErrNotExist) {
			l.remove(ctx, name)
		}
	}
}

// run runs a command and returns what it printed. Its error holds what it said.
func run(ctx context.Context, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(redisproc.Environment(), "LC_ALL=C")
	var out, said strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return "", fmt.Errorf("link: %w", explain(append([]string{program}, args...), said.String(), err))
	}
	return out.String(), nil
}
