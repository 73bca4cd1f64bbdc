package s3

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/heed-go/heed/examples/uses/internal/scenario"
	"github.com/heed-go/heed/heedtest"
)

// An api stores objects like Amazon S3. It verifies signatures and their age, and rejects
// more than 300 requests per second with 503 SlowDown: S3 supports 3,500 writes per second and
// prefix, but only after it has scaled to a rate that lasted, see
// https://repost.aws/knowledge-center/s3-503-within-request-rate-prefix. Of 200 objects, one
// gets a 500 InternalError, which the documentation asks to retry.
type api struct {
	counts *scenario.Counts

	mu     sync.Mutex
	writes scenario.Bucket
	stored int
}

const (
	latency   = 40 * time.Millisecond
	region    = "us-east-1"
	maxAge    = 15 * time.Minute // of a signature
	failEvery = 200
)

var account = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
	return aws.Credentials{AccessKeyID: "AKIDEXAMPLE", SecretAccessKey: "secret", Source: "example"}, nil
})

func newAPI(c *scenario.Counts) *api {
	return &api{counts: c, writes: scenario.Bucket{Size: 300, Per: time.Second}}
}

func (a *api) respond(req heedtest.Request) heedtest.Response {
	first := a.counts.Received(req.URL) == 1
	age, err := verify(req)
	if err != nil {
		return fail(http.StatusForbidden, "SignatureDoesNotMatch", err.Error())
	}
	a.counts.Signed(age)
	if age > maxAge || age < -maxAge {
		return fail(http.StatusForbidden, "RequestTimeTooSkewed", "The difference between the request time and the current time is too large.")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.writes.Take(time.Now(), 1) {
		a.counts.Throttled()
		return fail(http.StatusServiceUnavailable, "SlowDown", "Please reduce your request rate.")
	}
	if a.stored++; a.stored%failEvery == 0 && first {
		return fail(http.StatusInternalServerError, "InternalError", "We encountered an internal error. Please try again.")
	}
	a.counts.Done(req.URL)
	return heedtest.Response{Header: http.Header{"Etag": {`"1"`}, "X-Amz-Request-Id": {"1"}}, Delay: latency, Body: " "}
}

func fail(status int, code, message string) heedtest.Response {
	return heedtest.Response{
		Status: status,
		Header: http.Header{"Content-Type": {"application/xml"}, "X-Amz-Request-Id": {"1"}},
		Body: fmt.Sprintf(`<?xml version="1.0" encoding="UTF-8"?>`+"\n"+
			`<Error><Code>%s</Code><Message>%s</Message><RequestId>1</RequestId><HostId>1</HostId></Error>`, code, message),
		Delay: latency / 4,
	}
}

// verify returns the age of the signature of req. It signs a request with the same headers at
// the same time, and compares the results.
func verify(req heedtest.Request) (age time.Duration, err error) {
	at, err := time.Parse("20060102T150405Z", req.Header.Get("X-Amz-Date"))
	if err != nil {
		return 0, err
	}
	_, signedHeaders, _ := strings.Cut(req.Header.Get("Authorization"), "SignedHeaders=")
	signedHeaders, _, _ = strings.Cut(signedHeaders, ",")
	same, err := http.NewRequest(req.Method, "https://"+req.Host+req.URL, nil)
	if err != nil {
		return 0, err
	}
	for name := range strings.SplitSeq(signedHeaders, ";") {
		switch name {
		case "host":
		case "content-length":
			same.ContentLength = int64(len(req.Body))
		default:
			same.Header[http.CanonicalHeaderKey(name)] = req.Header.Values(name)
		}
	}
	credentials, err := account.Retrieve(context.Background())
	if err != nil {
		return 0, err
	}
	signer := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })
	if err := signer.SignHTTP(context.Background(), credentials, same, req.Header.Get("X-Amz-Content-Sha256"), "s3", region, at); err != nil {
		return 0, err
	}
	if same.Header.Get("Authorization") != req.Header.Get("Authorization") {
		return 0, fmt.Errorf("the signature should be %s", same.Header.Get("Authorization"))
	}
	return time.Since(at), nil
}
