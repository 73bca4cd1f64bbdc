package mobile

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestOpen_sameDelayAfterEachStart checks that the seed is kept, so that the first request
// after a start has the same delay, and that devices have different ones.
func TestOpen_sameDelayAfterEachStart(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	delay := firstDelay(t, first)
	require.Equal(t, delay, firstDelay(t, first))
	require.NotEqual(t, delay, firstDelay(t, second))
}

// firstDelay starts the program of the device with the files in dir, and returns the time until
// it sends an event.
func firstDelay(t *testing.T, dir string) (delay time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		sent := make(chan time.Duration, 1)
		box, err := Open(roundTripper(func(req *http.Request) (*http.Response, error) {
			sent <- time.Since(start)
			return &http.Response{StatusCode: http.StatusAccepted, Body: http.NoBody, Request: req}, nil
		}), dir, "token", nil)
		require.NoError(t, err)
		require.NoError(t, Record(box, []byte("{}")))
		delay = <-sent
		require.NoError(t, box.Drain(t.Context()))
		_, err = box.Close(t.Context())
		require.NoError(t, err)
	})
	return delay
}

func TestLoadSeed_keepsWhatItCreated(t *testing.T) {
	path := filepath.Join(t.TempDir(), "seed")
	require.NoError(t, os.WriteFile(path, nil, 0o600)) // as after a crash
	seed, err := loadSeed(path)
	require.NoError(t, err)
	require.NotEmpty(t, seed)
	again, err := loadSeed(path)
	require.NoError(t, err)
	require.Equal(t, seed, again)
	_, err = loadSeed(filepath.Join(t.TempDir(), "no such folder", "seed"))
	require.Error(t, err)
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
