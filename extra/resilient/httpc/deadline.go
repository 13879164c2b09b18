package httpc

import (
	"context"
	"math"
	"net/http"
	"strconv"
	"time"
)

// setDeadline says in a header how many milliseconds are left for a request.
func setDeadline(req *http.Request, header string) {
	if at, ok := req.Context().Deadline(); ok && req.Header != nil { // which net/http refuses
		req.Header.Set(header, strconv.FormatInt(max(1, time.Until(at).Milliseconds()), 10))
	}
}

// Deadline returns a handler for a service whose clients have Options.DeadlineHeader: the context
// of a request ends when its caller has stopped waiting. Calls that the service makes with this
// context end then, too. A request without the header, or with one that is no positive number, is
// left as it is.
func Deadline(header string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ms, err := strconv.ParseInt(r.Header.Get(header), 10, 64)
		if err != nil || ms <= 0 || ms > math.MaxInt64/int64(time.Millisecond) {
			next.ServeHTTP(w, r)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), time.Duration(ms)*time.Millisecond)
		defer cancel()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// headerName reports whether s is a token (RFC 9110, section 5.6.2).
func headerName(s string) bool {
	for _, c := range []byte(s) {
		if c <= ' ' || c >= 0x7F || c == '"' || c == '(' || c == ')' || c == ',' || c == '/' || c >= ':' && c <= '@' || c >= '[' && c <= ']' || c == '{' || c == '}' {
			return false
		}
	}
	return s != ""
}
