// Package mobile sends the events of a device that is sometimes offline.
package mobile

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/batch"
	"github.com/heed-go/heed/throttle"
)

// Open returns the Outbox of a device, which keeps its files in dir, an existing folder.
// Requests that it accepted while the device was offline, or before the program ended, are
// sent later. It calls done with each that was sent, or that failed for good. Nil as base
// means http.DefaultTransport.
func Open(base http.RoundTripper, dir, token string, done func(batch.Delivery) batch.Action) (*batch.Outbox, error) {
	seed, err := loadSeed(filepath.Join(dir, "seed"))
	if err != nil {
		return nil, err
	}
	transport := &heed.Transport{
		Base:    base,
		Limiter: throttle.NewTokenBucket(throttle.PerSecond(1)), // the pace after a time offline
		// Devices that wake at the same time spread their first requests. A device has the
		// same delay each time.
		StartJitter: 5 * time.Minute,
		StartSeed:   seed,
		// The token is added here because an Outbox writes no credentials to disk.
		Retry: &heed.RetryPolicy{BeforeSend: func(req *http.Request, _ int) error {
			req.Header.Set("Authorization", "Bearer "+token)
			return nil
		}},
	}
	return batch.OpenOutbox(batch.OutboxConfig{
		Client: heed.NewClient(transport),
		Path:   filepath.Join(dir, "outbox"),
		Done:   done,
	})
}

// Record keeps an event until it has been sent. The error matches batch.ErrOutboxFull if the
// device was offline for too long.
func Record(box *batch.Outbox, event []byte) error {
	req, err := http.NewRequest(http.MethodPost, "https://api.telemetry.example/v1/events", bytes.NewReader(event))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	_, err = box.Submit(req)
	return err
}

// loadSeed returns the seed of the device, which is created when it does not exist.
func loadSeed(path string) (string, error) {
	seed, err := os.ReadFile(path)
	if err == nil && len(seed) > 0 {
		return string(seed), nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	created := rand.Text()
	return created, os.WriteFile(path, []byte(created), 0o600)
}
