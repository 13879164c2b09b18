package httpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/balekv/bale"
	"github.com/balekv/bale/codec"
)

type item struct {
	ID   int    `json:"id"`
	Text string `json:"text"`
}

func TestJSON(t *testing.T) {
	s := newServer(t, false, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept") != "application/json" || r.Method == "POST" && (r.Header.Get("Content-Type") != "application/json" || r.ContentLength <= 0) {
			t.Errorf("%s with %v, %d bytes", r.Method, r.Header, r.ContentLength)
		}
		switch {
		case r.Method == "POST":
			echo(w, r)
		case r.URL.Path == "/items/a/b c":
			json.NewEncoder(w).Encode(item{1, r.URL.RawQuery})
		case r.URL.Path == "/gone":
			w.WriteHeader(http.StatusNoContent)
		case r.URL.Path == "/html":
			w.Header().Set("Content-Type", "text/html")
			io.WriteString(w, "<p>SECRET</p>")
		default:
			w.Header().Set("X-Reason", "none")
			w.WriteHeader(http.StatusNotFound)
			io.WriteString(w, "SECRET"+strings.Repeat("x", 10<<10))
		}
	})
	c := newClient(t, Options{Guard: none})
	ctx := t.Context()
	for i := range 20 {
		want := item{i, strings.Repeat("é<", i*500)}
		if got, err := JSON[item](ctx, c, "POST", s.URL+"/items", want); err != nil || got != want {
			t.Fatalf("item %d came back as %d, of %d bytes: %v", i, got.ID, len(got.Text), err)
		}
	}
	if got, err := JSON[item](ctx, c, "GET", s.URL+"/items/{id}?q={q}&r=1", nil, "a/b c", "&= /"); err != nil || got.Text != "q=%26%3D+%2F&r=1" {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := JSON[struct{}](ctx, c, "GET", s.URL+"/gone", nil); err != nil {
		t.Error(err)
	}
	if _, err := JSON[item](ctx, c, "GET", s.URL+"/gone", nil); err == nil {
		t.Error("no answer is an item")
	}
	if _, err := JSON[item](ctx, c, "GET", s.URL+"/html", nil); err == nil || !strings.Contains(err.Error(), "text/html") || strings.Contains(err.Error(), "SECRET") {
		t.Errorf("HTML: %v", err)
	}
	_, err := JSON[item](ctx, c, "GET", s.URL+"/none/{id}?token={token}", nil, "SECRET", "SECRET")
	status, ok := errors.AsType[*StatusError](err)
	if !ok || status.Status != 404 || len(status.Body) != 4<<10 || status.Header.Get("X-Reason") != "none" || strings.Contains(err.Error(), "SECRET") {
		t.Errorf("404: %v", err)
	}
	if want := fmt.Sprintf("httpc: GET %s/none/{id}: status 404 Not Found", s.Listener.Addr()); err.Error() != want {
		t.Errorf("%q is not %q", err, want)
	}
	over, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := JSON[item](over, c, "GET", s.URL+"/x?token=SECRET", nil); !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "SECRET") {
		t.Errorf("ended: %v", err)
	}
	if _, err := JSON[item](ctx, c, "POST", s.URL, func() {}); err == nil {
		t.Error("a function is JSON")
	}
	if _, err := JSON[item](ctx, http.DefaultClient, "POST", s.URL, item{1, "a"}); err != nil {
		t.Errorf("another client: %v", err)
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestArguments(t *testing.T) {
	for _, c := range []struct {
		template string
		args     []any
	}{
		{"http://h/{a}", nil}, {"http://h/", []any{1}}, {"http://h/{a}", []any{""}}, {"http://h/{a}/b", []any{"."}}, {"http://h/{a}", []any{".."}},
		{"http://h/{a}{b}", []any{".", "."}}, {"http://h/{a", []any{1}}, {"http://{a}/", []any{1}}, {"h/{a}", []any{1}}, {"http://h:x/", nil},
		{"http://h/{a}", []any{"a/../b"}}, {"http://h/{a}", []any{"../b"}}, {"http://h/{a}", []any{`..\b`}}, {"http://h/%2e{a}", []any{"."}},
		{"http://user:SECRET@h/{a}?t=SECRET", nil}, {"http://user:SECRET@h:x/?t=SECRET", nil}, {"http://h/?a={a&t=SECRET", nil},
	} {
		if _, err := NewRequest(t.Context(), "GET", c.template, nil, c.args...); !errors.Is(err, bale.ErrInvalid) || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%q %q: %v", c.template, c.args, err)
		}
	}
}

