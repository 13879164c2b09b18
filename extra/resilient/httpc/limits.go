package httpc

import (
	"errors"
	"fmt"
	"io"
	"net/http"
)

// ErrTooLarge is the class of all [TooLargeError] values.
var ErrTooLarge = errors.New("body too large")

// maxRedirect bounds the URL of a redirect in bytes. A server chooses it, up to 1 MiB; traces and
// metrics keep it.
const maxRedirect = 16 << 10

var errRedirect = fmt.Errorf("httpc: the server redirects to a URL of more than %d bytes", maxRedirect)

// limitRequest returns the request with a body of at most that many bytes.
func limitRequest(req *http.Request, most int64) (*http.Request, error) {
	if req.Response != nil && len(req.URL.String()) > maxRedirect {
		if req.Body != nil {
			req.Body.Close()
		}
		return nil, errRedirect
	}
	if most < 0 || req.Body == nil || req.Body == http.NoBody {
		return req, nil
	}
	if req.ContentLength > most {
		req.Body.Close() // as a RoundTripper must
		return nil, &TooLargeError{Limit: most, Request: true}
	}
	if req.ContentLength > 0 { // net/http sends no more than that
		return req, nil
	}
	limited := req.WithContext(req.Context()) // a copy
	limited.Body = &limitedBody{ReadCloser: req.Body, left: most, err: TooLargeError{Limit: most, Request: true}}
	if get := req.GetBody; get != nil {
		limited.GetBody = func() (io.ReadCloser, error) {
			body, err := get()
			if err != nil {
				return nil, err
			}
			return &limitedBody{ReadCloser: body, left: most, err: TooLargeError{Limit: most, Request: true}}, nil
		}
	}
	return limited, nil
}

// limitResponse bounds the body of a response.
func limitResponse(req *http.Request, resp *http.Response, most int64) error {
	if most < 0 || req.Method == http.MethodHead {
		return nil
	}
	if _, stream := resp.Body.(io.Writer); stream && req.Header.Get("Upgrade") != "" { // which was asked for
		return nil
	}
	if resp.ContentLength > most {
		resp.Body.Close()
		return &TooLargeError{Limit: most}
	}
	resp.Body = &limitedBody{ReadCloser: resp.Body, left: most, err: TooLargeError{Limit: most}}
	return nil
}

// limitedBody fails when there is more to read than allowed, instead of ending there.
type limitedBody struct {
	io.ReadCloser
	left int64
	err  TooLargeError
}

func (b *limitedBody) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, &b.err
	}
	if int64(len(p)) > b.left {
		p = p[:b.left+1] // one more says whether the body ends here
	}
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return n - 1, &b.err
	}
	return n, err
}

// TooLargeError says that a body has more bytes than allowed. It is an [ErrTooLarge].
type TooLargeError struct {
	Limit   int64 // bytes
	Request bool  // the body of the request, which was not sent in whole; otherwise the response's
}

func (e *TooLargeError) Error() string {
	of, option := "response", "MaxResponse"
	if e.Request {
		of, option = "request", "MaxRequest"
	}
	return fmt.Sprintf("httpc: %v: the body of the %s has more than %d bytes (Options.%s)", ErrTooLarge, of, e.Limit, option)
}

// Unwrap returns ErrTooLarge.
func (e *TooLargeError) Unwrap() error { return ErrTooLarge }
