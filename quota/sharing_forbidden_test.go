package quota

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// Two processes lose a permission at nearly the same time. That the stop of one is abandoned is no sign
// for the other one that a probe was accepted, so that one learns no window and no rate either.
func TestSharing_anAbandonedStopReleasesNoOtherProcess(t *testing.T) {
	for _, apart := range []time.Duration{0, 100 * time.Millisecond, 300 * time.Millisecond, 600 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) { abandonedStops(t, apart) })
	}
}

func abandonedStops(t *testing.T, apart time.Duration) {
	all := trackers(&bus{delay: time.Millisecond}, 2, 0)
	send := func(tr *Tracker, status int) {
		req := request(t, users)
		demand := tr.Demand(req)
		d, err := demand.Limiter.Reserve(t.Context(), throttle.Claim{})
		require.NoError(t, err)
		if !d.OK {
			return
		}
		resp := &http.Response{StatusCode: status, Header: http.Header{}, Body: http.NoBody, Request: req}
		f := tr.Feedback(req, demand, resp, nil, time.Now(), nil)
		demand.Limiter.(throttle.Observer).Observe(t.Context(), throttle.Claim{}, d, f)
	}
	for _, tr := range all {
		tr.endpointOf(request(t, users))
	}
	time.Sleep(time.Second)
	for range 30 {
		for _, tr := range all {
			send(tr, http.StatusOK)
		}
		time.Sleep(10 * time.Millisecond)
	}
	for i, tr := range all {
		for range 6 {
			send(tr, http.StatusForbidden)
			time.Sleep(time.Millisecond)
		}
		if i == 0 {
			time.Sleep(apart)
		}
	}
	for range 30 * 50 {
		for _, tr := range all {
			inf := tr.endpointOf(request(t, users)).quotaOf(request(t, users)).Inference
			require.False(t, inf != nil && inf.Limits(), "%v apart: no request was accepted", apart)
			send(tr, http.StatusForbidden)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
