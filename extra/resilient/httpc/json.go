package httpc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"sync"

	"github.com/balekv/bale"
	"github.com/balekv/bale/codec"
)

// JSON sends in as JSON, unless it is nil, and returns the decoded answer. It is [NewRequest] and
// [Send]. An Out of struct{} means that the answer does not matter, only its status:
//
//	_, err := httpc.JSON[struct{}](ctx, client, "DELETE", "https://users.internal/v1/users/{id}", nil, id)
func JSON[Out any](ctx context.Context, client *http.Client, method, template string, in any, args ...any) (Out, error) {
	req, err := NewRequest(ctx, method, template, in, args...)
	if err != nil {
		var none Out
		return none, err
	}
	return Send[Out](client, req)
}

// NewRequest returns a request with in as its JSON body, or no body if in is nil. Each {name} in
// the template's path or query stands for one of args, in their order, printed as fmt.Sprint does
// and escaped. An argument in the path must not be empty, nor make a segment "." or "..", which
// would be another path. The template's path is the [Route].
//
// The body is in a buffer that [Send] reuses. So send the request once, with Send.
func NewRequest(ctx context.Context, method, template string, in any, args ...any) (*http.Request, error) {
	address, err := expand(template, args)
	if err != nil {
		return nil, err
	}
	_, route, _ := split(template)
	req, err := http.NewRequestWithContext(ctx, method, address, nil)
	if err != nil { // which has the address
		return nil, fmt.Errorf("httpc: %w: method %q, template with the path %q", bale.ErrInvalid, method, shown(route))
	}
	req = req.WithContext(WithRoute(ctx, route))
	req.Header.Set("Accept", "application/json")
	if in == nil {
		return req, nil
	}
	c := &content{buf: buffers.Get().(*bytes.Buffer), refs: 1}
	if err := json.NewEncoder(c.buf).Encode(in); err != nil {
		return nil, fmt.Errorf("httpc: %s %s: %w", method, route, &codec.Error{Op: "encode", Codec: "JSON", Type: fmt.Sprintf("%T", in), Err: err})
	}
	req.Header.Set("Content-Type", "application/json")
	req.ContentLength, req.GetBody = int64(c.buf.Len()), c.reader
	req.Body, err = c.reader()
	return req, err
}

// Send sends a request and returns its decoded answer. A status other than 2xx is a [StatusError],
// an answer that is no Out a codec.Error. No answer (204, HEAD) is an Out of struct{} only. The
// answer is bounded by Options.MaxResponse, by 64 MiB with a client of another package. Errors have
// no query, and no path but the [Route].
func Send[Out any](client *http.Client, req *http.Request) (out Out, err error) {
	if r, ok := req.Body.(*reader); ok {
		defer r.content.sent()
	}
	defer func() {
		if err == nil {
			return
		}
		err = fmt.Errorf("httpc: %s %s%s: %w", req.Method, req.URL.Host, Route(req.Context()), err)
	}()
	resp, err := client.Do(req)
	if err != nil {
		if e, ok := errors.AsType[*url.Error](err); ok { // it has the whole URL
			err = e.Err
		}
		return out, failure{err}
	}
	defer resp.Body.Close()
	if _, ours := client.Transport.(*Transport); !ours {
		if err := limitResponse(req, resp, defaultBody); err != nil {
			return out, err
		}
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		e := &StatusError{Status: resp.StatusCode, Header: resp.Header}
		e.Body, _ = io.ReadAll(io.LimitReader(resp.Body, 4<<10)) // what there is of it
		return out, e
	}
	if _, none := any(out).(struct{}); none {
		if _, err := io.Copy(io.Discard, resp.Body); err != nil { // so that the connection can be used again
			return out, failure{err}
		}
		return out, nil
	}
	buf := buffers.Get().(*bytes.Buffer)
	defer free(buf)
	if _, err := buf.ReadFrom(resp.Body); err != nil {
		return out, failure{err}
	}
	if err := json.Unmarshal(buf.Bytes(), &out); err != nil {
		var none Out
		err = &codec.Error{Op: "decode", Codec: "JSON", Type: reflect.TypeFor[Out]().String(), Err: err}
		return none, fmt.Errorf("the answer, %d bytes of type %.100q: %w", buf.Len(), resp.Header.Get("Content-Type"), err)
	}
	return out, nil
}

