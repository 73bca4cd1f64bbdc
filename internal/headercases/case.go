// Package headercases tests package quota/headers with recorded responses of real APIs and
// their expected meanings.
package headercases

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/heed-go/heed/quota/headers"
)

// A Case is one response, recorded or documented, and its expected meaning.
type Case struct {
	ID       string              `json:"id"`
	API      string              `json:"api"`
	Received *time.Time          `json:"received"`
	Status   int                 `json:"status"`
	Headers  map[string][]string `json:"headers"`
	BodyHint string              `json:"body_hint"`
	Expect   Expect              `json:"expect"`
}

// Expect is the expected meaning of a response.
type Expect struct {
	Limits     []Limit  `json:"limits"`
	RetryAfter *float64 `json:"retry_after_s"`
	Throttled  bool     `json:"throttled"`
}

// Limit is the expected state of one limit. A nil field is not stated.
type Limit struct {
	Name       *string    `json:"name"`
	Unit       string     `json:"unit"`
	Limit      *float64   `json:"limit"`
	Remaining  *float64   `json:"remaining"`
	Used       *float64   `json:"used"`
	ResetAt    *time.Time `json:"reset_at"`
	ResetAfter *float64   `json:"reset_after_s"`
	Window     *float64   `json:"window_s"`
	Rate       *float64   `json:"rate_per_s"`
	Refill     *float64   `json:"refill_per_s"`
	PerWindow  *float64   `json:"refill_per_window"`
}

// Read reads cases, with one JSON object per line.
func Read(r io.Reader) ([]Case, error) {
	var all []Case
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		if len(lines.Bytes()) == 0 {
			continue
		}
		var c Case
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			return nil, fmt.Errorf("headercases: line %d: %w", n, err)
		}
		all = append(all, c)
	}
	return all, lines.Err()
}

// Header returns the headers as net/http would have read them.
func (c *Case) Header() http.Header {
	h := make(http.Header)
	for name, values := range c.Headers {
		for _, v := range values {
			h.Add(name, v)
		}
	}
	return h
}

// ReceivedAt returns the time of receipt. If none was recorded, it is shortly before the
// first reset, so that delays can be computed.
func (c *Case) ReceivedAt() time.Time {
	if c.Received != nil {
		return *c.Received
	}
	at := time.Unix(1700000000, 0)
	for i, l := range c.Expect.Limits {
		if l.ResetAt != nil && (i == 0 || l.ResetAt.Before(at)) {
			at = l.ResetAt.Add(-10 * time.Second)
		}
	}
	return at.UTC()
}

// host is the host of every case. The built-in table does not contain it, because cases
// name APIs, not hosts.
const host = "api.invalid"

// Report parses the case: by the general rules alone, or with the table and the body.
func (c *Case) Report(table bool) headers.Report {
	r := headers.Reader{NoProviderTable: !table}
	if table {
		if v, ok := headers.ProviderByName(c.API); ok {
			r.Hosts = map[string]headers.Provider{host: v}
		}
	}
	report := r.Parse(host, c.Status, c.Header(), c.ReceivedAt())
	if table && c.BodyHint != "" {
		r.ReadBody(c.Status, c.Header(), []byte(bodyFromHint(c.BodyHint)), &report)
	}
	return report
}
