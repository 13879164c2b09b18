package frame

import (
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"testing"
)

// TestChecksum: every length and alignment, as the standard library has it.
func TestChecksum(t *testing.T) {
	random := rand.NewChaCha8([32]byte{9})
	b := make([]byte, 6<<10)
	random.Read(b)
	for n := 0; n < 4<<10; n++ {
		for _, from := range []int{0, 1, 3, 7, n % 61} {
			content := b[from : from+n]
			if got, want := Checksum(content), crc32.Checksum(content, castagnoli); got != want {
				t.Fatalf("%d bytes from %d: %08x, want %08x", n, from, got, want)
			}
		}
	}
	for n := range 64 {
		for _, crc := range []uint32{0, 1, 0xFFFFFFFF, 0xDEADBEEF} {
			if got, want := updateShort(crc, b[n%5:][:n]), crc32.Update(crc, castagnoli, b[n%5:][:n]); got != want {
				t.Fatalf("update of %08x by %d bytes: %08x, want %08x", crc, n, got, want)
			}
		}
	}
	for range 10000 { // and sparse bits
		clear(b)
		n := 1 + rand.IntN(4<<10)
		b[rand.IntN(n)] = 1 << rand.IntN(8)
		if got, want := Checksum(b[:n]), crc32.Checksum(b[:n], castagnoli); got != want {
			t.Fatalf("%d bytes: %08x, want %08x", n, got, want)
		}
	}
}

func FuzzChecksum(f *testing.F) {
	f.Add(make([]byte, 450))
	f.Fuzz(func(t *testing.T, b []byte) {
		if got, want := Checksum(b), crc32.Checksum(b, castagnoli); got != want {
			t.Fatalf("%08x, want %08x", got, want)
		}
	})
}

// BenchmarkChecksum, beside the standard library's.
func BenchmarkChecksum(b *testing.B) {
	for _, n := range []int{64, 100, 200, 450, 838, 2000, 3000, 4000} {
		content := make([]byte, n)
		sum := uint32(0)
		b.Run(fmt.Sprint(n, "/bale"), func(b *testing.B) {
			for b.Loop() {
				sum ^= Checksum(content)
			}
		})
		b.Run(fmt.Sprint(n, "/standard"), func(b *testing.B) {
			for b.Loop() {
				sum ^= crc32.Checksum(content, castagnoli)
			}
		})
	}
}
