package quota

import (
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota/internal/learnedlimit"
	"github.com/heed-go/heed/throttle"
)

// loopOf returns the rate loop of q; nil if none is on.
func loopOf(q *quota) *learnedlimit.RateLoop {
	if q.Learned == nil || !q.Learned.Loop.On() {
		return nil
	}
	return &q.Learned.Loop
}

// rejectUntilStopped sends requests to url that are rejected with a bare 429, until a stop begins.
func rejectUntilStopped(t *testing.T, tr *Tracker, url string) {
	for range 20 {
		ask(t, tr, url, answer(429))
		q, _ := tr.Demand(request(t, url)).Limiter.(*quota)
		if q.Hold.Held {
			return
		}
		time.Sleep(300 * time.Millisecond)
	}
	t.Fatal("20 rejections in a row are no evidence")
}

// statusServer returns s with status instead of 429.
func statusServer(s server, status int) server {
	return func(now time.Time) (int, http.Header) {
		got, h := s(now)
		if got == 429 {
			got = status
		}
		return got, h
	}
}

// nginx rejects with a bare 503 by default. The rate that it accepts is learned, although a few 503s
// are no evidence.
func TestTracker_learnsTheRateOfBare503s(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := statusServer(tokenBucket(20, 21, false), 503)
		tr := seeded(1)
		for i := range 2 {
			j := play(t, tr, s, 300, 30, time.Millisecond)
			t.Logf("job %d: %v", i+1, j)
			require.Zero(t, j.failed)
			goal(t, "rate of bare 503s", j.throttled <= 30 && j.elapsed <= 20*time.Second, "job %d: %v", i+1, j)
			time.Sleep(8 * time.Second)
		}
	})
}

// During an outage of the server requests are not stopped, because no suspected cause but a 403 begins a
// hold. The rate that is learned on trial is dropped, because lower rates do not help.
func TestTracker_doesNotStopDuringAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, start := seeded(1), time.Now()
		for range 40 {
			ask(t, tr, users, answer(200))
			time.Sleep(10 * time.Millisecond)
		}
		req := request(t, users)
		for sent := 0; sent < 200; {
			m := tr.Demand(req)
			d, err := m.Limiter.Reserve(t.Context(), throttle.Claim{})
			require.NoError(t, err)
			if !d.OK {
				require.Less(t, d.Wait, time.Second, "no stop")
				time.Sleep(max(d.Wait, time.Millisecond))
				continue
			}
			m.Limiter.Report(t.Context(), throttle.Claim{}, d, tr.Feedback(req, m, answer(503), nil, time.Now(), nil))
			sent++
			time.Sleep(10 * time.Millisecond)
		}
		require.Less(t, time.Since(start), 20*time.Second)
		q, _ := tr.Demand(req).Limiter.(*quota)
		require.Nil(t, loopOf(q), "a lower rate does not help, so it is dropped")
	})
}

// If one of a hundred responses is a failure, that is no evidence of a limit: requests wait for less
// than 5 % of the time.
func TestTracker_fewFailuresDelayFewRequests(t *testing.T) {
	for name, fault := range map[string]struct {
		status int
		err    error
	}{
		"503":     {status: 503},
		"403":     {status: 403},
		"500":     {status: 500},
		"429":     {status: 429},
		"EOF":     {err: io.EOF},
		"reset":   {err: &netError{syscall.ECONNRESET}},
		"timeout": {err: &netError{errTimeout}},
	} {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(3, 4))
			tr, req := seeded(1), request(t, users)
			waited := time.Duration(0)
			for range 20_000 {
				m := tr.Demand(req)
				var d throttle.Decision
				for m.Limiter != nil {
					var err error
					d, err = m.Limiter.Reserve(t.Context(), throttle.Claim{})
					require.NoError(t, err)
					if d.OK {
						break
					}
					waited += max(d.Wait, time.Millisecond)
					time.Sleep(max(d.Wait, time.Millisecond))
				}
				time.Sleep(10 * time.Millisecond)
				resp, err := answer(200), error(nil)
				if random.Float64() < .01 {
					if resp, err = answer(fault.status), fault.err; err != nil {
						resp = nil
					}
				}
				f := tr.Feedback(req, m, resp, err, time.Now(), nil)
				if m.Limiter != nil {
					m.Limiter.Report(t.Context(), throttle.Claim{}, d, f)
				}
			}
			require.Less(t, waited, 10*time.Second, "%s: of 200 s, with 200 failures", name)
		})
	}
}

// A netError wraps an error as those of net/http do.
type netError struct{ error }

func (e *netError) Unwrap() error { return e.error }
func (e *netError) Timeout() bool { return errors.Is(e.error, errTimeout) }

var errTimeout = errors.New("i/o timeout")
