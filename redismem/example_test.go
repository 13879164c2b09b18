package redismem_test

import (
	"fmt"

	"github.com/balekv/bale/redismem"
)

// The memory of a million expiring keys of 12 bytes with values of 200 bytes, and with values of
// 80.
func Example() {
	const keys = 1_000_000
	var s redismem.Server // Redis 7.0
	for _, n := range []int{200, 80} {
		fmt.Printf("%d bytes: %d MB\n", n, (keys*s.KeyString(12, n, true)+s.Tables(keys, keys))/1e6)
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
	fmt.Println(h.Bytes(), h.Server.Key(len("session:1027"), true)+h.Bytes()) // without and with its key

	fmt.Println(h.BytesOf(40)) // a hash of 40 fields, of which these are a sample
	// Output:
	// 80 160
	// 656
}

// The model that fits a server best is found by the MEMORY USAGE of one of its keys.
func ExampleCandidates() {
	info := map[string]string{"redis_version": "7.2.5", "mem_allocator": "jemalloc-5.3.0"} // not measured
	const name, value, usage = 12, 20, 80                                                  // bytes
	for _, s := range redismem.Candidates(info) {
		s.MemoryUsage = true
		if s.KeyString(name, value, false) == usage {
			fmt.Println(s.Layout == redismem.Redis70, s.FineClasses)
			break
		}
	}
	// Output:
	// true true
}

// The memory of a key depends on the server's version and allocator, which INFO has.
func ExampleOf() {
	for _, info := range []map[string]string{
		{"redis_version": "7.0.15", "mem_allocator": "jemalloc-5.3.0"},
		{"redis_version": "8.2.3", "mem_allocator": "jemalloc-5.3.0"},
		{"valkey_version": "9.1.2", "redis_version": "7.2.4", "mem_allocator": "libc"},
	} {
		s := redismem.Of(info)
		fmt.Println(s.Layout == redismem.Redis70, s.KeyValue(12, []byte("some text"), true), s.KeyValue(12, []byte("42"), true))
	}
	// Output:
	// true 112 80
	// false 56 40
	// false 56 40
}

// A field of a large hash before and after packing.
func ExampleServer_Field() {
	s := redismem.Server{Layout: redismem.Valkey91}
	name := len("profile")
	fmt.Println(s.Field(name, 400), s.Field(name, 125))
	// Output:
	// 480 192
}

// A value that gets a little smaller may save nothing: the allocator has classes of sizes.
func ExampleServer_String() {
	var s redismem.Server
	for _, n := range []int{1000, 900, 800} {
		fmt.Println(n, s.String(n))
	}
	// Output:
	// 1000 1040
	// 900 1040
	// 800 912
}
