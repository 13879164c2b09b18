package tcptest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
)

// Redis stands in for a Redis at an address of loopback until the test ends. It answers a command
// by what is in answers for its name, in upper case, and any other as one that it does not know.
func Redis(t testing.TB, answers map[string]string) (addr string) {
	return Listen(t, func(c net.Conn) {
		for r := bufio.NewReader(c); ; {
			var n int
			if _, err := fmt.Fscanf(r, "*%d\r\n", &n); err != nil {
				return
			}
			name := ""
			for i := range n {
				var size int
				if _, err := fmt.Fscanf(r, "$%d\r\n", &size); err != nil {
					return
				}
				word := make([]byte, size+len("\r\n"))
				if _, err := io.ReadFull(r, word); err != nil {
					return
				}
				if i == 0 {
					name = strings.ToUpper(string(word[:size]))
				}
			}
			answer, ok := answers[name]
			if !ok {
				answer = "-ERR unknown command\r\n"
			}
			if _, err := io.WriteString(c, answer); err != nil {
				return
			}
		}
	})
}
