package redismem_test

import (
	"fmt"

	"github.com/balekv/bale/redismem"
)

// The memory of a million expiring keys of 12 bytes with values of 200 bytes, and with values of
// 80.
func Example() {
	const keys = 1_000_000
	var s redismem.Server
	key := s.Key(12, true) + 2*redismem.Table(keys)/keys
	for _, n := range []int{200, 80} {
		fmt.Printf("%d bytes: %d MB\n", n, keys*(key+s.String(n))/1e6)
	}
	// Output:
	// 200 bytes: 336 MB
	// 80 bytes: 208 MB
}

// A session of four fields is one listpack.
func ExampleHash() {
	var h redismem.Hash
	for field, value := range map[string]string{"user": "1027", "seen": "1751328000", "token": "dVqJ8w0aQ2", "theme": "dark"} {
		h.Add([]byte(field), []byte(value))
	}
	fmt.Println(h.Bytes())
	// Output: 80
}
