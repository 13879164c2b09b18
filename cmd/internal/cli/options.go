package cli

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
)

// MaxValue is the largest value in bytes that commands read: what a Packer unpacks by default.
const MaxValue = 64 << 20

// URLEnv names the variable with the URL that commands use without a --redis. Arguments can be read
// by everybody on the machine, a process' environment by its user.
const URLEnv = "BALE_REDIS_URL"

// PasswordFlag is where the password of the servers is taken from whose URL has none.
type PasswordFlag struct {
	RedisPasswordFile string `placeholder:"FILE" help:"A file with the password of each Redis whose URL has none. Default: the environment's REDISCLI_AUTH."`
}

// Password returns the password; empty for none.
func (f *PasswordFlag) Password() (string, error) {
	if f.RedisPasswordFile == "" {
		return os.Getenv("REDISCLI_AUTH"), nil // as redis-cli has it
	}
	b, err := os.ReadFile(f.RedisPasswordFile)
	password := strings.TrimRight(string(b), "\r\n")
	if err == nil && password == "" {
		err = fmt.Errorf("%s is empty", f.RedisPasswordFile)
	}
	if err != nil {
		return "", fmt.Errorf("%w: --redis-password-file: %w", ErrUsage, err)
	}
	return password, nil
}

// Bytes is a size on the command line: 1000, 64KiB, 64MiB, 1GiB.
type Bytes int

var byteUnits = []struct {
	name string
	size int
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}, {"", 1}}

// UnmarshalText reads the size.
func (b *Bytes) UnmarshalText(text []byte) error {
	for _, u := range byteUnits {
		if digits, ok := strings.CutSuffix(string(text), u.name); ok {
			n, err := strconv.Atoi(digits)
			if err != nil || n < 1 || n > math.MaxInt/2/u.size {
				break
			}
			*b = Bytes(n * u.size)
			return nil
		}
	}
	return fmt.Errorf("%q is no size in bytes: 1000, 64KiB, 64MiB, 1GiB", text)
}

// String is the size in the largest unit that divides it.
func (b Bytes) String() string {
	for _, u := range byteUnits {
		if int(b)%u.size == 0 {
			return strconv.Itoa(int(b)/u.size) + u.name
		}
	}
	return strconv.Itoa(int(b))
}
