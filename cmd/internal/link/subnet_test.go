package link

import (
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
)

func routes(destinations ...string) []byte {
	var lines []string
	for _, d := range destinations {
		lines = append(lines, fmt.Sprintf(`{"type":"local","dst":%q,"dev":"eth0","flags":[]}`, d))
	}
	return []byte("[" + strings.Join(lines, ",") + "]")
}

func TestFreeSubnet(t *testing.T) {
	// All but one network of four addresses, each with a route of another size.
	var allBut []string
	only := netip.MustParsePrefix("198.19.2.8/30")
	for p := only; p.Bits() > benchmarking.Bits(); p = netip.PrefixFrom(p.Addr(), p.Bits()-1).Masked() {
		a := p.Addr().As4()
		bit := 32 - p.Bits()
		a[3-bit/8] ^= 1 << (bit % 8)
		allBut = append(allBut, netip.PrefixFrom(netip.AddrFrom4(a), p.Bits()).String())
	}
	for name, test := range map[string]struct {
		routes []byte
		want   string // a part of the address, or of the error after "error: "
	}{
		"none":           {routes(), "198.1"},
		"default":        {routes("default", "10.0.0.0/8", "192.0.2.2"), "198.1"},
		"a VPN's halves": {routes("0.0.0.0/1", "128.0.0.0/1"), "198.1"},
		"one half":       {routes("198.18.0.0/16"), "198.19."},
		"the other half": {routes("198.19.0.0/16"), "198.18."},
		"all but one":    {routes(allBut...), only.Addr().String()},
		"single address": {routes(append(allBut, "198.19.2.10")...), "error: all of 198.18.0.0/15"},
		"all":            {routes("198.18.0.0/15"), "error: all of 198.18.0.0/15"},
		"no routes":      {[]byte("Object is not JSON"), "error: reading the machine's routes"},
	} {
		for range 3 { // the search starts at random
			got, err := freeSubnet(test.routes)
			says, fails := strings.CutPrefix(test.want, "error: ")
			switch {
			case fails && (err == nil || !strings.Contains(err.Error(), says)):
				t.Errorf("%s: %v, %v", name, got, err)
			case !fails && (err != nil || !strings.HasPrefix(got.String(), test.want) || got != got.Masked() || got.Bits() != 30 || !benchmarking.Overlaps(got)):
				t.Errorf("%s: %v, %v", name, got, err)
			}
		}
	}
	if first, last := subnet(0).String(), subnet(1<<15-1).String(); first != "198.18.0.0/30" || last != "198.19.255.252/30" {
		t.Errorf("from %s to %s", first, last)
	}
}

func TestUnavailable(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for _, test := range []struct {
		system string
		user   int
		want   Unavailable
	}{{"darwin", 0, NotLinux}, {"windows", -1, NotLinux}, {"linux", 1000, NotRoot}, {"linux", 0, NotInstalled}} {
		_, err := find(test.system, test.user)
		if got, ok := errors.AsType[Unavailable](err); !ok || got != test.want {
			t.Errorf("%s, %d: %v", test.system, test.user, err)
		}
	}
	failed := &exec.ExitError{}
	for _, test := range []struct {
		command string
		said    string
		want    error
	}{
		{"tc qdisc add dev x root tbf rate 1bit", "Error: Specified qdisc kind is unknown.\n", NoTBF},
		{"tc qdisc add dev x parent 1:1 netem delay 1us", "Error: Specified qdisc kind is unknown.\n", NoNetem},
		{"tc qdisc add dev x parent 1:1 netem delay 1us", "RTNETLINK answers: No such file or directory\n", NoNetem},
		{"ip netns add x", "mount --make-shared /run/netns failed: Operation not permitted\n", NotRoot},
		{"ip netns add x", "Cannot create namespace file: Permission denied\n", NotRoot},
		{"ip netns add x", "something else\n", failed},
		{"tc qdisc add dev x root tbf", "Cannot find device \"x\"\n", failed},
	} {
		err := explain(strings.Fields(test.command), test.said, failed)
		_, unavailable := errors.AsType[Unavailable](err)
		if !errors.Is(err, test.want) || unavailable == (test.want == error(failed)) {
			t.Errorf("%s: %s: %v", test.command, test.said, err)
		}
	}
}
