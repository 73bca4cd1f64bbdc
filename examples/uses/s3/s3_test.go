package s3

import (
	"context"
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/examples/uses/internal/scenario"
	"github.com/heed-go/heed/heedtest"
)

// TestNewClient_signsWhatIsSent checks that a request that had to wait for 20 minutes has a new
// signature. One that the SDK signed has expired then.
func TestNewClient_signsWhatIsSent(t *testing.T) {
	for name, tt := range map[string]struct {
		newClient func(http.RoundTripper) *s3.Client
		failed    int
		old       bool
	}{
		"in BeforeSend": {func(base http.RoundTripper) *s3.Client { return NewClient(base, region, account) }, 0, false},
		"by the SDK":    {newSignedBySDK, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := overloadedFor(20*time.Minute).Measure(t.Context(), func(ctx context.Context, base http.RoundTripper) int {
					return Upload(ctx, tt.newClient(base), "a-bucket", map[string][]byte{"a": []byte("content")})
				})
				require.Equal(t, 2, r.Sent)
				require.Equal(t, tt.failed, r.Failed)
				require.Equal(t, tt.old, *r.OldestSignature > maxAge.Seconds(), *r.OldestSignature)
			})
		})
	}
}

// overloadedFor returns a scenario whose API rejects the first request and asks to wait for d.
func overloadedFor(d time.Duration) scenario.Scenario {
	return scenario.Scenario{API: func(c *scenario.Counts) func(heedtest.Request) heedtest.Response {
		next, rejected := newAPI(c).respond, false
		return func(req heedtest.Request) heedtest.Response {
			resp := next(req)
			if !rejected {
				rejected = true
				resp = fail(http.StatusServiceUnavailable, "SlowDown", "Please reduce your request rate.")
				resp.Header.Set("Retry-After", strconv.Itoa(int(d.Seconds())))
			}
			return resp
		}
	}}
}

func newSignedBySDK(base http.RoundTripper) *s3.Client {
	transport := &heed.Transport{Base: base, Retry: &heed.RetryPolicy{MaxServerWait: time.Hour, MaxElapsed: time.Hour}}
	return s3.New(s3.Options{Region: region, HTTPClient: heed.NewClient(transport), Credentials: account, Retryer: aws.NopRetryer{}})
}

func TestVerify_rejectsOtherSignatures(t *testing.T) {
	other := aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{AccessKeyID: "AKIDEXAMPLE", SecretAccessKey: "another secret"}, nil
	})
	objects := map[string][]byte{"a b/c~d+e": []byte("x"), "ä": make([]byte, 300<<10), "empty": nil}
	synctest.Test(t, func(t *testing.T) {
		for credentials, failed := range map[aws.CredentialsProvider]int{&account: 0, &other: len(objects)} {
			r := Scenario().Measure(t.Context(), func(ctx context.Context, base http.RoundTripper) int {
				return Upload(ctx, NewClient(base, region, credentials), "a-bucket", objects)
			})
			require.Equal(t, failed, r.Failed)
			require.Equal(t, len(objects), r.Sent)
		}
	})
}
