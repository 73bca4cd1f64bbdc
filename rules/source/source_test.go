package source_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/rules"
	"github.com/heed-go/heed/rules/source"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
	"github.com/heed-go/heed/throttle/throttletest"
)

// fakeStore is a database that can be slow or unavailable.
type fakeStore struct {
	mu         sync.Mutex
	limits     map[string]throttle.Limit
	err        error
	latency    time.Duration
	lookups    []string
	running    int // lookups in progress
	maxRunning int
}

func (a *fakeStore) lookup(ctx context.Context, key string) (throttle.Limit, error) {
	a.mu.Lock()
	a.lookups = append(a.lookups, key)
	a.running++
	a.maxRunning = max(a.maxRunning, a.running)
	l, found := a.limits[key]
	takes, err := a.latency, a.err
	a.mu.Unlock()
	defer func() { a.mu.Lock(); a.running--; a.mu.Unlock() }()
	if takes > 0 { // the race detector of Go 1.26 can crash on timers of a bubble that have expired
		select {
		case <-time.After(takes):
		case <-ctx.Done():
		}
	}
	switch {
	case ctx.Err() != nil:
		return l, ctx.Err()
	case err != nil:
		return l, err
	case !found:
		return l, source.ErrNoLimit
	case l.Count == 0:
		return l, source.ErrUnlimited
	}
	return l, nil
}

// set changes the limit of a key. A limit of 0 per minute means unlimited.
func (a *fakeStore) set(key string, perMinute int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.limits == nil {
		a.limits = map[string]throttle.Limit{}
	}
	a.limits[key] = throttle.PerMinute(perMinute)
}

func (a *fakeStore) fail(err error) { a.mu.Lock(); a.err = err; a.mu.Unlock() }

func (a *fakeStore) numLookups() int { a.mu.Lock(); defer a.mu.Unlock(); return len(a.lookups) }

// ask claims a unit of key. It may be called by any goroutine of the test.
func ask(t *testing.T, s *source.Source, key string) throttle.Decision {
	d, err := s.Reserve(t.Context(), throttle.Claim{Key: key})
	assert.NoError(t, err)
	return d
}

func noJitter() float64 { return 0 }

var errDown = errors.New("database is down")

func TestSource_conforms(t *testing.T) {
	ten := throttle.Limit{Name: "ten", Count: 10, Per: time.Second, Burst: 10}
	for name, lookup := range map[string]func(context.Context, string) (throttle.Limit, error){
		"limited": func(context.Context, string) (throttle.Limit, error) { return ten, nil },
		"missing": func(context.Context, string) (throttle.Limit, error) { return ten, source.ErrNoLimit },
		"failed":  func(context.Context, string) (throttle.Limit, error) { return ten, errDown },
	} {
		t.Run(name, func(t *testing.T) {
			throttletest.TestLimiter(t, func(clk throttle.Clock) throttle.Limiter {
				return &source.Source{Lookup: lookup, Default: ten, Clock: clk}
			}, throttletest.Spec{Limit: ten, Histories: 200})
		})
	}
}

// TestSource_distinguishesMissingUnlimitedAndFailed checks the three results without a limit, and
// how long each is remembered.
func TestSource_distinguishesMissingUnlimitedAndFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &fakeStore{}
		db.set("vip", 0)
		s := &source.Source{Lookup: db.lookup, Default: throttle.PerMinute(3), Rand: noJitter}
		d := ask(t, s, "vip")
		require.True(t, d.OK)
		require.Zero(t, d.Limit, "an unlimited key has no limit")
		d = ask(t, s, "new")
		require.EqualValues(t, 3, d.Limit)
		require.False(t, d.Degraded, "who has none is under the default, as was decided")
		db.fail(errDown)
		d = ask(t, s, "bob")
		require.EqualValues(t, 3, d.Limit)
		require.True(t, d.Degraded)

		for _, step := range []struct {
			pause time.Duration
			asked []string
		}{
			{999 * time.Millisecond, nil},
			{time.Millisecond, []string{"bob"}},
			{9 * time.Second, []string{"new", "bob"}},
			{50 * time.Second, []string{"vip", "new", "bob"}},
		} {
			time.Sleep(step.pause)
			db.lookups = nil
			for _, key := range []string{"vip", "new", "bob"} {
				ask(t, s, key)
			}
			require.Equal(t, step.asked, db.lookups)
		}
	})
}

