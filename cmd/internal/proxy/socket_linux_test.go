package proxy

import (
	"net"
	"os"
	"path/filepath"
	"testing"
)

// TestSocketBegins: nobody else can connect to a Unix socket before it has its permissions.
func TestSocketBegins(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	config := net.ListenConfig{Control: private}
	l, err := config.Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}
