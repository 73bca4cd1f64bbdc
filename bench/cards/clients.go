package main

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/cenkalti/backoff/v5"
	restyv2 "github.com/go-resty/resty/v2"
	"github.com/gofri/go-github-ratelimit/v2/github_ratelimit"
	"github.com/gojek/heimdall/v7"
	"github.com/gojek/heimdall/v7/httpclient"
	"github.com/hashicorp/go-retryablehttp"
	restyv3 "resty.dev/v3"

	"github.com/heed-go/heed/bench/clients"
)

// A client is a library under test.
type client struct {
	name    string
	version string // module and version; empty for the standard library and this repository
	build   func(base http.RoundTripper) http.RoundTripper
}

// all lists the clients, each configured as in its documentation.
var all = []client{
	{"heed", "", shared("heed")},
	{"net/http", "", shared("plain")},
	{"go-retryablehttp", "github.com/hashicorp/go-retryablehttp", shared("retryablehttp")},
	{"go-retryablehttp, RateLimitLinearJitter", "github.com/hashicorp/go-retryablehttp", newLinearJitter},
	{"rehttp", "github.com/PuerkitoBio/rehttp", shared("rehttp")},
	{"failsafehttp", "github.com/failsafe-go/failsafe-go", shared("failsafe")},
	{"resty v2", "github.com/go-resty/resty/v2", newResty2},
	{"resty v3", "resty.dev/v3", newResty3},
	{"heimdall", "github.com/gojek/heimdall/v7", newHeimdall},
	{"loop over cenkalti/backoff", "github.com/cenkalti/backoff/v5", newCenkalti},
	{"go-github-ratelimit", "github.com/gofri/go-github-ratelimit/v2", func(base http.RoundTripper) http.RoundTripper { return github_ratelimit.New(base) }},
}

// shared returns the constructor of a client that other programs measure too.
func shared(name string) func(http.RoundTripper) http.RoundTripper {
	return func(base http.RoundTripper) http.RoundTripper {
		c, err := clients.New(name, base, nil)
		if err != nil {
			panic(err) // the names are constants
		}
		return c.Transport
	}
}

func newLinearJitter(base http.RoundTripper) http.RoundTripper {
	c := retryablehttp.NewClient()
	c.Logger = nil
	c.HTTPClient = &http.Client{Transport: base}
	c.Backoff = retryablehttp.RateLimitLinearJitterBackoff
	return c.StandardClient().Transport
}

// A roundTripper adapts a client that is not a http.RoundTripper.
type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// either returns resp, or err after closing the body of resp, as http.RoundTripper requires.
func either(resp *http.Response, err error) (*http.Response, error) {
	if err != nil && resp != nil && resp.Body != nil {
		resp.Body.Close()
	}
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// newResty2 returns a resty client that reads responses completely, as it does by default.
// With SetDoNotParseResponse it would not close the bodies of responses that it retries.
func newResty2(base http.RoundTripper) http.RoundTripper {
	c := restyv2.NewWithClient(&http.Client{Transport: base}).SetRetryCount(3).SetLogger(silent{})
	c.AddRetryCondition(func(r *restyv2.Response, err error) bool { return err != nil || temporary(r.StatusCode()) })
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		req := c.R().SetContext(r.Context()).SetHeaderMultiValues(r.Header)
		if r.Body != nil {
			defer r.Body.Close() // resty takes any io.Reader and does not close it
			req.SetBody(io.Reader(r.Body))
		}
		resp, err := req.Execute(r.Method, r.URL.String())
		if err != nil {
			return nil, err
		}
		read := *resp.RawResponse
		read.Body = io.NopCloser(bytes.NewReader(resp.Body()))
		return &read, nil
	})
}

func newResty3(base http.RoundTripper) http.RoundTripper {
	c := restyv3.NewWithClient(&http.Client{Transport: base}).SetRetryCount(3).SetResponseDoNotParse(true).SetLogger(silent{})
	c.AddRetryConditions(func(r *restyv3.Response, err error) bool { return err != nil || temporary(r.StatusCode()) })
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		req := c.R().SetContext(r.Context()).SetHeaderMultiValues(r.Header)
		if r.Body != nil {
			defer r.Body.Close()
			req.SetBody(io.Reader(r.Body))
		}
		resp, err := req.Execute(r.Method, r.URL.String())
		if resp == nil {
			return nil, err
		}
		return either(resp.RawResponse, err)
	})
}

// temporary reports whether programs usually retry responses with the status.
func temporary(status int) bool {
	return status == http.StatusTooManyRequests || status >= http.StatusInternalServerError
}

// silent is a logger of resty.
type silent struct{}

func (silent) Errorf(string, ...any) {}
func (silent) Warnf(string, ...any)  {}
func (silent) Debugf(string, ...any) {}

func newHeimdall(base http.RoundTripper) http.RoundTripper {
	wait := heimdall.NewExponentialBackoff(100*time.Millisecond, 10*time.Second, 2, 50*time.Millisecond)
	c := httpclient.NewClient(
		httpclient.WithHTTPClient(&http.Client{Transport: base}),
		httpclient.WithRetrier(heimdall.NewRetrier(wait)),
		httpclient.WithRetryCount(4),
	)
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		return either(c.Do(r.Clone(r.Context()))) // Do changes the body of its request
	})
}

// newCenkalti returns the loop that programs write around backoff.Retry: the body again from
// GetBody, 429 and 503 after Retry-After, and other server errors after a backoff.
func newCenkalti(base http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		attempt := 0
		return backoff.Retry(r.Context(), func() (*http.Response, error) {
			sent := r
			if attempt++; attempt > 1 && r.Body != nil && r.Body != http.NoBody {
				if r.GetBody == nil {
					return nil, backoff.Permanent(errors.New("the body cannot be sent again"))
				}
				body, err := r.GetBody()
				if err != nil {
					return nil, backoff.Permanent(err)
				}
				sent = r.Clone(r.Context())
				sent.Body = body
			}
			resp, err := base.RoundTrip(sent)
			if err != nil || attempt == 4 || !temporary(resp.StatusCode) {
				return resp, err
			}
			resp.Body.Close()
			if s, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil {
				return nil, backoff.RetryAfter(s)
			}
			return nil, errors.New(resp.Status)
		}, backoff.WithMaxTries(4))
	})
}
