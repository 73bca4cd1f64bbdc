package batch_test

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/batch"
	"github.com/heed-go/heed/heedtest"
	"github.com/heed-go/heed/throttle"
)

// The texts of errors in a checkpoint have no user, query and fragment of URLs, and no keys of
// limits.
func TestRun_theCheckpointHasNoSecrets(t *testing.T) {
	server := &heedtest.Server{Respond: func(heedtest.Request) heedtest.Response { return heedtest.Response{Fault: heedtest.Drop} }}
	server.Start()
	defer server.Close()
	client := heed.NewClient(&heed.Transport{Base: server.Transport(), Retry: &heed.RetryPolicy{MaxAttempts: 1}})
	defer client.CloseIdleConnections()
	u, err := url.Parse(server.URL)
	require.NoError(t, err)
	u.User, u.Path, u.RawQuery, u.Fragment = url.UserPassword("SEKRET-USER", "SEKRET-PASSWORD"), "/orders", "token=SEKRET-QUERY", "SEKRET-FRAGMENT"
	rejected := &throttle.RejectedError{Key: "SEKRET-KEY", Decision: throttle.Decision{Wait: throttle.Forever}, Reason: throttle.ErrRejected}
	o := batch.Options{Checkpoint: checkpointIn(t)}
	report, err := batch.Run(t.Context(), upTo(3), func(ctx context.Context, i int) error {
		switch i {
		case 0:
			return send(ctx, client, "POST", u.String(), "")
		case 1:
			return errors.Join(errors.New("inserted"), &url.Error{Op: "Get", URL: u.String(), Err: errors.New("rejected")})
		}
		return rejected
	}, o)
	require.ErrorIs(t, err, batch.ErrItems)
	require.Equal(t, 3, report.Failed)
	content, err := os.ReadFile(o.Checkpoint)
	require.NoError(t, err)
	require.NotContains(t, string(content), "SEKRET")
	require.Contains(t, string(content), "/orders")
	require.Contains(t, string(content), "rejected by limit")
}

// A query parameter counts as a credential as a header does.
func TestOutbox_writesNoCredentials(t *testing.T) {
	path := filepath.Join(t.TempDir(), "outbox")
	o, err := batch.OpenOutbox(batch.OutboxConfig{Path: path, Client: &http.Client{Transport: neverRoundTrip{}}})
	require.NoError(t, err)
	defer o.Close(ended)
	for _, query := range []string{"api_key=SEKRET", "a=b&access_token=SEKRET", "X-Amz-Signature=SEKRET", "client_secret=SEKRET", "api%5Fkey=SEKRET", "key=SEKRET"} {
		req, err := http.NewRequest("POST", "http://a.test/?"+query, nil)
		require.NoError(t, err)
		_, err = o.Submit(req)
		require.ErrorIs(t, err, batch.ErrCredentials, query)
		require.NotContains(t, err.Error(), "SEKRET")
	}
	for _, name := range []string{"X-Forwarded-Authorization", "Authentication", "X-Secret", "X-Session-Id", "X-Github-Token"} {
		req, err := http.NewRequest("POST", "http://a.test/", nil)
		require.NoError(t, err)
		req.Header.Set(name, "SEKRET")
		_, err = o.Submit(req)
		require.ErrorIs(t, err, batch.ErrCredentials, name)
	}
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NotContains(t, string(content), "SEKRET")

	for _, query := range []string{"", "page_token=1&q=2", "api_key=", "key"} {
		req, err := http.NewRequest("POST", "http://a.test/?"+query, nil)
		require.NoError(t, err)
		_, err = o.Submit(req)
		require.NoError(t, err, query)
	}
	require.Equal(t, 4, o.State().Requests)
}

// neverRoundTrip responds to no request before its context ends.
type neverRoundTrip struct{}

func (neverRoundTrip) RoundTrip(req *http.Request) (*http.Response, error) {
	select {
	case <-req.Context().Done():
	case <-time.After(time.Minute):
	}
	return nil, context.Cause(req.Context())
}
