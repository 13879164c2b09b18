package origin

import (
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/balekv/bale/cmd/internal/load"
)

// origin answers requests.
type origin struct {
	connections, requests atomic.Int64

	root string // of the paths that are answered

	mu      sync.Mutex
	b       Behaviour
	busy    int
	waiting []chan struct{} // for a worker, in the order of their coming; each is closed when it is its turn
	changed chan struct{}   // closed with the next Behaviour
}

func (o *origin) stats() Stats {
	return Stats{o.connections.Load(), o.requests.Load(), load.ProcessorTime()}
}

func (o *origin) set(b Behaviour) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.b = b
	close(o.changed)
	o.changed = make(chan struct{})
	o.admit()
}

// maxWaiting bounds the requests that wait for a worker; more are answered 503.
const maxWaiting = 20_000

// admit lets requests go on while there are workers. o.mu is held.
func (o *origin) admit() {
	for len(o.waiting) > 0 && (o.b.Workers == 0 || o.busy < o.b.Workers) {
		close(o.waiting[0])
		o.waiting = o.waiting[1:]
		o.busy++
	}
}

// answer returns when it is time to answer, and the status. Like most servers it goes on when the
// caller has left.
func (o *origin) answer() int {
	o.requests.Add(1)
	o.mu.Lock()
	for o.b.Dead {
		changed := o.changed
		o.mu.Unlock()
		<-changed
		o.mu.Lock()
	}
	b := o.b
	switch {
	case rand.Float64() < b.Failing, len(o.waiting) >= maxWaiting:
		o.mu.Unlock()
		return http.StatusServiceUnavailable
	case rand.Float64() < b.Slow:
		o.mu.Unlock()
		time.Sleep(max(b.Delay, b.SlowTime))
		return http.StatusOK
	}
	turn := make(chan struct{})
	o.waiting = append(o.waiting, turn)
	o.admit()
	o.mu.Unlock()
	<-turn
	o.mu.Lock()
	delay := o.b.Delay // as it is by now
	o.mu.Unlock()
	time.Sleep(delay)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.busy--
	o.admit()
	return http.StatusOK
}

// parse reads what [Server.Path] wrote.
func (o *origin) parse(path string) (size int, unit string, ok bool) {
	path, ok = strings.CutPrefix(path, o.root+"/")
	text, unit, _ := strings.Cut(path, "/")
	size, err := strconv.Atoi(text)
	return size, unit, ok && err == nil && size >= MinSize && size <= MaxSize && len(unit) == idDigits
}

// body is an answer.
func body(dst []byte, size int, unit string) []byte {
	for len(dst)+idDigits <= size {
		dst = append(dst, unit...)
	}
	return append(dst, unit[:size-len(dst)]...)
}

// serve answers the requests of a listener until it fails.
func (o *origin) serve(library string, l net.Listener) error {
	if library == FastHTTP {
		s := &fasthttp.Server{NoDefaultServerHeader: true, Handler: func(c *fasthttp.RequestCtx) {
			size, unit, ok := o.parse(string(c.Path()))
			status := http.StatusNotFound
			if ok {
				status = o.answer()
			}
			if c.SetStatusCode(status); status == http.StatusOK {
				c.Response.SetBodyRaw(body(make([]byte, 0, size), size, unit))
			}
		}}
		return s.Serve(l)
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	s := &http.Server{Protocols: protocols, HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 10_000}, ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		size, unit, ok := o.parse(r.URL.Path)
		status := http.StatusNotFound
		if ok {
			status = o.answer()
		}
		if w.WriteHeader(status); status == http.StatusOK {
			w.Write(body(make([]byte, 0, size), size, unit))
		}
	})}
	return s.Serve(l)
}

// counting counts the connections of a listener.
type counting struct {
	net.Listener
	o *origin
}

func (l *counting) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.o.connections.Add(1)
	}
	return c, err
}