// TestSource_errorsWithoutDefault checks the errors of ErrorWithoutLimit. See
// TestSource_rejectsInventedKeys for the default.
func TestSource_errorsWithoutDefault(t *testing.T) {
	db := &fakeStore{}
	s := &source.Source{Lookup: db.lookup, MaxKeys: 1, ErrorWithoutLimit: true}
	_, err := s.Reserve(t.Context(), throttle.Claim{Key: "new"})
	require.ErrorIs(t, err, source.ErrNoLimit)
	db.fail(errDown)
	_, err = s.Reserve(t.Context(), throttle.Claim{Key: "bob"})
	require.ErrorIs(t, err, errDown)
	require.NotContains(t, err.Error(), "bob", "an error must not hold a key")
	require.Panics(t, func() { new(source.Source).Reserve(t.Context(), throttle.Claim{}) })
}

func TestSource_keepsLimitsInOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var errs []string
		db := &fakeStore{}
		db.set("ann", 5)
		db.set("vip", 0)
		s := &source.Source{Lookup: db.lookup, Default: throttle.PerMinute(1), Rand: noJitter,
			OnError: func(key string, err error) { errs = append(errs, key+": "+errors.Unwrap(err).Error()) }}
		ask(t, s, "ann")
		ask(t, s, "vip")
		db.fail(errDown)
		time.Sleep(24 * time.Hour)
		require.EqualValues(t, 5, ask(t, s, "ann").Limit)
		require.Zero(t, ask(t, s, "vip").Limit)
		require.Equal(t, []string{"ann: database is down", "vip: database is down"}, errs)

		db.fail(nil)
		db.set("ann", 9)
		time.Sleep(time.Second)
		require.EqualValues(t, 9, ask(t, s, "ann").Limit)
	})
}

func TestSource_invalidLimitIsFailure(t *testing.T) {
	var got error
	s := &source.Source{
		Lookup:  func(context.Context, string) (throttle.Limit, error) { return throttle.PerMinute(-1), nil },
		Default: throttle.PerMinute(3), OnError: func(_ string, err error) { got = err },
	}
	d := ask(t, s, "ann")
	require.EqualValues(t, 3, d.Limit)
	require.True(t, d.Degraded)
	require.ErrorContains(t, got, "Count is -1")
}

// TestSource_limitOfZeroRejects checks that a key whose limit becomes 0 is rejected, with and without
// a Default, and during an outage, and that it gets its bucket back afterwards.
func TestSource_limitOfZeroRejects(t *testing.T) {
	for _, byDefault := range []throttle.Limit{{}, throttle.PerMinute(50)} {
		synctest.Test(t, func(t *testing.T) {
			limit, down := throttle.PerMinute(5), error(nil)
			s := &source.Source{Lookup: func(context.Context, string) (throttle.Limit, error) { return limit, down }, Default: byDefault, FailedTTL: time.Second}
			require.EqualValues(t, 4, ask(t, s, "ann").Remaining)
			limit = throttle.PerMinute(0)
			s.Refresh()
			for range 2 {
				d := ask(t, s, "ann")
				require.Equal(t, throttle.Decision{At: time.Now(), Wait: throttle.Forever, Policy: "blocked"}, d)
			}
			down = errors.New("the database is down")
			s.Refresh()
			require.Equal(t, "blocked", ask(t, s, "ann").Policy)
			_, err := s.Reserve(t.Context(), throttle.Claim{Key: "ann", Cost: -1})
			require.ErrorIs(t, err, throttle.ErrCost)
			limit, down = throttle.PerMinute(5), nil
			s.Refresh()
			require.EqualValues(t, 3, ask(t, s, "ann").Remaining)
		})
	}
}

// TestSource_changedLimitKeepsUsage checks that a changed limit neither refills nor empties the
// bucket.
func TestSource_changedLimitKeepsUsage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &fakeStore{}
		db.set("ann", 5)
		s := &source.Source{Lookup: db.lookup}
		for range 4 {
			require.True(t, ask(t, s, "ann").OK)
		}
		for _, step := range []struct{ set, limit, left int64 }{
			{10, 10, 0}, {0, 0, 0}, {3, 3, -1}, {5, 5, -1},
		} {
			db.set("ann", step.set)
			s.Refresh()
			d := ask(t, s, "ann")
			require.Equal(t, step.limit, d.Limit)
			require.Equal(t, step.left >= 0, d.OK, "%+v", d)
			require.Zero(t, d.Remaining)
		}
	})
}

