package proxy

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"os"
	process "os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/balekv/bale"
	"github.com/balekv/bale/cmd/internal/engine"
	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/redisproc"
)

// TestLimits: what is larger than a limit is an error, and the connection goes on.
func TestLimits(t *testing.T) {
	addr, server, p := proxied(t, func(o *Options) { o.MaxClients, o.MaxRequest, o.MaxMemory = 3, 64<<10, 1<<20 })
	c := dial(t, addr)
	large := strings.Repeat("x", 100<<10)
	talk(t, c, wire("MSET", "user:1", large)+wire("SET", "user:2", "y"), "-BALE MSET "+tooLarge+"\r\n+OK\r\n")
	// A single value passes unpacked, unless it must be escaped.
	stored := "$102400\r\n" + large + "\r\n"
	for _, command := range [][]string{
		{"SET", "user:1", large}, {"set", "user:1", large, "PX", "100000", "GET"}, {"SETEX", "user:1", "1000", large}, {"HSET", "user:h", "f", large},
		{"SET", "user:1", large, "IFEQ", "x"}, {"SET", "user:1", "\xba\x1e" + large}, {"SETNX", "user:1", large, "extra"},
	} {
		want := map[string]string{
			"SET": "+OK\r\n", "set": stored, "SETEX": "+OK\r\n", "HSET": ":1\r\n", "SETNX": "-ERR wrong number of arguments for 'setnx' command\r\n",
		}[command[0]]
		read, after := wire("GET", "user:1"), stored
		switch {
		case len(command[2]) > len(large):
			want = "-BALE SET " + tooLarge + "\r\n"
		case command[len(command)-1] == "x":
			want = "-ERR syntax error\r\n"
		case command[0] == "HSET":
			read = wire("HGET", "user:h", "f")
		}
		talk(t, c, wire(command...)+read, want+after)
	}
	talk(t, c, wire("SET", "other", large)+wire("STRLEN", "other"), "+OK\r\n:102400\r\n") // it is not looked into
	talk(t, c, wire("MULTI")+wire("MSET", "user:1", large)+wire("EXEC"), "+OK\r\n-BALE MSET "+tooLarge+"\r\n-EXECABORT Transaction discarded because of previous errors.\r\n")
	many := wire(append([]string{"MGET"}, make([]string, 20_000)...)...) // few bytes and many arguments
	talk(t, c, many+wire("PING"), "-BALE MGET "+tooLarge+"\r\n+PONG\r\n")
	many = wire(append([]string{"MGET"}, make([]string, maxArgs)...)...)
	talk(t, c, many+wire("PING"), "-BALE MGET "+tooMany+"\r\n+PONG\r\n")
	// Out of scope: the proxy knows the keys of MSET and EVAL at their end.
	talk(t, c, wire("MSET", "other", large), "-BALE MSET "+tooLarge+"\r\n")
	talk(t, c, wire("EVAL", "return 1", "0", large)+wire("RPUSH", "other:l", large), "-BALE EVAL "+tooLarge+"\r\n:1\r\n")
	others := []net.Conn{dial(t, addr), dial(t, addr)}
	for _, c := range others {
		talk(t, c, wire("PING"), "+PONG\r\n")
	}
	beyond := dial(t, addr)
	talk(t, beyond, "", "-ERR max number of clients reached\r\n")
	atEnd(t, beyond)
	// Memory is given back after each command: together they are beyond it.
	for range 3 {
		for _, c := range others {
			talk(t, c, wire("SET", "user:1", strings.Repeat("y", 60<<10)), "+OK\r\n")
		}
	}
	// A reply that decodes to more than there is memory for.
	bomb := frame.Header{Algorithm: frame.Zstd, Length: 60 << 20}.Append(nil)
	if _, err := server.Do(t.Context(), "SET", "user:bomb", string(append(bomb, "xxxx"...))); err != nil {
		t.Fatal(err)
	}
	talk(t, c, wire("GET", "user:bomb")+wire("PING"), "-BALE the reply "+replyTooLarge+"\r\n+PONG\r\n")
	for _, c := range append(others, c) {
		c.Close()
	}
	if err := p.stop(); err != nil {
		t.Error(err)
	}
}

// TestDecodedMemory: what a reply decodes to counts against the limits, however small its values
// and their stored form are. On a shared connection, where it would have to wait for its client, it
// is an error.
func TestDecodedMemory(t *testing.T) {
	addr, _, _ := proxied(t, func(o *Options) { o.MaxRequest, o.MaxMemory, o.Pool = 1<<20, 4<<20, 1 })
	talk(t, dial(t, addr), wire("HSET", "user:h", "f", strings.Repeat("\x00", 64<<10)), ":1\r\n") // too large for it
	c := dial(t, addr)
	fields := []string{"HMGET", "user:h"}
	for range 1000 {
		fields = append(fields, "f")
	}
	few := "*9\r\n" + strings.Repeat("$65536\r\n"+strings.Repeat("\x00", 64<<10)+"\r\n", 9)
	talk(t, c, wire("STRLEN", "other")+wire(fields[:11]...), ":0\r\n"+few) // which warms the decoder
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	talk(t, c, wire(fields...)+wire("PING"), "-BALE the reply "+replyTooLarge+"\r\n+PONG\r\n")
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 16<<20 {
		t.Errorf("%d bytes were allocated for a reply within 4 MiB", n)
	}
	for range 20 { // it is given back
		talk(t, c, wire(fields[:11]...), few)
	}
}

