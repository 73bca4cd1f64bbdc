// Package s3 uploads many objects, with aws-sdk-go-v2 and heed.
package s3

import (
	"bytes"
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/quota"
	"github.com/heed-go/heed/throttle"
)

// NewClient returns a client for all goroutines of a program. Nil as base means
// http.DefaultTransport.
func NewClient(base http.RoundTripper, region string, credentials aws.CredentialsProvider) *s3.Client {
	transport := &heed.Transport{
		Base:    base,
		Limiter: throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 32}), // in flight; the others wait
		Quota:   &quota.Tracker{Mode: quota.Full},                               // S3 rejects by a rate that it does not state
		Retry: &heed.RetryPolicy{
			BeforeSend:    sign(region, credentials),
			MaxServerWait: time.Hour, // uploads of many objects may wait longer than the default
			MaxElapsed:    time.Hour,
			MaxBodyBuffer: 8 << 20, // the parts of a multipart upload have 5 MiB
		},
	}
	return s3.New(s3.Options{
		Region:      region,
		HTTPClient:  heed.NewClient(transport),
		Credentials: aws.AnonymousCredentials{}, // so that the SDK does not sign
		Retryer:     aws.NopRetryer{},           // so that it does not retry
	})
}

// sign returns a BeforeSend function that signs a request when it is sent. If the SDK signed
// it, the signature would be as old as the time for which heed delays the request, and S3
// rejects signatures that are older than 15 minutes.
func sign(region string, credentials aws.CredentialsProvider) func(*http.Request, int) error {
	cached := aws.NewCredentialsCache(credentials)
	signer := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true }) // as S3 requires
	return func(req *http.Request, _ int) error {
		c, err := cached.Retrieve(req.Context())
		if err != nil {
			return err
		}
		hash := req.Header.Get("X-Amz-Content-Sha256") // the SDK has set it
		return signer.SignHTTP(req.Context(), c, req, hash, "s3", region, time.Now())
	}
}

// Upload stores objects by key. It returns how many failed.
func Upload(ctx context.Context, client *s3.Client, bucket string, objects map[string][]byte) (failed int) {
	var n atomic.Int64
	var all sync.WaitGroup
	for key, content := range objects {
		all.Go(func() {
			_, err := client.PutObject(ctx, &s3.PutObjectInput{
				Bucket: aws.String(bucket),
				Key:    aws.String(key),
				Body:   bytes.NewReader(content),
			})
			if err != nil {
				n.Add(1)
			}
		})
	}
	all.Wait()
	return int(n.Load())
}
