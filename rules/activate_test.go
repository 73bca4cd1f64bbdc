package rules

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
)

// reload returns the Set after the text of the file has changed.
func reload(t *testing.T, old *Set, text string, s Config) *Set {
	p, err := parse([]byte(text), &s)
	require.NoError(t, err)
	set, err := p.activate(s, old)
	require.NoError(t, err)
	return set
}

// remaining returns the remaining units of key x at friday plus at, for a limit with key a.
func remaining(t *testing.T, set *Set, at time.Duration) int64 {
	d, err := set.rules[0].limiter.Reserve(context.Background(), throttle.Claim{Key: "x", Now: friday.Add(at), DryRun: true})
	require.NoError(t, err)
	return d.Remaining
}

// take takes n units of the first limit of set.
func take(t *testing.T, set *Set, n int64) (*activeLimit, throttle.Claim, throttle.Decision) {
	g, c := set.rules[0].limiter, throttle.Claim{Key: "x", Cost: n, Now: friday}
	d, err := g.Reserve(context.Background(), c)
	require.NoError(t, err)
	require.True(t, d.OK)
	return g, c, d
}

// TestReload_keepsUsage takes 6 of 10 units, changes the file, and checks the remaining units.
func TestReload_keepsUsage(t *testing.T) {
	const head = "domain: d\ndescriptors: [{key: a, "
	bucket := head + "rate_limit: {unit: hour, requests_per_unit: 10, burst: 10}}]"
	for name, tt := range map[string]struct {
		to   string
		want int64
	}{
		"the same":                {bucket, 4},
		"in another line":         {"# moved\n\n" + bucket, 4},
		"next to a new one":       {strings.Replace(bucket, "[", "[{key: b, rate_limit: {unlimited: true}}, ", 1), 4},
		"another rate":            {head + "rate_limit: {unit: second, requests_per_unit: 10, burst: 10}}]", 4},
		"a larger burst":          {head + "rate_limit: {unit: hour, requests_per_unit: 10, burst: 100}}]", 4},
		"a smaller burst":         {head + "rate_limit: {unit: hour, requests_per_unit: 10, burst: 3}}]", 3},
		"another cost":            {head + "rate_limit: {unit: hour, requests_per_unit: 10, burst: 10, cost: 2}}]", 4},
		"hours":                   {head + "rate_limit: {unit: hour, requests_per_unit: 10, burst: 10, active: {from: 09:00, burst: 90}}}]", 4},
		"another key's memory":    {head + "rate_limit: {unit: hour, requests_per_unit: 10, burst: 10, compact: true}}]", 10},
		"another algorithm":       {head + "rate_limit: {unit: hour, requests_per_unit: 10}}]", 10},
		"a limit of another name": {strings.Replace(bucket, "key: a", "key: b", 1), 10},
	} {
		s := Config{Clock: fixedClock(friday)}
		old, err := Parse([]byte(bucket), s)
		require.NoError(t, err)
		take(t, old, 6)
		set := reload(t, old, tt.to, s)
		for i, r := range set.rules {
			if r.limit.Spec != nil {
				set.rules[0] = set.rules[i]
			}
		}
		require.Equal(t, tt.want, remaining(t, set, 0), name)
	}
}

// TestReload_cancelReachesGrantingLimiter cancels claims after the file has changed.
func TestReload_cancelReachesGrantingLimiter(t *testing.T) {
	s := Config{Clock: fixedClock(friday)}
	text := "domain: d\ndescriptors: [{key: a, rate_limit: {unit: hour, requests_per_unit: 10, %s}}]"
	old, err := Parse([]byte(fmt.Sprintf(text, "algorithm: token_bucket")), s)
	require.NoError(t, err)
	g, c, d := take(t, old, 6)
	set := reload(t, old, fmt.Sprintf(text, "algorithm: sliding_log"), s)
	take(t, set, 3)

	_, c2, d2 := take(t, old, 4) // a claim on the old set counts for the new one
	require.EqualValues(t, 3, remaining(t, set, 0))
	g.Report(context.Background(), c, d, throttle.Feedback{Now: c.Now, State: throttle.Unused})
	require.EqualValues(t, 3, remaining(t, set, 0), "units of the old limit came to the new one")
	g.Report(context.Background(), c2, d2, throttle.Feedback{Now: c2.Now, State: throttle.Unused})
	require.EqualValues(t, 7, remaining(t, set, 0))
}

