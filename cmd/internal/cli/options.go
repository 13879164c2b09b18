package cli

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/balekv/bale/cmd/internal/keyspace"
)

// MaxValue is the largest value in bytes that commands read: what a Packer unpacks by default.
const MaxValue = 64 << 20

// URLEnv names the variable with the URL that commands use without a --redis. Arguments can be read
// by everybody on the machine, a process' environment by its user.
const URLEnv = "BALE_REDIS_URL"

// NoServer is the error of a command that was given no Redis: no command guesses one. In its place
// may be other options.
func NoServer(others ...string) error {
	text := fmt.Sprintf("give --redis URL, or the environment's %s", URLEnv)
	for _, o := range others {
		text += ", or " + o
	}
	return fmt.Errorf("%w: %s", ErrUsage, text)
}

// ConnectionFlags are how commands reach each Redis, beside its URL.
type ConnectionFlags struct {
	User                 string `placeholder:"NAME" help:"The user of each Redis whose URL has none."`
	RedisPasswordFile    string `placeholder:"FILE" help:"A file with the password of each Redis whose URL has none. Default: the environment's REDISCLI_AUTH."`
	SentinelPasswordFile string `placeholder:"FILE" help:"A file with the password of Sentinels whose URL has none."`
	TLSCA                string `name:"tls-ca" placeholder:"FILE" help:"PEM file of the CA that signed the certificates of rediss:// servers. Default: the system's."`
	TLSCert              string `name:"tls-cert" placeholder:"FILE" help:"PEM file of the client's certificate for rediss://."`
	TLSKey               string `name:"tls-key" placeholder:"FILE" help:"PEM file of its key."`
}

// Login returns how to reach the Redis servers at some URLs, with the passwords read.
func (f *ConnectionFlags) Login(urls ...string) (l keyspace.Login, err error) {
	l = keyspace.Login{User: f.User, Password: os.Getenv("REDISCLI_AUTH"), CA: f.TLSCA, Certificate: f.TLSCert, Key: f.TLSKey} // as redis-cli has it
	if err := l.Check(urls...); err != nil {
		return l, fmt.Errorf("%w: %w", ErrUsage, err)
	}
	for _, password := range []struct {
		option, file string
		to           *string
	}{{"--redis-password-file", f.RedisPasswordFile, &l.Password}, {"--sentinel-password-file", f.SentinelPasswordFile, &l.SentinelPassword}} {
		if password.file == "" {
			continue
		}
		b, err := os.ReadFile(password.file)
		if *password.to = strings.TrimRight(string(b), "\r\n"); err == nil && *password.to == "" {
			err = fmt.Errorf("%s is empty", password.file)
		}
		if err != nil {
			return l, fmt.Errorf("%w: %s: %w", ErrUsage, password.option, err)
		}
	}
	return l, nil
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

// Given are the options of a command line that keep is true for, with their values, as they were
// given.
func Given(k *kong.Context, keep func(*kong.Flag) bool) (words []string) {
	flags := map[string]*kong.Flag{}
	for _, f := range k.Flags() {
		flags["--"+f.Name] = f
	}
	for i := 0; i < len(k.Args); i++ {
		name, value, joined := strings.Cut(k.Args[i], "=")
		f := flags[name]
		switch {
		case f == nil:
			continue
		case f.IsBool():
			name, joined = k.Args[i], false
		case !joined && i+1 < len(k.Args):
			i, value, joined = i+1, k.Args[i+1], true
		}
		if !keep(f) {
			continue
		}
		if words = append(words, name); joined {
			words = append(words, value)
		}
	}
	return words
}

// CheckLists returns an error if a list on the command line is empty, or has a value twice.
func CheckLists(k *kong.Context) error {
	for _, p := range k.Path {
		if p.Flag == nil || !p.Flag.IsSlice() || p.Flag.Tag.Sep == -1 {
			continue
		}
		list := p.Flag.Target
		if list.Len() == 0 {
			return fmt.Errorf("%w: --%s is empty", ErrUsage, p.Flag.Name)
		}
		for i := range list.Len() {
			for j := range i {
				if list.Index(i).Equal(list.Index(j)) {
					return fmt.Errorf("%w: --%s %v is there twice", ErrUsage, p.Flag.Name, list.Index(i))
				}
			}
		}
	}
	return nil
}