func TestSource_boundsKeys(t *testing.T) {
	db := &fakeStore{}
	s := &source.Source{Lookup: db.lookup, Default: throttle.PerMinute(3), MaxKeys: 10}
	granted := 0
	for i := range 1000 {
		if d := ask(t, s, strconv.Itoa(i)); d.OK {
			granted++
		} else {
			require.True(t, d.Degraded)
		}
	}
	require.Equal(t, 10, s.Len())
	require.Equal(t, 13, granted)
}

// TestSource_futureClockReadingExpires checks that a claim with a time of next year does not keep
// a limit for a year.
func TestSource_futureClockReadingExpires(t *testing.T) {
	now := time.Now()
	db := &fakeStore{}
	db.set("ann", 5)
	s := &source.Source{Lookup: db.lookup}
	_, err := s.Reserve(t.Context(), throttle.Claim{Key: "ann", Now: now.AddDate(1, 0, 0)})
	require.NoError(t, err)
	_, err = s.Reserve(t.Context(), throttle.Claim{Key: "ann", Now: now})
	require.NoError(t, err)
	require.Equal(t, 2, db.numLookups())
}

// TestSource_unlimitedKeyGivesNothingBack checks that canceling a claim that took no units returns
// none.
func TestSource_unlimitedKeyGivesNothingBack(t *testing.T) {
	db := &fakeStore{}
	db.set("ann", 1)
	s := &source.Source{Lookup: db.lookup}
	require.True(t, ask(t, s, "ann").OK)
	db.set("ann", 0)
	s.Refresh()
	c := throttle.Claim{Key: "ann", Cost: 100}
	for range 2 {
		d, err := s.Reserve(t.Context(), c)
		require.NoError(t, err)
		require.True(t, d.OK)
		s.Report(t.Context(), c, d, throttle.Feedback{Now: c.Now, State: throttle.Unused})
		d, err = s.Reserve(t.Context(), c)
		require.NoError(t, err)
		s.Report(t.Context(), c, d, throttle.Feedback{Cost: 1})
	}
	db.set("ann", 1)
	s.Refresh()
	require.False(t, ask(t, s, "ann").OK)
}

func TestSource_doesNotAllocate(t *testing.T) {
	db := &fakeStore{}
	db.set("ann", 1)
	db.set("vip", 0)
	s := &source.Source{Lookup: db.lookup, TTL: time.Hour}
	for _, key := range []string{"ann", "vip"} {
		c := throttle.Claim{Key: key}
		n := testing.AllocsPerRun(200, func() {
			d, _ := s.Reserve(t.Context(), c)
			s.Report(t.Context(), c, d, throttle.Feedback{Now: c.Now, State: throttle.Unused})
		})
		require.Zero(t, n, key)
	}
}

// TestSource_asConfigBuild uses a Source for a limit of a file.
func TestSource_asConfigBuild(t *testing.T) {
	db := &fakeStore{}
	db.set("ann", 3)
	set, err := rules.Parse([]byte(`
domain: api
descriptors:
  - key: user
    rate_limit: {requests_per_unit: 1, unit: minute}
`), rules.Config{Build: func(l *rules.Limit) (throttle.Limiter, error) {
		return &source.Source{Lookup: db.lookup, Default: throttle.PerMinute(1)}, nil
	}})
	require.NoError(t, err)
	granted := map[string]int{}
	for range 5 {
		for _, user := range []string{"ann", "bob"} {
			var ticket queue.Ticket
			set.Add(&ticket, rules.Descriptor{{Key: "user", Value: user}})
			d, err := ticket.Reserve(t.Context(), time.Time{})
			require.NoError(t, err)
			if d.OK {
				granted[user]++
			}
		}
	}
	require.Equal(t, map[string]int{"ann": 3, "bob": 1}, granted)
}

// TestSource_settlesClaimsOfKeysWithoutABucket ends claims of keys that have no limit.
func TestSource_settlesClaimsOfKeysWithoutABucket(t *testing.T) {
	store := new(fakeStore)
	store.set("vip", 0)
	s := &source.Source{Lookup: store.lookup}
	c := throttle.Claim{Key: "vip", Cost: 2}
	for range 2 {
		d, err := s.Reserve(t.Context(), c)
		require.NoError(t, err)
		require.True(t, d.OK)
		s.Report(t.Context(), c, d, throttle.Feedback{Cost: 5})
		s.Report(t.Context(), c, d, throttle.Feedback{Cost: 1})
		s.Report(t.Context(), c, d, throttle.Feedback{Now: c.Now, State: throttle.Unused})
	}
	require.Equal(t, 1, store.numLookups())
}
