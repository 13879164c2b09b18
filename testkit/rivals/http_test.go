package rivals

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"github.com/failsafe-go/failsafe-go/timeout"
	"github.com/hashicorp/go-retryablehttp"
	"resty.dev/v3"

	"github.com/balekv/bale/extra/resilient/httpc"
)

// purchase is an answer of half a kilobyte.
type purchase struct {
	ID    int      `json:"id"`
	Items []string `json:"items"`
}

var thePurchase = purchase{7, strings.Fields(strings.Repeat("sku-83724 ", 50))}

// BenchmarkHTTP is a GET and the decoding of its answer, by clients with the policies that each
// has: a deadline, retries, and a breaker. Over a loopback connection, or with a RoundTripper that
// answers at once, which leaves the clients' own time.
func BenchmarkHTTP(b *testing.B) {
	answer, err := json.Marshal(thePurchase)
	if err != nil {
		b.Fatal(err)
	}
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Write(answer)
	}))
	defer service.Close()
	stub := roundTripper(func(req *http.Request) (*http.Response, error) {
		return &http.Response{
			StatusCode: 200, Status: "200 OK", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{"Content-Type": {"application/json"}},
			ContentLength: int64(len(answer)), Body: io.NopCloser(strings.NewReader(string(answer))), Request: req,
		}, nil
	})
	for _, base := range []struct {
		name      string
		transport http.RoundTripper
	}{{"loopback", nil}, {"stub", stub}} {
		transport := func() http.RoundTripper {
			if base.transport != nil {
				return base.transport
			}
			tuned := http.DefaultTransport.(*http.Transport).Clone()
			tuned.MaxIdleConnsPerHost = 64
			b.Cleanup(tuned.CloseIdleConnections)
			return tuned
		}
		decode := func(client *http.Client) func(context.Context) (purchase, error) {
			return func(ctx context.Context) (o purchase, err error) {
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, service.URL+"/v1/purchases/7", nil)
				if err != nil {
					return o, err
				}
				resp, err := client.Do(req)
				if err != nil {
					return o, err
				}
				defer resp.Body.Close()
				body, err := io.ReadAll(resp.Body)
				if err != nil {
					return o, err
				}
				return o, json.Unmarshal(body, &o)
			}
		}
		ours := func(o httpc.Options) *http.Client {
			o.Wrap = func(next http.RoundTripper) http.RoundTripper {
				if base.transport != nil {
					return base.transport
				}
				return next
			}
			client, err := httpc.New(o)
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(client.CloseIdleConnections)
			return client
		}
		client := ours(httpc.Options{})
		retryable := retryablehttp.NewClient()
		retryable.Logger, retryable.HTTPClient = nil, &http.Client{Transport: transport(), Timeout: 10 * time.Second}
		restful := resty.NewWithClient(&http.Client{Transport: transport()}).SetTimeout(10 * time.Second).SetRetryCount(2)
		b.Cleanup(func() { restful.Close() })
		safe := failsafehttp.NewRoundTripper(transport(), timeout.New[*http.Response](10*time.Second), failsafehttp.NewRetryPolicyBuilder().Build(),
			circuitbreaker.NewBuilder[*http.Response]().WithFailureRateThreshold(0.5, 20, 10*time.Second).Build())
		for _, test := range []struct {
			name string
			call func(context.Context) (purchase, error)
		}{
			{"net-http", decode(&http.Client{Transport: transport()})},
			{"net-http-timeout", decode(&http.Client{Transport: transport(), Timeout: 10 * time.Second})},
			{"httpc", func(ctx context.Context) (purchase, error) {
				return httpc.JSON[purchase](ctx, client, http.MethodGet, service.URL+"/v1/purchases/{id}", nil, 7)
			}},
			{"httpc-client", decode(client)},
			{"resty", func(ctx context.Context) (o purchase, err error) {
				_, err = restful.R().SetContext(ctx).SetPathParam("id", "7").SetResult(&o).Get(service.URL + "/v1/purchases/{id}")
				return o, err
			}},
			{"go-retryablehttp", decode(retryable.StandardClient())},
			{"failsafehttp", decode(&http.Client{Transport: safe})},
		} {
			b.Run(base.name+"/"+test.name, func(b *testing.B) {
				ctx := b.Context()
				b.ReportAllocs()
				for b.Loop() {
					if o, err := test.call(ctx); err != nil || o.ID != 7 || len(o.Items) != len(thePurchase.Items) {
						b.Fatal(o.ID, len(o.Items), err)
					}
				}
			})
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
