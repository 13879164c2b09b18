package main

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// proxy is a link to a server that can be slow, or break.
type proxy struct {
	listener net.Listener
	target   string
	delay    atomic.Int64 // of each piece of data, in ns

	mu    sync.Mutex
	conns map[net.Conn]bool
}

func newProxy(target string) (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{listener: l, target: target, conns: map[net.Conn]bool{}}
	go p.accept()
	return p, nil
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

func (p *proxy) accept() {
	for {
		near, err := p.listener.Accept()
		if err != nil {
			return
		}
		go func() {
			far, err := net.DialTimeout("tcp", p.target, time.Second)
			if err != nil {
				near.Close()
				return
			}
			p.mu.Lock()
			p.conns[near], p.conns[far] = true, true
			p.mu.Unlock()
			go p.copy(near, far)
			p.copy(far, near)
		}()
	}
}

func (p *proxy) copy(to, from net.Conn) {
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		if n > 0 {
			if d := p.delay.Load(); d > 0 {
				time.Sleep(time.Duration(d))
			}
			if _, werr := to.Write(b[:n]); werr != nil {
				break
			}
		}
		if err != nil {
			break
		}
	}
	to.Close()
	from.Close()
	p.mu.Lock()
	delete(p.conns, to)
	delete(p.conns, from)
	p.mu.Unlock()
}

// cut ends all connections. Data on their way are lost.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
	}
}

func (p *proxy) close() {
	p.listener.Close()
	p.cut()
}