// FuzzArguments: no argument changes the host, the number of segments, or the names of the query.
func FuzzArguments(f *testing.F) {
	f.Add("a", "b")
	f.Add("../..", "&x=1#y")
	f.Add("a.b/..c", "é")
	f.Add("?x=1", "\x00\r\n%2e")
	f.Fuzz(func(t *testing.T, a, b string) {
		req, err := NewRequest(t.Context(), "GET", "http://h:1/v1/{a}/x?q={b}&r=1", nil, a, b)
		if err != nil {
			if dots := regexp.MustCompile(`(^|[/\\])\.\.?([/\\]|$)`); a == "" || dots.MatchString(a) {
				return
			}
			t.Fatal(err)
		}
		u := req.URL
		if u.Host != "h:1" || u.Path != "/v1/"+a+"/x" || strings.Count(u.EscapedPath(), "/") != 3 || u.Fragment != "" || u.User != nil {
			t.Errorf("%q, %q: %q", a, b, u)
		}
		if q, err := url.ParseQuery(u.RawQuery); err != nil || len(q) != 2 || q.Get("q") != b || q.Get("r") != "1" {
			t.Errorf("%q, %q: %q, %v", a, b, u.RawQuery, err)
		}
	})
}

// TestBuffersAreNotMixed: a service may answer before net/http has sent the whole body. Then the
// body is read while the next call needs a buffer.
func TestBuffersAreNotMixed(t *testing.T) {
	var body io.ReadCloser
	c := &http.Client{Transport: roundTripper(func(req *http.Request) (*http.Response, error) {
		body = req.Body
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("true"))}, nil
	})}
	for range 20 { // the pool may give another buffer
		if _, err := JSON[bool](t.Context(), c, "POST", "http://h/", "first"); err != nil {
			t.Fatal(err)
		}
		for range 2 { // one may get the buffer of the answer
			if _, err := NewRequest(t.Context(), "POST", "http://h/", "other"); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := io.ReadAll(body); string(got) != "\"first\"\n" || err != nil {
			t.Fatalf("the body has become %q, %v", got, err)
		}
		body.Close()
		body.Close()
		if n, err := body.Read(make([]byte, 9)); n > 0 || err != http.ErrBodyReadAfterClose {
			t.Fatalf("%d bytes were read of a body that is closed, %v", n, err)
		}
	}
}

func TestRequestsAreSentOnce(t *testing.T) {
	s := newServer(t, false, echo)
	c := newClient(t, Options{Guard: none})
	req, err := NewRequest(t.Context(), "POST", s.URL, 5)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := Send[int](c, req); n != 5 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if n, err := Send[int](c, req); err == nil {
		t.Errorf("sent again, the answer was %d", n)
	}
	if _, err := req.GetBody(); err == nil {
		t.Error("its body is still to be had")
	}
}

// TestErrorsHideValues: neither an answer nor a request that is no JSON of its type shows in an
// error.
func TestErrorsHideValues(t *testing.T) {
	s := newServer(t, false, echo)
	c := newClient(t, Options{Guard: none})
	ctx, u := t.Context(), strings.Replace(s.URL, "http://", "http://user:SECRET@", 1)+"/v1?token=SECRET"
	_, number := JSON[int8](ctx, c, "POST", u, 411111111)
	_, at := JSON[time.Time](ctx, c, "POST", u, "SECRET")
	_, text := JSON[json.RawMessage](ctx, c, "POST", u, secret{})
	for _, err := range []error{number, at, text} {
		if _, ok := errors.AsType[*codec.Error](err); !ok || strings.Contains(err.Error(), "411111111") || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%v", err)
		}
	}
}

type secret struct{}

func (secret) MarshalJSON() ([]byte, error) { return nil, errors.New("SECRET") }

// TestAnswers: types whose JSON is not a struct's.
func TestAnswers(t *testing.T) {
	s := newServer(t, false, echo)
	c := newClient(t, Options{Guard: none})
	ctx := t.Context()
	raw, err := JSON[json.RawMessage](ctx, c, "POST", s.URL, item{1, "a"})
	for range 20 { // the buffer is used again
		if _, err := JSON[json.RawMessage](ctx, c, "POST", s.URL, item{2, "b"}); err != nil {
			t.Error(err)
		}
	}
	if string(raw) != `{"id":1,"text":"a"}` || err != nil {
		t.Errorf("raw: %s, %v", raw, err)
	}
	if got, err := JSON[[]byte](ctx, c, "POST", s.URL, []byte("a")); string(got) != "a" || err != nil {
		t.Errorf("bytes: %q, %v", got, err)
	}
	if got, err := JSON[any](ctx, c, "POST", s.URL, item{1, "a"}); fmt.Sprint(got) != "map[id:1 text:a]" || err != nil {
		t.Errorf("any: %v, %v", got, err)
	}
	if got, err := JSON[*item](ctx, c, "POST", s.URL, (*item)(nil)); got != nil || err != nil {
		t.Errorf("null: %v, %v", got, err)
	}
	if _, err := JSON[struct{}](ctx, c, "HEAD", s.URL, nil); err != nil {
		t.Errorf("HEAD: %v", err)
	}
}