// TestReload_errorChangesNothing uses a Config.Build that fails for one of two limits.
func TestReload_errorChangesNothing(t *testing.T) {
	s := Config{Clock: fixedClock(friday)}
	two := "domain: d\ndescriptors:\n- {key: a, rate_limit: {unit: hour, requests_per_unit: %d, burst: 10}}\n- {key: b, rate_limit: {unit: %s, requests_per_unit: 10}}"
	old, err := Parse([]byte(fmt.Sprintf(two, 10, "hour")), s)
	require.NoError(t, err)
	take(t, old, 6)
	s.Build = func(l *Limit) (throttle.Limiter, error) {
		if l.ID == "d/c" {
			return nil, errors.New("no such store")
		}
		return nil, nil
	}
	p, err := parse([]byte(fmt.Sprintf(two, 20, "hour")+"\n- {key: c, rate_limit: {unit: hour, requests_per_unit: 10}}"), &s)
	require.NoError(t, err)
	_, err = p.activate(s, old)
	require.EqualError(t, err, "rules: 5:24: Build: no such store")
	require.EqualValues(t, 4, remaining(t, old, 0))
	require.EqualValues(t, 10, old.rules[0].limiter.limit().Spec.(throttle.Limit).Count)
}

// TestBuild_makesOneLimiterForAllKeys checks that Config.Build is called once until the file
// changes the limit.
func TestBuild_makesOneLimiterForAllKeys(t *testing.T) {
	var built []string
	s := Config{Clock: fixedClock(friday), Build: func(l *Limit) (throttle.Limiter, error) {
		built = append(built, l.ID+" "+l.Algorithm()+" "+fmt.Sprint(l.Spec))
		return throttle.NewTokenBucket(throttle.PerHour(2)), nil
	}}
	text := "domain: d\ndescriptors: [{key: a, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: %d, burst: 10}}]"
	set, err := Parse([]byte(fmt.Sprintf(text, 10)), s)
	require.NoError(t, err)
	set = reload(t, set, "\n"+fmt.Sprintf(text, 10), s)
	require.Equal(t, []string{"d/a token_bucket 10 per 1h0m0s"}, built)
	set = reload(t, set, fmt.Sprintf(text, 20), s)
	require.Len(t, built, 2)
	for i := range 3 {
		d, err := set.rules[0].limiter.Reserve(context.Background(), throttle.Claim{Key: fmt.Sprint(i)})
		require.NoError(t, err)
		require.True(t, d.OK)
		require.Equal(t, i == 2, d.OverLimit, "not around the limiter that was built")
	}
}

// TestSet_takesAllOrNothing claims six limits at the same time, of which the last is exhausted.
func TestSet_takesAllOrNothing(t *testing.T) {
	var b strings.Builder
	b.WriteString("domain: d\nvalues: {user: {header: X-User}}\nlimits:\n")
	for i := range 6 {
		fmt.Fprintf(&b, "- {name: n%d, key: user, rate_limit: {unit: hour, requests_per_unit: %d, cost: 2}}\n", i, 20-2*i)
	}
	w := decisionCounts{}
	set, err := Parse([]byte(b.String()), Config{Clock: fixedClock(friday), DecisionHook: w})
	require.NoError(t, err)
	granted := map[string]int{}
	for range 8 {
		for _, user := range []string{"ann", "bob"} {
			r := readRequest(t, "GET /\nX-User: "+user)
			var ticket queue.Ticket
			set.Limits(r, &ticket)
			require.Len(t, ticket.Demands, 6)
			d, err := ticket.Reserve(context.Background(), friday)
			require.NoError(t, err)
			if d.OK {
				granted[user]++
			} else {
				require.Equal(t, "n5", d.Policy)
			}
		}
	}
	require.Equal(t, map[string]int{"ann": 5, "bob": 5}, granted)
	for i := range 6 {
		name := fmt.Sprintf("d:n%d ", i)
		require.Equal(t, 10, w[name+"granted"]-w[name+"cancelled"], name)
	}
}

// TestSet_manyLimitsWithAQueue lets requests wait for five concurrency limits, each of which admits
// one request at a time.
func TestSet_manyLimitsWithAQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		text := "domain: d\nlimits:\n"
		for i := range 5 {
			text += fmt.Sprintf("- {name: n%d, rate_limit: {concurrency: 1}}\n", i)
		}
		set, err := Parse([]byte(text), Config{})
		require.NoError(t, err)
		w := &queue.Queue{}
		defer w.Close()
		start := time.Now()
		ends := make(chan time.Duration, 3)
		for range 3 {
			var ticket queue.Ticket
			set.Limits(readRequest(t, "GET /"), &ticket)
			go func() {
				if err := w.Wait(t.Context(), &ticket); err != nil {
					t.Error(err)
				}
				time.Sleep(time.Second)
				w.Report(t.Context(), &ticket, throttle.Feedback{})
				ends <- time.Since(start)
			}()
		}
		for i := range 3 {
			require.Equal(t, time.Duration(i+1)*time.Second, <-ends)
		}
	})
}