// TestLargeReplies: a reply that is larger than the memory passes value by value, whether its
// values are large when stored or when decoded. With a damaged value it ends before that.
func TestLargeReplies(t *testing.T) {
	var notes lines
	addr, server, _ := proxied(t, func(o *Options) { o.MaxRequest, o.MaxMemory, o.Metrics, o.Err = 1<<20, 4<<20, ":0", &notes })
	url := regexp.MustCompile(`http://\S+/`).FindString(notes.await(t, "metrics are at ")) + "metrics"
	r := rand.New(rand.NewPCG(1, 1))
	noise := make([]byte, 200<<10) // which packs to half
	for i := range noise {
		noise[i] = "0123456789abcdef"[r.IntN(16)]
	}
	zeros := strings.Repeat("\x00", 64<<10)
	c := dial(t, addr)
	talk(t, c, wire("MSET", "user:1", string(noise), "user:2", zeros)+wire("HSET", "user:h", "f", string(noise), "g", zeros), "+OK\r\n:2\r\n")
	do(t, server, "SET", "user:plain", string(noise))
	do(t, server, "SET", "user:gone", string(frame.Freshness{Absent: true}.Append(frame.Header{Version: frame.V2}.Append(nil))))
	packer, err := bale.NewPacker(bale.PackerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	most := strings.Repeat("\x00", 2300<<10) // which fits alone, and not beside 15 zeros
	packed, err := packer.Pack(nil, []byte(most))
	if err != nil {
		t.Fatal(err)
	}
	do(t, server, "SET", "user:most", string(packed))
	text := func(s string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(s), s) }
	n, z, nothing := text(string(noise)), text(zeros), "$-1\r\n"
	const many = 100 // 20 MB
	keys := func(names ...string) []string { return slices.Repeat(names, many) }
	one := append([]string{"MGET"}, keys("user:1", "none", "other", "user:2", "user:gone")...)
	oneIs := fmt.Sprintf("*%d\r\n", 5*many) + strings.Repeat(n+nothing+nothing+z+nothing, many)
	for name, test := range map[string][2]string{
		"stored":      {wire(one...), oneIs},
		"decoded":     {wire(append([]string{"MGET"}, keys("user:2")...)...), fmt.Sprintf("*%d\r\n", many) + strings.Repeat(z, many)},
		"a large one": {wire(append(append([]string{"MGET"}, slices.Repeat([]string{"user:2"}, 15)...), "user:most")...), "*16\r\n" + strings.Repeat(z, 15) + text(most)},
		"plain":       {wire(append([]string{"MGET"}, keys("user:plain")...)...), fmt.Sprintf("*%d\r\n", many) + strings.Repeat(n, many)},
		"fields":      {wire(append([]string{"HMGET", "user:h"}, keys("f", "none", "g")...)...), fmt.Sprintf("*%d\r\n", 3*many) + strings.Repeat(n+nothing+z, many)},
		"transaction": {wire("MULTI") + wire(one...) + wire("EXEC"), "+OK\r\n+QUEUED\r\n*1\r\n" + oneIs},
		"pipeline":    {wire("GET", "user:2") + wire(one...) + wire("GET", "user:1") + wire(one...), z + oneIs + n + oneIs},
	} {
		t.Run(name, func(t *testing.T) {
			talk(t, c, test[0]+wire("PING"), test[1]+"+PONG\r\n")
			if _, text := ask(t, url, ""); !strings.Contains(text, "\nbale_proxy_held_bytes 0\n") {
				t.Error(regexp.MustCompile("(?m)^bale_proxy_held_bytes .*$").FindString(text))
			}
		})
	}
	pairs, pairsAre := []string{"HSET", "user:all"}, ""
	for i := range many {
		pairs = append(pairs, fmt.Sprint("field", i), string(noise))
		pairsAre += text(fmt.Sprint("field", i)) + n
		if (i+1)%4 == 0 { // within --max-request
			talk(t, c, wire(pairs...), ":4\r\n")
			pairs = pairs[:2]
		}
	}
	for _, hello := range []string{"2", "3"} {
		c := dial(t, addr)
		if _, err := io.WriteString(c, wire("HELLO", hello)+wire("HGETALL", "user:all")+wire("QUIT")); err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(c)
		if err != nil || bytes.Count(got, []byte(n)) != many || len(got) < len(pairsAre) || !bytes.HasSuffix(got, []byte("\r\n+OK\r\n")) {
			t.Errorf("HGETALL in RESP%s: %d bytes with %d values, %v", hello, len(got), bytes.Count(got, []byte(n)), err)
		}
	}
	// More than PackerOptions.Budget, which is for values that are held.
	half := string(noise[:32<<10]) + strings.Repeat("\x00", 480<<10)
	talk(t, c, wire("SET", "user:half", half), "+OK\r\n")
	const halves = 600
	if _, err := io.WriteString(c, wire(append([]string{"MGET"}, slices.Repeat([]string{"user:half"}, halves)...)...)); err != nil {
		t.Fatal(err)
	}
	if n, err := io.CopyN(io.Discard, c, int64(len(fmt.Sprintf("*%d\r\n", halves))+halves*len(text(half)))); err != nil {
		t.Fatalf("%d bytes, %v", n, err)
	}
	talk(t, c, wire("PING"), "+PONG\r\n")
	stored := do(t, server, "GET", "user:1")
	do(t, server, "SET", "user:bad", string(damaged(stored)))
	bad := append(slices.Clone(one), "user:bad", "user:1")
	if _, err := io.WriteString(c, wire(bad...)+wire("PING")); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(c)
	if want := fmt.Sprintf("*%d\r\n", 5*many+2) + strings.TrimPrefix(oneIs, fmt.Sprintf("*%d\r\n", 5*many)); err != nil || string(got) != want {
		t.Errorf("%d bytes in place of %d, %v", len(got), len(want), err)
	}
	notes.await(t, "ends a connection: a value in a reply that is too large to be held cannot be unpacked")
	do(t, server, "SET", "user:huge", string(frame.Header{Version: frame.V2, Algorithm: frame.Zstd, Length: 8 << 20}.Append(nil)))
	c = dial(t, addr)
	if _, err := io.WriteString(c, wire(append(slices.Clone(one), "user:huge", "user:1")...)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(c); err != nil {
		t.Fatal(err)
	}
	if _, text := ask(t, url, ""); !strings.Contains(text, "\nbale_proxy_unpack_errors_total 1\n") { // user:bad; of the other there was no memory
		t.Error(regexp.MustCompile("(?m)^bale_proxy_unpack_errors_total .*$").FindString(text))
	}
	talk(t, dial(t, addr), wire("MGET", "user:bad"), "-BALE a value in scope cannot be unpacked")
}

// TestInflatedReply: few stored bytes do not become a reply without an end. It is an error if all
// of it is held before anything is sent. Else the connection ends at the limit.
func TestInflatedReply(t *testing.T) {
	packer, err := bale.NewPacker(bale.PackerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	zeros := func(n int) (packed, reply string) {
		b, err := packer.Pack(nil, make([]byte, n))
		if err != nil {
			t.Fatal(err)
		}
		return string(b), fmt.Sprintf("$%d\r\n%s\r\n", n, make([]byte, n))
	}
	const inflated = "-BALE the reply decodes to more than 256 MiB"
	t.Run("held", func(t *testing.T) {
		packed, reply := zeros(32 << 20)
		addr, server, _ := proxied(t, nil)
		fields := []string{"HSET", "user:h"}
		for i := range 9 {
			fields = append(fields, fmt.Sprint("f", i), packed)
		}
		do(t, server, fields...)
		do(t, server, "SET", "user:1", packed)
		do(t, server, "RPUSH", "ids", "1", "1", "1", "1", "1", "1", "1", "1", "1")
		f, keys := slices.Repeat([]string{"f1"}, 9), slices.Repeat([]string{"user:1"}, 9)
		for _, command := range [][]string{
			{"HGETALL", "user:h"}, {"HVALS", "user:h"}, {"HSCAN", "user:h", "0", "COUNT", "100"}, {"HRANDFIELD", "user:h", "9", "WITHVALUES"},
			append([]string{"HMGET", "user:h"}, f...), append([]string{"MGET"}, keys...), {"SORT", "ids", "BY", "nosort", "GET", "#", "GET", "user:*"},
		} {
			for _, hello := range []string{"2", "3"} {
				c := dial(t, addr)
				few := wire("MGET", "user:1", "user:1")
				if _, err := io.WriteString(c, wire("CLIENT", "REPLY", "SKIP")+wire("HELLO", hello)+wire(command...)+few+wire("PING")); err != nil {
					t.Fatal(err)
				}
				r := bufio.NewReader(c)
				if line, err := r.ReadString('\n'); !strings.HasPrefix(line, inflated) {
					t.Fatalf("%s in RESP%s: %.100q, %v", command[0], hello, line, err)
				}
				n, err := io.CopyN(io.Discard, r, int64(len("*2\r\n")+2*len(reply)))
				if line, _ := r.ReadString('\n'); line != "+PONG\r\n" {
					t.Errorf("%s in RESP%s: %d bytes, then %.100q, %v", command[0], hello, n, line, err)
				}
			}
		}
		// In EXEC it is the error of a command. Eight values are 256 MiB.
		gets := strings.Repeat(wire("GET", "user:1"), 8)
		c := dial(t, addr)
		talk(t, c, wire("MULTI")+wire("HGETALL", "user:h")+gets+wire("GET", "user:1")+wire("PING")+wire("EXEC")+gets+wire("PING"), "+OK\r\n"+strings.Repeat("+QUEUED\r\n", 11)+"*11\r\n")
		r := bufio.NewReader(c)
		for _, want := range []string{inflated, "", inflated, "+PONG\r\n", "", "+PONG\r\n"} {
			if want == "" {
				if n, err := io.CopyN(io.Discard, r, int64(8*len(reply))); err != nil {
					t.Fatalf("%d bytes, %v", n, err)
				}
			} else if line, err := r.ReadString('\n'); !strings.HasPrefix(line, want) {
				t.Fatalf("in EXEC: %.100q, %v; want %q", line, err, want)
			}
		}
	})
	t.Run("shared", func(t *testing.T) { // of each reply alone
		packed, reply := zeros(32 << 20)
		addr, server, _ := proxied(t, func(o *Options) { o.Pool = 1 })
		do(t, server, "SET", "user:1", packed)
		c := dial(t, addr)
		for range 9 {
			talk(t, c, wire("GET", "user:1"), reply)
		}
	})
	t.Run("passing", func(t *testing.T) {
		packed, reply := zeros(2 << 20)
		var notes lines
		addr, server, _ := proxied(t, func(o *Options) { o.MaxRequest, o.MaxMemory, o.Metrics, o.Err = 1<<20, 4<<20, ":0", &notes })
		url := regexp.MustCompile(`http://\S+/`).FindString(notes.await(t, "metrics are at ")) + "metrics"
		do(t, server, "MSET", "user:plain", strings.Repeat("x", 2<<20), "user:1", packed) // which is more than is held
		for name, send := range map[string]string{
			"command":     wire(append([]string{"MGET", "user:plain"}, slices.Repeat([]string{"user:1"}, 200)...)...),
			"transaction": wire("MULTI") + strings.Repeat(wire(append([]string{"MGET", "user:plain"}, slices.Repeat([]string{"user:1"}, 50)...)...), 4) + wire("EXEC"),
		} {
			c := dial(t, addr)
			if _, err := io.WriteString(c, send+wire("QUIT")); err != nil {
				t.Fatal(err)
			}
			n, err := io.Copy(io.Discard, c)
			if most := int64(128*len(reply) + 10<<20); err != nil || n > most || n < 256<<20 {
				t.Errorf("%s: %d bytes, %v; want 256 MiB", name, n, err)
			}
		}
		notes.await(t, "ends a connection: a value in a reply that is too large to be held cannot be unpacked: the reply decodes to more than 256 MiB")
		if _, text := ask(t, url, ""); !strings.Contains(text, "\nbale_proxy_unpack_errors_total 2\n") {
			t.Error(regexp.MustCompile("(?m)^bale_proxy_unpack_errors_total .*$").FindString(text))
		}
	})
}

// TestLargeReplyGivesBack: a client that stalls in the middle of a large reply does not hold the
// memory in which the reply began.
func TestLargeReplyGivesBack(t *testing.T) {
	var notes lines
	addr, server, _ := proxied(t, func(o *Options) { o.MaxRequest, o.MaxMemory, o.Metrics, o.Err = 1<<20, 64<<20, ":0", &notes })
	url := regexp.MustCompile(`http://\S+/`).FindString(notes.await(t, "metrics are at ")) + "metrics"
	do(t, server, "SET", "user:plain", strings.Repeat("x", 10<<10))
	c := dial(t, addr)
	if _, err := io.WriteString(c, wire(append([]string{"MGET"}, slices.Repeat([]string{"user:plain"}, 5000)...)...)); err != nil { // 50 MB
		t.Fatal(err)
	}
	if _, err := io.CopyN(io.Discard, c, 8<<20); err != nil { // twice what is held
		t.Fatal(err)
	}
	for until := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		_, text := ask(t, url, "")
		if strings.Contains(text, "\nbale_proxy_held_bytes 0\n") {
			return
		}
		if time.Now().After(until) {
			t.Fatal(regexp.MustCompile("(?m)^bale_proxy_held_bytes .*$").FindString(text))
		}
	}
}

// TestLargeReplyFetches: a reply that passes value by value is one operation, which fetches no more
// dictionaries than one that is held.
func TestLargeReplyFetches(t *testing.T) {
	addr, server, _ := proxied(t, func(o *Options) { o.MaxRequest, o.MaxMemory = 1<<20, 4<<20 })
	const dictionaries = 300 // more than a group keeps
	fields := []string{"HMGET", "user:h"}
	for i := range dictionaries {
		content := fmt.Appendf(nil, "the content of dictionary %d %s", i, strings.Repeat("x", 100))
		d, err := frame.NewDictionary(content)
		if err != nil {
			t.Fatal(err)
		}
		do(t, server, "SET", dict.DefaultPrefix+"data:"+d.ID().String(), string(content))
		c, err := compress.Setting{Algorithm: frame.S2}.New(d)
		if err != nil {
			t.Fatal(err)
		}
		p, err := bale.NewPacker(bale.PackerOptions{Compressors: &compress.Set{Write: c}})
		if err != nil {
			t.Fatal(err)
		}
		packed, err := p.Pack(nil, content)
		if err != nil || !frame.HasMagic(packed) {
			t.Fatalf("%d bytes, %v", len(packed), err)
		}
		if err := errors.Join(p.Close(), c.Close()); err != nil {
			t.Fatal(err)
		}
		field := fmt.Sprint("f", i)
		do(t, server, "HSET", "user:h", field, string(packed))
		fields = append(fields, field)
	}
	do(t, server, "HSET", "user:h", "plain", strings.Repeat("x", 200<<10))
	all := slices.Concat(fields, slices.Repeat([]string{"plain"}, 10), slices.Repeat(fields[2:], 4)) // 2 MB
	reads := regexp.MustCompile(`cmdstat_(?:get|mget|getrange|strlen):calls=(\d+)`)
	count := func() (n int) {
		for _, m := range reads.FindAllStringSubmatch(do(t, server, "INFO", "commandstats"), -1) {
			calls, err := strconv.Atoi(m[1])
			if err != nil {
				t.Fatal(err)
			}
			n += calls
		}
		return n
	}
	for _, command := range [][]string{fields, all} {
		before := count()
		c := dial(t, addr)
		if _, err := io.WriteString(c, wire(command...)+wire("QUIT")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(c); err != nil {
			t.Fatal(err)
		}
		if n := count() - before; n == 0 || n > 600 { // two for each of 256 dictionaries, and the group's own
			t.Errorf("%d values: %d reads", len(command)-2, n)
		}
	}
}

// TestBeforeLogin: a client that has not logged in holds no memory. One that need not log in, or
// has, does from its first command on.
func TestBeforeLogin(t *testing.T) {
	server := redisproc.ForTest(t)
	var notes lines
	o := options(server.URL(), "user:*")
	o.Metrics, o.Err = ":0", &notes
	p := start(t, o)
	value := strings.Repeat("0123456789", 10_000)
	set, get := wire("SET", "user:1", value), wire("GET", "user:1")
	stored := fmt.Sprintf("$%d\r\n%s\r\n", len(value), value)
	refused := "-BALE SET " + tooLarge + "\r\n"
	talk(t, dial(t, p.addr), set+get, "+OK\r\n"+stored)
	talk(t, dial(t, p.addr), wire("CLIENT", "REPLY", "SKIP")+set+get, stored)
	talk(t, dial(t, p.addr), wire("MULTI")+set+wire("EXEC"), "+OK\r\n+QUEUED\r\n*1\r\n+OK\r\n")
	talk(t, dial(t, p.addr), wire("SUBSCRIBE", "c")+set, "*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n-ERR Can't execute 'set': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context\r\n")
	for _, command := range [][]string{{"ACL", "SETUSER", "default", "-ping"}, {"ACL", "SETUSER", "default", "resetpass", ">secret"}} {
		if reply, err := server.Do(t.Context(), command...); err != nil || reply != "OK" {
			t.Fatal(reply, err)
		}
		if len(command) == 4 {
			talk(t, dial(t, p.addr), set+get, "+OK\r\n"+stored)
		}
	}
	const no = "-NOAUTH Authentication required.\r\n"
	c := dial(t, p.addr)
	talk(t, c, set+wire("AUTH", "wrong"), refused+"-WRONGPASS invalid username-password pair or user is disabled.\r\n")
	talk(t, c, set+wire("RESET")+set+get, refused+"+RESET\r\n"+refused+no)
	talk(t, c, wire("AUTH", "secret")+set+get, "+OK\r\n+OK\r\n"+stored)
	talk(t, c, wire("RESET"), "+RESET\r\n")
	talk(t, c, set+wire("MULTI")+set, refused+no+refused)
	// Nor does it hold memory by replies that it does not read.
	c = dial(t, p.addr)
	const n = 20_000
	go io.WriteString(c, strings.Repeat(get+wire("GET", "other"), n))
	url := regexp.MustCompile(`http://\S+/`).FindString(notes.await(t, "metrics are at "))
	for range 20 {
		if _, text := ask(t, url+"metrics", ""); !regexp.MustCompile(`(?m)^bale_proxy_held_bytes \d{1,3}$`).MatchString(text) { // one reply beyond what is free
			t.Errorf("it holds memory: %s", regexp.MustCompile(`(?m)^bale_proxy_held.*`).FindString(text))
		}
	}
	talk(t, c, "", strings.Repeat(no, 2*n))
}

// TestFailedLogin: each login has its reply, whatever is sent around it. Redis from 7.2 on leaves
// the error of a login out while other replies wait to be sent, so a login is sent alone.
func TestFailedLogin(t *testing.T) {
	addr, server, _ := proxied(t, nil)
	if reply, err := server.Do(t.Context(), "ACL", "SETUSER", "default", "resetpass", ">secret"); err != nil || reply != "OK" {
		t.Fatal(reply, err)
	}
	const wrongpass, noauth = "-WRONGPASS invalid username-password pair or user is disabled.\r\n", "-NOAUTH Authentication required.\r\n"
	value := big("login")
	stored := fmt.Sprintf("$%d\r\n%s\r\n", len(value), value)
	get, set, wrong, right := wire("GET", "user:1"), wire("SET", "user:1", value), wire("AUTH", "wrong"), wire("AUTH", "secret")
	hello := wire("HELLO", "2", "SETNAME", "x", "auth", "default", "wrong")
	for _, test := range []struct{ send, want string }{
		{get + wrong + get + right + set + get, noauth + wrongpass + noauth + "+OK\r\n+OK\r\n" + stored},
		{wrong + wrong + hello + right + get, wrongpass + wrongpass + wrongpass + "+OK\r\n" + stored},
		{right + get + hello + get + wrong + get, "+OK\r\n" + stored + wrongpass + stored + wrongpass + stored},
		{get + "auth wrong\r\nhello 3 auth default " + strings.Repeat("x", 200) + "\r\nauth default secret\r\n" + get, noauth + wrongpass + wrongpass + "+OK\r\n" + stored},
		{wire("MULTI") + wrong + right + get, noauth + wrongpass + "+OK\r\n" + stored},
		// In a transaction EXEC would have fewer replies than it says.
		{right + wire("MULTI") + wrong + wire("EXEC") + get, "+OK\r\n+OK\r\n-BALE AUTH " + notInMulti + "\r\n-EXECABORT Transaction discarded because of previous errors.\r\n" + stored},
		{right + wire("MULTI") + hello + wire("DISCARD") + "multi\nauth x\nexec\n" + get, "+OK\r\n+OK\r\n-BALE HELLO " + notInMulti + "\r\n+OK\r\n+OK\r\n-BALE AUTH " + notInMulti + "\r\n-EXECABORT Transaction discarded because of previous errors.\r\n" + stored},
	} {
		c := dial(t, addr)
		talk(t, c, test.send, test.want)
		talk(t, c, wire("QUIT"), "+OK\r\n")
		atEnd(t, c)
	}
}

// TestSilentLogin: a server that gives no reply to a login holds up that connection, and no reply
// after it is taken for that of the login. After --stall the connection ends.
func TestSilentLogin(t *testing.T) {
	o := fakeRedis(t, redisproc.ForTest(t).Addr(), func(c net.Conn) { // which has read the AUTH, and all that came with it
		io.WriteString(c, "+PONG\r\n")
		b := make([]byte, 100)
		for n := 0; n < len(wire("AUTH", "x")); { // the login, without a reply
			k, err := c.Read(b)
			if err != nil {
				return
			}
			n += k
		}
		for { // a reply to whatever follows
			if _, err := c.Read(b); err != nil {
				return
			}
			io.WriteString(c, "+PONG\r\n")
		}
	})
	o.Stall = 50 * time.Millisecond
	c := dial(t, start(t, o).addr)
	if _, err := io.WriteString(c, wire("PING", "hostile")+wire("AUTH", "x")+wire("PING")); err != nil {
		t.Fatal(err)
	}
	if got, _ := io.ReadAll(c); string(got) != "+PONG\r\n" {
		t.Errorf("%q", got)
	}
}

// TestLongKey: a large value passes only if what is before it is held. Else its bytes would be
// commands to Redis.
func TestLongKey(t *testing.T) {
	addr, server, _ := proxied(t, func(o *Options) { o.MaxRequest = bufferSize })
	value := wire("SET", "smuggled", "1") + strings.Repeat(" ", 30_000)
	for end := bufferSize - 4; end <= bufferSize+4; end++ { // of what is before the value
		frame := wire("SET", "", value)
		frame = frame[:strings.Index(frame, "$0\r\n")]
		rest := fmt.Sprintf("\r\n$%d\r\n", len(value))
		key := "user:" + strings.Repeat("k", end-len(frame)-len("$16000\r\n")-len(rest)-len("user:"))
		c := dial(t, addr)
		send := wire("SET", key, value)
		if at := strings.Index(send, value); at != end {
			t.Fatalf("%d, not %d", at, end)
		}
		if _, err := io.WriteString(c, send+wire("PING")); err != nil {
			t.Fatal(err)
		}
		got := bufio.NewReader(c)
		if line, err := got.ReadString('\n'); line != "+OK\r\n" && line != "-BALE SET "+tooLarge+"\r\n" {
			t.Errorf("before the value %d bytes: %q, %v", end, line, err)
		}
		if line, err := got.ReadString('\n'); line != "+PONG\r\n" {
			t.Errorf("before the value %d bytes: %q, %v", end, line, err)
		}
	}
	if n, err := server.Do(t.Context(), "EXISTS", "smuggled"); err != nil || n != "0" {
		t.Errorf("a value was executed: %s, %v", n, err)
	}
}

// TestInlineSpace: words of a line end where they do for Redis.
func TestInlineSpace(t *testing.T) {
	addr, server, _ := proxied(t, nil)
	stream := "set user:1 \"a\"\v\fb\nset user:1\vx y\r\nget user:1\vx\n\v\fping\nsubscribe a\vb c\fd e\r\nunsubscribe\nget user:1\fx\necho x\n" + wire("SET", "user:1", big("x")) + wire("GET", "user:1") + "quit\n"
	var replies [2]string
	for i, at := range []string{server.Addr(), addr} {
		c := dial(t, at)
		if _, err := io.WriteString(c, stream); err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(c)
		if err != nil {
			t.Error(err)
		}
		replies[i] = string(got)
	}
	if want := fmt.Sprintf("$1\r\nx\r\n+OK\r\n$%d\r\n%s\r\n+OK\r\n", len(big("x")), big("x")); replies[0] != replies[1] || !strings.HasSuffix(replies[0], want) {
		t.Errorf("directly %q, and through the proxy %q", replies[0], replies[1])
	}
}

// TestKeptTransaction: a transaction that goes on although it was to end is one whose commands take
// memory that nobody counts. The connection ends.
func TestKeptTransaction(t *testing.T) {
	addr, server, _ := proxied(t, nil)
	if reply, err := server.Do(t.Context(), "ACL", "SETUSER", "default", "-discard"); err != nil || reply != "OK" {
		t.Fatal(reply, err)
	}
	c := dial(t, addr)
	refusal := regexp.MustCompile("^-NOPERM [^\r]*\r\n$")
	talk(t, c, wire("MULTI")+wire("PING"), "+OK\r\n+QUEUED\r\n")
	if _, err := io.WriteString(c, wire("DISCARD")+wire("QUIT")); err != nil { // which ends it in any case
		t.Fatal(err)
	}
	if got, _ := io.ReadAll(c); !refusal.Match(got) {
		t.Errorf("%.200q", got)
	}
	c = dial(t, addr) // outside of a transaction it is an error like others
	if _, err := io.WriteString(c, wire("DISCARD")+wire("QUIT")); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(c); err != nil || !bytes.HasPrefix(got, []byte("-NOPERM ")) || !bytes.HasSuffix(got, []byte("\r\n+OK\r\n")) {
		t.Errorf("%.200q, %v", got, err)
	}
}

// TestRefusedMulti: a MULTI that the server refuses begins no transaction, and its commands are
// replied to at once. A second MULTI is an error that ends none.
func TestRefusedMulti(t *testing.T) {
	addr, server, _ := proxied(t, nil)
	const n = maxQueued/perExpected/2 + 1
	pairs := strings.Repeat(wire("GET", "user:1")+wire("PING"), n)
	subscribed := "*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n"
	do(t, server, "ACL", "SETUSER", "default", "-multi")
	c := dial(t, addr)
	refusal := func() string {
		t.Helper()
		io.WriteString(c, wire("MULTI")+wire("CLIENT", "REPLY", "ON")+wire("MULTI")+wire("ECHO", "1"))
		return untilEcho(t, c, "1")
	}
	if got := refusal(); strings.Count(got, "-NOPERM ") != 2 || !strings.Contains(got, "+OK\r\n") || strings.Contains(got, "-BALE") {
		t.Errorf("%q", got)
	}
	go io.WriteString(c, pairs)
	talk(t, c, "", strings.Repeat("$-1\r\n+PONG\r\n", n))
	refusal()
	talk(t, c, "subscribe a\r\n", subscribed)
	do(t, server, "ACL", "SETUSER", "default", "+multi")
	io.WriteString(c, wire("MULTI")+wire("SUBSCRIBE", "a")+wire("QUIT"))
	if got, err := io.ReadAll(c); !strings.HasPrefix(string(got), "-ERR ") || !strings.HasSuffix(string(got), subscribed+"+OK\r\n") {
		t.Errorf("MULTI of a subscriber: %q, %v", got, err)
	}
	c = dial(t, addr)
	barred := "-BALE SUBSCRIBE " + notInMulti + "\r\n"
	talk(t, c, wire("MULTI")+wire("SUBSCRIBE", "a"), "+OK\r\n"+barred)
	io.WriteString(c, wire("MULTI")+wire("SUBSCRIBE", "a")+wire("EXEC")+wire("SUBSCRIBE", "a")+wire("QUIT"))
	if got, err := io.ReadAll(c); !strings.HasPrefix(string(got), "-ERR ") || !strings.Contains(string(got), barred+"-EXECABORT ") || !strings.HasSuffix(string(got), subscribed+"+OK\r\n") {
		t.Errorf("MULTI in MULTI: %q, %v", got, err)
	}
}

// TestTransactionMemory: a client takes no memory by a transaction that it cannot have for want of
// a login, nor by commands that are refused in its own.
func TestTransactionMemory(t *testing.T) {
	server := redisproc.ForTest(t)
	var notes lines
	o := options(server.URL(), "user:*")
	o.Metrics, o.Err = ":0", &notes
	p := start(t, o)
	url := regexp.MustCompile(`http://\S+/`).FindString(notes.await(t, "metrics are at "))
	const n = 20_000
	many := func(c net.Conn, send, want string) {
		t.Helper()
		go io.WriteString(c, strings.Repeat(send, n))
		talk(t, c, "", strings.Repeat(want, n))
		if _, text := ask(t, url+"metrics", ""); !regexp.MustCompile(`(?m)^bale_proxy_held_bytes \d{1,3}$`).MatchString(text) { // one reply beyond what is free
			t.Errorf("%.30q: it holds memory: %s", send, regexp.MustCompile(`(?m)^bale_proxy_held.*`).FindString(text))
		}
	}
	c := dial(t, p.addr)
	talk(t, c, wire("MULTI"), "+OK\r\n")
	many(c, wire("SUBSCRIBE", "c"), "-BALE SUBSCRIBE "+notInMulti+"\r\n")
	talk(t, c, wire("EXEC"), "-EXECABORT Transaction discarded because of previous errors.\r\n")
	if reply, err := server.Do(t.Context(), "ACL", "SETUSER", "default", "resetpass", ">secret"); err != nil || reply != "OK" {
		t.Fatal(reply, err)
	}
	const no = "-NOAUTH Authentication required.\r\n"
	c = dial(t, p.addr)
	talk(t, c, wire("MULTI"), no)
	many(c, wire("GET", "user:1")+wire("GET", "other"), no+no)
	talk(t, c, wire("AUTH", "secret")+wire("MULTI")+strings.Repeat(wire("GET", "user:1")+wire("GET", "other"), 100)+wire("EXEC"),
		"+OK\r\n+OK\r\n"+strings.Repeat("+QUEUED\r\n", 200)+"*200\r\n"+strings.Repeat("$-1\r\n", 200))
}

// TestStall: a client that does not go on with a command that takes memory, or does not read such a
// reply, is at its end. One that is idle, or sends what the proxy does not hold, is not.
func TestStall(t *testing.T) {
	t.Parallel()
	addr, server, _ := proxied(t, func(o *Options) { o.Stall = time.Millisecond })
	value := strings.Repeat("x", 256<<10) // has 2 s
	idle, streams, stalls := dial(t, addr), dial(t, addr), dial(t, addr)
	set := wire("SET", "user:1", value)
	talk(t, idle, set, "+OK\r\n")
	talk(t, streams, wire("PING")+wire("SET", "other", value)[:100<<10], "+PONG\r\n")
	talk(t, stalls, wire("PING"), "+PONG\r\n")
	connected := func() string {
		info, err := server.Do(t.Context(), "INFO", "clients")
		if err != nil {
			t.Fatal(err)
		}
		return regexp.MustCompile("connected_clients:\\d+").FindString(info)
	}
	before := connected()
	deaf := dial(t, addr)
	if _, err := io.WriteString(deaf, strings.Repeat(wire("GET", "user:1"), 100)); err != nil {
		t.Fatal(err)
	}
	for connected() == before {
		time.Sleep(time.Millisecond)
	}
	for connected() != before {
		time.Sleep(10 * time.Millisecond)
	}
	talk(t, stalls, set[:20<<10], "-ERR Protocol error: the request does not go on (--stall)\r\n")
	atEnd(t, stalls)
	if n, err := io.Copy(io.Discard, deaf); n >= 100*256<<10 {
		t.Errorf("%d bytes for a client that does not read, %v", n, err)
	}
	talk(t, idle, wire("PING"), "+PONG\r\n")
	talk(t, streams, wire("SET", "other", value)[100<<10:], "+OK\r\n")
}

// TestStalledBehind: a client keeps the memory of a large command no longer than --stall where it
// waits for replies with further commands behind, or stops in a large value behind a large key.
func TestStalledBehind(t *testing.T) {
	var notes lines
	addr, _, _ := proxied(t, func(o *Options) {
		o.Stall, o.Drain, o.MaxRequest, o.Metrics, o.Err = time.Millisecond, time.Millisecond, 64<<10, ":0", &notes
	})
	url := regexp.MustCompile(`http://\S+/`).FindString(notes.await(t, "metrics are at ")) + "metrics"
	large := strings.Repeat("x", 40<<10)
	received := func(text string) (n int) {
		fmt.Sscanf(text[strings.LastIndex(text, `received_bytes_total{from="clients"}`):], `received_bytes_total{from="clients"} %d`, &n)
		return n
	}
	for name, send := range map[string]string{
		"waits": wire("BLPOP", "none", "0") + wire("SET", "user:1", large) + wire("AUTH", "x") + strings.Repeat(wire("PING"), 1500),
		"stops": wire("SET", "user:"+large, strings.Repeat("y", 100<<10))[:60<<10],
	} {
		t.Run(name, func(t *testing.T) {
			c := dial(t, addr)
			talk(t, c, wire("PING"), "+PONG\r\n")
			_, before := ask(t, url, "")
			if _, err := io.WriteString(c, send); err != nil {
				t.Fatal(err)
			}
			for tries := 0; ; tries++ { // it has half a second
				_, now := ask(t, url, "")
				if received(now)-received(before) > len(large) && strings.Contains(now, "\nbale_proxy_held_bytes 0\n") {
					break
				}
				if tries == 500 {
					t.Fatal(regexp.MustCompile("(?m)^bale_proxy_held_bytes .*$").FindString(now))
				}
				time.Sleep(10 * time.Millisecond)
			}
			if name == "waits" {
				notes.await(t, "ends a connection: commands behind a large one waited too long for replies, and held its memory (--stall)")
			}
			c.Close()
		})
	}
}

// TestStalledReply: a client that reads again after --stall gets what was sent before, and the end.
// Nothing is sent twice: that would be a wrong value.
func TestStalledReply(t *testing.T) {
	var dst stalling
	r := newRelay(strings.NewReader(""), &dst, 1<<20, &memory{max: 1 << 20}, new(atomic.Int64), new(atomic.Int64))
	r.put([]byte("$4\r\nabcd\r\n"))
	if err := r.flush(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	if err := r.leave(); !errors.Is(err, os.ErrDeadlineExceeded) || string(dst) != "$4\r\nab" {
		t.Errorf("%q was sent, %v", dst, err)
	}
}

// stalling takes the first 6 bytes, and what comes after a time-out.
type stalling []byte

func (s *stalling) Write(b []byte) (int, error) {
	if len(*s) == 0 {
		*s = append(*s, b[:6]...)
		return 6, os.ErrDeadlineExceeded
	}
	*s = append(*s, b...)
	return len(b), nil
}

// TestIdleMemory: memory that is given back is free. After a large command a client that sends no
// more holds its buffers alone, and so does one that stalls where a large reply is nearly sent.
func TestIdleMemory(t *testing.T) {
	addr, server, _ := proxied(t, func(o *Options) { o.MaxRequest, o.MaxMemory = 4<<20, 256<<20 })
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	set := wire("SET", "user:1", strings.Repeat("0123456789abcdef", 3<<20/16))
	plain := strings.Repeat("0123456789abcdef", 6<<20/16)
	do(t, server, "SET", "user:plain", plain)
	talk(t, dial(t, addr), set+wire("SET", "user:zeros", strings.Repeat("\x00", 512<<10)), "+OK\r\n+OK\r\n")
	mget := wire(append([]string{"MGET", "user:plain"}, slices.Repeat([]string{"user:zeros"}, 100)...)...)
	const clients = 20
	for name, use := range map[string]func(net.Conn){
		"command": func(c net.Conn) { talk(t, c, set, "+OK\r\n") },
		"reply":   func(c net.Conn) { talk(t, c, mget, "*101\r\n$6291456\r\n"+plain+"\r\n$524288\r\n\x00") },
	} {
		t.Run(name, func(t *testing.T) {
			before := heap()
			for range clients {
				use(dial(t, addr))
			}
			if n := heap() - before; n > 64<<20 {
				t.Errorf("%d bytes for %d idle clients", n, clients)
			}
		})
	}
}

// TestGrowth: an array that grows is there with the one that replaces it. Both are within the
// memory.
func TestGrowth(t *testing.T) {
	const most = 8 << 20
	setting, err := engine.Parse("lz4")
	if err != nil {
		t.Fatal(err)
	}
	lz4, err := setting.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	packer, err := bale.NewPacker(bale.PackerOptions{Compressors: &compress.Set{Write: lz4}})
	if err != nil {
		t.Fatal(err)
	}
	packed, err := packer.Pack(nil, make([]byte, 2*maxClaim))
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		grow func(*client, *outbox) bool
		size func(*client, *outbox) int
		free int
	}{
		"what is held": {
			func(c *client, _ *outbox) bool { c.down.at = c.down.end; return c.down.more() == nil && !c.down.lost },
			func(c *client, _ *outbox) int { return len(c.down.buf) }, bufferSize,
		},
		"small parts": {
			func(c *client, _ *outbox) bool { return c.down.put(make([]byte, 10<<10)) },
			func(c *client, _ *outbox) int { return cap(c.down.out) }, 0,
		},
		"large values": {
			func(c *client, _ *outbox) bool {
				batch := packer.Batch()
				c.growth = growth{} // each is a reply of its own
				_, err := c.unpack(&batch, packed)
				return err == nil
			},
			func(c *client, _ *outbox) int { return cap(c.down.out) }, 0,
		},
		"replies that wait": {
			func(_ *client, o *outbox) bool { o.Write(make([]byte, 8<<10)); return !o.dead },
			func(_ *client, o *outbox) int { return cap(o.b) }, 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := &proxy{options: options("", "*"), memory: memory{max: most}}
			conn, _ := net.Pipe()
			c := &client{proxy: p, upstream: &upstream{reader: packer}, conn: conn, ctx: t.Context(), cancel: func() {}, session: session{protocol: 2}}
			c.memory.all, c.memory.max = &p.memory, most
			box := &outbox{client: c}
			box.changed.L = &box.lock
			c.down = newRelay(rand.NewChaCha8([32]byte{}), io.Discard, math.MaxInt, &c.memory, new(atomic.Int64), new(atomic.Int64))
			c.down.hold()
			for before := test.size(c, box); test.grow(c, box); before = test.size(c, box) {
				if n := test.size(c, box); before+n > most+test.free && n > before {
					t.Errorf("%d and %d bytes at a time, more than %d", before, n, most)
				}
				if n, held := test.size(c, box)-test.free, int(c.memory.held.Load()); held != n && n > keptOut {
					t.Errorf("%d bytes are charged for %d", held, n)
				}
			}
			if before := test.size(c, box); before < most/4 && name != "replies that wait" {
				t.Errorf("it ends at %d bytes", before)
			}
		})
	}
}

// TestMemoryGoal: the goal is above what may be in use, whatever the flags say.
func TestMemoryGoal(t *testing.T) {
	for _, test := range []struct {
		memory  int64
		clients int
		want    int64
	}{
		{1 << 30, 10_000, 3<<29 + 64<<20 + 10_000*64<<10},
		{64 << 20, 1, 96<<20 + 64<<20 + 64<<10},
		{math.MaxInt64, math.MaxInt, math.MaxInt64},
	} {
		groups := make([]Group, 2)
		if test.want < math.MaxInt64 {
			test.want += int64(len(groups)*runtime.GOMAXPROCS(0)) * 40 << 20
		}
		o := Options{MaxMemory: test.memory, MaxClients: test.clients, Config: Config{Groups: groups}}
		if got := o.goal(); got != test.want {
			t.Errorf("%d bytes and %d clients: %d, want %d", test.memory, test.clients, got, test.want)
		}
	}
}

// TestSlowReaders: clients that read slowly, or not at all for a while, hold at most --max-memory
// and their buffers together. Each has its replies in the end, or an error in their place.
func TestSlowReaders(t *testing.T) {
	// A collection that runs beside the proxy counts as live what is allocated meanwhile: up to 40 MB
	// of buffers that were copied to grow, on a busy machine. So this test runs anew, and stops the
	// proxy for it.
	if stops := "gcstoptheworld=1"; !strings.Contains(os.Getenv("GODEBUG"), stops) {
		anew := process.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSlowReaders$", "-test.v")
		anew.Env = append(os.Environ(), "GODEBUG="+stops)
		if out, err := anew.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("--- PASS: TestSlowReaders")) {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	const clients, replies, size, values = 40, 40, 16 << 10, 16
	addr, _, _ := proxied(t, func(o *Options) { o.MaxRequest, o.MaxMemory = 1<<20, 8<<20 })
	value := strings.Repeat("0123456789abcdef", size/16)
	first := dial(t, addr)
	talk(t, first, wire("SET", "user:1", value), "+OK\r\n")
	mget, want := []string{"MGET"}, fmt.Sprintf("*%d\r\n", values)
	for range values {
		mget, want = append(mget, "user:1"), want+fmt.Sprintf("$%d\r\n%s\r\n", size, value)
	}
	talk(t, first, wire(mget...), want) // which warms the pools
	heap := func() int64 {
		runtime.GC()
		live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		metrics.Read(live)
		return int64(live[0].Value.Uint64())
	}
	before := heap()
	slow := make([]net.Conn, clients)
	for i := range slow {
		slow[i] = dial(t, addr)
		if _, err := io.WriteString(slow[i], strings.Repeat(wire(mget...), replies)); err != nil {
			t.Fatal(err)
		}
	}
	talk(t, first, wire("PING"), "+PONG\r\n")                      // it is not held up
	const bound = 8<<20 + clients*(2*bufferSize+2*keptOut) + 8<<20 // copies that grow, encoders and this test
	for range 20 {
		time.Sleep(10 * time.Millisecond)
		if n := heap() - before; n > bound {
			t.Errorf("%d bytes for %d clients that do not read", n, clients)
		}
	}
	refusal := "-BALE the reply " + replyTooLarge + "\r\n"
	var reading sync.WaitGroup
	for _, c := range slow {
		reading.Go(func() {
			r := bufio.NewReader(c)
			for i := range replies {
				start, err := r.Peek(1)
				if err != nil {
					t.Errorf("reply %d: %v", i, err)
					return
				}
				expect := want
				if start[0] == '-' {
					expect = refusal
				}
				got := make([]byte, len(expect))
				if _, err := io.ReadFull(r, got); err != nil || string(got) != expect {
					t.Errorf("reply %d: %.100q, %v", i, got, err)
					return
				}
			}
		})
	}
	reading.Wait()
}

// TestExpectedMemory: the replies that are waited for count, too. A client waits for its own; a
// transaction is refused.
func TestExpectedMemory(t *testing.T) {
	addr, _, _ := proxied(t, func(o *Options) { o.MaxRequest, o.MaxMemory = 64<<10, 1<<20 })
	const n = 5000 // times two kinds of reply, which take 96 bytes
	gets := strings.Repeat(wire("GET", "user:1")+wire("GET", "other"), n)
	none := strings.Repeat("$-1\r\n", 2*n)
	c := dial(t, addr)
	for range 3 {
		talk(t, c, gets, none)
		go io.WriteString(c, wire("MULTI")+gets+wire("EXEC"))
		got := bufio.NewReader(c)
		refused, queued := 0, 0
		for {
			line, err := got.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(line, "-EXECABORT") {
				break
			}
			switch line {
			case "-BALE GET " + longMulti + "\r\n":
				refused++
			case "+QUEUED\r\n":
				queued++
			case "+OK\r\n":
			default:
				t.Fatalf("%q", line)
			}
		}
		if refused+queued != 2*n || queued < 1000 {
			t.Errorf("%d are queued, and %d refused, of %d", queued, refused, 2*n)
		}
		talk(t, c, wire("MULTI")+strings.Repeat(wire("GET", "user:1"), n)+wire("DISCARD"), "+OK\r\n"+strings.Repeat("+QUEUED\r\n", n)+"+OK\r\n") // of one kind
	}
	long := strings.Repeat("x ", 30_000) // words of a line
	talk(t, c, "GET "+long+"\r\n", "-BALE INLINE COMMAND "+tooLarge+"\r\n")
	talk(t, c, wire("GET", "user:1"), "$-1\r\n")
}

// TestBackPressure: a client that reads nothing holds up itself alone, and not in the proxy's
// memory.
func TestBackPressure(t *testing.T) {
	addr, _, _ := proxied(t, nil)
	c := dial(t, addr)
	talk(t, c, wire("SET", "k", strings.Repeat("x", 1<<20)), "+OK\r\n")
	const n = 300
	go io.WriteString(c, strings.Repeat(wire("GET", "k")+wire("GET", "user:1"), n))
	talk(t, dial(t, addr), wire("PING"), "+PONG\r\n")
	time.Sleep(50 * time.Millisecond) // what is not read fills all buffers
	want := int64(n * (len("$1048576\r\n\r\n") + 1<<20 + len("$-1\r\n")))
	if got, err := io.CopyN(io.Discard, c, want); err != nil || got != want {
		t.Errorf("%d bytes of %d, %v", got, want, err)
	}
}

// TestManyExpected: replies that a client does not read hold up its own commands in the end, and
// all are there when it reads.
func TestManyExpected(t *testing.T) {
	addr, _, _ := proxied(t, nil)
	c := dial(t, addr)
	const n = 200
	keys := make([]string, 5000)
	for i := range keys {
		keys[i] = "k"
	}
	keys[7] = "user:1"
	mget := wire(append([]string{"MGET"}, keys...)...)
	const refused = 20_000
	go io.WriteString(c, strings.Repeat(mget, n)+strings.Repeat(wire("APPEND", "user:1", "x"), refused)+wire("QUIT"))
	got, err := io.ReadAll(c)
	if err != nil || bytes.Count(got, []byte("*5000\r\n")) != n || bytes.Count(got, []byte("$-1\r\n")) != n*len(keys) || bytes.Count(got, []byte("-BALE APPEND")) != refused || !bytes.HasSuffix(got, []byte("\r\n+OK\r\n")) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// TestWritesWithDeadline: a large reply has time by its size, and a wait for room does not cut that
// short.
func TestWritesWithDeadline(t *testing.T) {
	var dst, seen writer
	r := newRelay(strings.NewReader(""), &dst, 1<<20, &memory{max: 1 << 20}, new(atomic.Int64), new(atomic.Int64))
	r.hurry = func(int) {}
	dst = func(b []byte) (int, error) { return seen(b) }
	for charged, odd := range map[int]uint32{0: 1, 1: 0} {
		seen = func(b []byte) (int, error) {
			if r.writes.Load()%2 != odd {
				t.Errorf("charged %d: %d writes begun and ended", charged, r.writes.Load())
			}
			return len(b), nil
		}
		r.memory.add(charged)
		r.taken = charged
		r.buf[0], r.from, r.at, r.end = '+', 0, 1, 1
		if err := r.flush(); err != nil {
			t.Fatal(err)
		}
	}
}

type writer func(b []byte) (int, error)

func (w *writer) Write(b []byte) (int, error) { return (*w)(b) }

// TestWritesAll: a client that reads only after it has written all its requests has its replies, or
// the end of its connection, with and without a slow log. Not by TCP: with the client's buffer full
// Linux also drops what says that the proxy has read, and no more requests may come.
func TestWritesAll(t *testing.T) {
	t.Parallel()
	for name, slow := range map[string]time.Duration{"": 0, "slow log": time.Hour} {
		t.Run(name, func(t *testing.T) {
			var notes lines
			addr, _, _ := proxied(t, func(o *Options) {
				o.Listen = "unix:" + filepath.Join(t.TempDir(), "s")
				o.Stall, o.SlowLog, o.Err = 100*time.Millisecond, slow, &notes
			})
			const n = 20_000
			c := dial(t, addr)
			value := strings.Repeat("v", 1000)
			talk(t, c, wire("SET", "other", value)+strings.Repeat(wire("GET", "other"), n), "+OK\r\n"+strings.Repeat("$1000\r\n"+value+"\r\n", n))
			talk(t, c, wire("SET", "user:1", big("v")), "+OK\r\n")
			pair := wire("SET", "user:1", big("v")) + wire("GET", "user:1")
			for i := 0; ; i++ {
				if _, err := io.WriteString(c, pair); err != nil {
					break
				}
				if i == 1e6 {
					t.Fatal("all is taken")
				}
			}
			notes.await(t, "ends a connection: its client does not read the replies in time (--stall)")
		})
	}
}