// expand puts the arguments in the place of the {names} of a template.
func expand(template string, args []any) (string, error) {
	host, path, query := split(template)
	invalid := func(why string, args ...any) (string, error) { // host and query may have secrets
		return "", fmt.Errorf("httpc: %w: template with the path %q: %s", bale.ErrInvalid, shown(path), fmt.Sprintf(why, args...))
	}
	var address strings.Builder
	address.WriteString(host)
	for _, part := range []struct {
		text   string
		escape func(string) string
	}{{path, url.PathEscape}, {query, url.QueryEscape}} {
		for text := part.text; text != ""; {
			before, after, found := strings.Cut(text, "{")
			address.WriteString(before)
			if !found {
				break
			}
			name, rest, found := strings.Cut(after, "}")
			switch {
			case !found:
				return invalid("a { is not closed")
			case len(args) == 0:
				return invalid("there is no argument for {%s}", name)
			}
			arg := fmt.Sprint(args[0])
			if arg == "" && part.text == path {
				return invalid("the argument for {%s} is empty", name)
			}
			address.WriteString(part.escape(arg))
			text, args = rest, args[1:]
		}
		if part.text == path {
			decoded, err := url.PathUnescape(address.String()[len(host):])
			if err != nil {
				return invalid("%v", err)
			}
			// Servers and proxies may decode %2F, and take \ for /, before they resolve the path.
			for segment := range strings.FieldsFuncSeq(decoded, func(r rune) bool { return r == '/' || r == '\\' }) {
				if segment == "." || segment == ".." {
					return invalid("its path would have the segment %q", segment)
				}
			}
		}
	}
	if len(args) > 0 {
		return invalid("%d arguments are left over", len(args))
	}
	return address.String(), nil
}

// shown is a path without what may be a part of a password with a slash.
func shown(path string) string { return path[strings.LastIndexByte(path, '@')+1:] }

// split splits a URL. The query begins with its question mark.
func split(address string) (host, path, query string) {
	at := strings.Index(address, "://")
	if at < 0 {
		return address, "", ""
	}
	at += len("://")
	end := strings.IndexAny(address[at:], "/?")
	if end < 0 {
		return address, "", ""
	}
	host, path = address[:at+end], address[at+end:]
	if q := strings.IndexByte(path, '?'); q >= 0 {
		path, query = path[:q], path[q:]
	}
	return host, path, query
}

// StatusError is an answer with another status than 2xx.
type StatusError struct {
	Status int
	Header http.Header
	Body   []byte // its first 4 KiB
}

// Error has the status alone: the body may hold anything.
func (e *StatusError) Error() string {
	return strings.TrimSpace("status " + strconv.Itoa(e.Status) + " " + http.StatusText(e.Status))
}

// buffers are reused. Larger ones than this are left to the garbage collector.
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

const maxBuffer = 1 << 20

func free(b *bytes.Buffer) {
	if b.Cap() <= maxBuffer {
		b.Reset()
		buffers.Put(b)
	}
}

// content is the body of a request. net/http may read it after the call has returned, so that its
// buffer is free only when Send and all readers have released it.
type content struct {
	mu   sync.Mutex
	buf  *bytes.Buffer
	refs int
	done bool // with Send
}

// reader is for Request.GetBody.
func (c *content) reader() (io.ReadCloser, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done {
		return nil, errors.New("httpc: the request was sent already")
	}
	c.refs++
	return &reader{content: c, rest: c.buf.Bytes()}, nil
}

// sent is for the reference of the request itself.
func (c *content) sent() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.done {
		c.done = true
		c.release()
	}
}

// release is called with c.mu.
func (c *content) release() {
	if c.refs--; c.refs == 0 {
		free(c.buf)
	}
}

type reader struct {
	content *content
	rest    []byte
	closed  bool
}

func (r *reader) Read(p []byte) (int, error) {
	r.content.mu.Lock()
	defer r.content.mu.Unlock()
	if r.closed {
		return 0, http.ErrBodyReadAfterClose
	}
	if len(r.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

func (r *reader) Close() error {
	r.content.mu.Lock()
	defer r.content.mu.Unlock()
	if !r.closed {
		r.closed = true
		r.content.release()
	}
	return nil
}

type routeKey struct{}

// WithRoute names the route of the requests with this context, such as "/v1/users/{id}", for
// metrics and logs. [NewRequest] does it with its template.
func WithRoute(ctx context.Context, route string) context.Context {
	return context.WithValue(ctx, routeKey{}, route)
}

// Route returns the route of a request's context, "" if it has none.
func Route(ctx context.Context) string {
	route, _ := ctx.Value(routeKey{}).(string)
	return route
}
