package link

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
)

// benchmarking is the range of RFC 2544 for measuring networks, which no host on the Internet has.
var benchmarking = netip.MustParsePrefix("198.18.0.0/15")

// subnetBits leave two addresses: ours and the server's.
const subnetBits = 30

// freeSubnet chooses a network for a link that no route leads to, of the routes as `ip -json route`
// prints them. It starts its search at random, so that processes at the same time hardly choose the
// same.
func freeSubnet(routes []byte) (netip.Prefix, error) {
	var lines []struct {
		Dst string `json:"dst"`
	}
	if err := json.Unmarshal(routes, &lines); err != nil {
		return netip.Prefix{}, fmt.Errorf("reading the machine's routes: %w", err)
	}
	var taken []netip.Prefix
	for _, line := range lines {
		p, err := netip.ParsePrefix(line.Dst)
		if a, failure := netip.ParseAddr(line.Dst); failure == nil {
			p, err = a.Prefix(a.BitLen())
		}
		// A wider route, as a default or a VPN's half of all addresses, says nothing of who uses
		// this range.
		if err == nil && p.Bits() >= benchmarking.Bits() {
			taken = append(taken, p)
		}
	}
	const n = 1 << (subnetBits - 15)
	first := rand.IntN(n)
	for i := range n {
		if p := subnet((first + i) % n); !overlaps(p, taken) {
			return p, nil
		}
	}
	return netip.Prefix{}, fmt.Errorf("all of %s, which is for measuring networks, has routes on this machine", benchmarking)
}

// subnet is the i-th network of the range.
func subnet(i int) netip.Prefix {
	a := benchmarking.Addr().As4()
	i <<= 32 - subnetBits
	a[1] += byte(i >> 16)
	a[2], a[3] = byte(i>>8), byte(i)
	return netip.PrefixFrom(netip.AddrFrom4(a), subnetBits)
}

func overlaps(p netip.Prefix, others []netip.Prefix) bool {
	for _, o := range others {
		if p.Overlaps(o) {
			return true
		}
	}
	return false
}
