package worlds

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed"
)

// The cause of a failure or delay is why the call was not sent again, or what it has waited for longest.
func TestWaits_cause(t *testing.T) {
	const s = time.Second
	budget := fmt.Errorf("wrapped: %w", heed.ErrRetryBudget)
	for want, tt := range map[string]struct {
		waits  Waits
		result Result
	}{
		"none":                         {Waits{}, Result{Reason: OK}},
		"status 503":                   {Waits{}, Result{Reason: BadStatus, Status: 503}},
		"waited: a":                    {Waits{Queue: map[string]time.Duration{"a": 2 * s, "b": s}, Backoff: s}, Result{Reason: OK}},
		"waited: c":                    {Waits{Queue: map[string]time.Duration{"d": s, "c": s}}, Result{Reason: Unsent}},
		"waited: backoff":              {Waits{Queue: map[string]time.Duration{"b": s}, Backoff: 2 * s}, Result{Reason: OK}},
		"not retried":                  {Waits{Stopped: errors.New("x"), Backoff: s}, Result{Reason: BadStatus}},
		"waited: e":                    {Waits{Queue: map[string]time.Duration{"e": s}, Stopped: budget}, Result{Reason: Deadline}},
		"not retried, " + text(budget): {Waits{Stopped: budget, Backoff: s}, Result{Reason: BadStatus, Status: 500}},
	} {
		require.Equal(t, want, tt.waits.Cause(tt.result))
	}
}

// text returns the text of the sentinel that err matches, without the name of its package.
func text(err error) string { return errors.Unwrap(err).Error()[len("heed: "):] }
