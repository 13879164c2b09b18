package httpc_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/balekv/bale/extra/resilient"
	"github.com/balekv/bale/extra/resilient/httpc"
)

type User struct{ Name string }

// users is the service of the examples.
func users() *httptest.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/users/{id}", func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("id") != "7" {
			http.Error(w, `{"reason":"no such user"}`, http.StatusNotFound)
			return
		}
		json.NewEncoder(w).Encode(User{"Ada"})
	})
	mux.HandleFunc("POST /v1/users", func(w http.ResponseWriter, r *http.Request) {
		var u User
		json.NewDecoder(r.Body).Decode(&u)
		u.Name += ", key " + r.Header.Get("Idempotency-Key")
		json.NewEncoder(w).Encode(u)
	})
	return httptest.NewServer(httpc.Deadline("X-Request-Timeout-Ms", mux))
}

func Example() {
	service := users()
	defer service.Close()
	client, err := httpc.New(httpc.Options{DeadlineHeader: "X-Request-Timeout-Ms"})
	if err != nil {
		log.Fatal(err)
	}
	defer client.CloseIdleConnections()
	ctx := context.Background()

	user, err := httpc.JSON[User](ctx, client, "GET", service.URL+"/v1/users/{id}", nil, 7)
	fmt.Println(user.Name, err)

	_, err = httpc.JSON[User](ctx, client, "GET", service.URL+"/v1/users/{id}", nil, 8)
	if e, ok := errors.AsType[*httpc.StatusError](err); ok {
		fmt.Print(e.Status, " ", string(e.Body))
	}

	transport := client.Transport.(*httpc.Transport)
	fmt.Println(transport.Guard(strings.TrimPrefix(service.URL, "http://")).Stats().Tries, "tries")
	// Output:
	// Ada <nil>
	// 404 {"reason":"no such user"}
	// 2 tries
}

// A request with a header of its own. The Idempotency-Key allows that it is sent again.
func ExampleSend() {
	service := users()
	defer service.Close()
	client, err := httpc.New(httpc.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer client.CloseIdleConnections()

	req, err := httpc.NewRequest(context.Background(), "POST", service.URL+"/v1/users", User{"Grace"})
	if err != nil {
		log.Fatal(err)
	}
	req.Header.Set("Idempotency-Key", "f3a1")
	user, err := httpc.Send[User](client, req)
	fmt.Println(user.Name, err)
	// Output:
	// Grace, key f3a1 <nil>
}

// A client for an SDK: policies and certificates of its own, and metrics by route.
func ExampleNewTransport() {
	service := users()
	defer service.Close()
	transport, err := httpc.NewTransport(httpc.Options{
		Guard:       &resilient.Options{Timeout: time.Minute, Retry: resilient.Retry{Tries: 5}},
		TLS:         httpc.TLS{}, // CA, Cert and Key name files that may change
		MaxResponse: 10,
		Wrap: func(next http.RoundTripper) http.RoundTripper {
			return observed{next}
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	client := &http.Client{Transport: transport} // for the SDK
	defer transport.CloseIdleConnections()

	ctx := httpc.WithRoute(context.Background(), "/v1/users/{id}")
	req, err := http.NewRequestWithContext(ctx, "GET", service.URL+"/v1/users/7", nil)
	if err != nil {
		log.Fatal(err)
	}
	resp, err := client.Do(req)
	if err == nil {
		_, err = io.ReadAll(resp.Body)
		resp.Body.Close()
	}
	if e, ok := errors.AsType[*httpc.TooLargeError](err); ok && errors.Is(err, httpc.ErrTooLarge) {
		fmt.Println(e)
	}
	// Output:
	// GET /v1/users/{id}: 200
	// httpc: body too large: the body of the response has more than 10 bytes (Options.MaxResponse)
}

type observed struct{ next http.RoundTripper }

func (o observed) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := o.next.RoundTrip(req)
	if err == nil {
		fmt.Printf("%s %s: %d\n", req.Method, httpc.Route(req.Context()), resp.StatusCode)
	}
	return resp, err
}
