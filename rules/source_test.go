package rules_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/rules"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/throttletest"
)

// accounts is a database that can be slow, and away.
type accounts struct {
	mu     sync.Mutex
	limits map[string]throttle.Limit
	fails  error
	takes  time.Duration
	asked  []string
	now    int // lookups under way
	most   int
}

func (a *accounts) lookup(ctx context.Context, key string) (throttle.Limit, error) {
	a.mu.Lock()
	a.asked = append(a.asked, key)
	a.now++
	a.most = max(a.most, a.now)
	l, found := a.limits[key]
	takes, err := a.takes, a.fails
	a.mu.Unlock()
	defer func() { a.mu.Lock(); a.now--; a.mu.Unlock() }()
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		return l, ctx.Err()
	}
	switch {
	case err != nil:
		return l, err
	case !found:
		return l, rules.ErrNoLimit
	case l.Count == 0:
		return l, rules.ErrUnlimited
	}
	return l, nil
}

// set changes the limit of a key; 0 a minute is unlimited.
func (a *accounts) set(key string, perMinute int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.limits == nil {
		a.limits = map[string]throttle.Limit{}
	}
	a.limits[key] = throttle.PerMinute(perMinute)
}

func (a *accounts) fail(err error) { a.mu.Lock(); a.fails = err; a.mu.Unlock() }

func (a *accounts) times() int { a.mu.Lock(); defer a.mu.Unlock(); return len(a.asked) }

func ask(t *testing.T, s *rules.Source, key string) throttle.Decision {
	d, err := s.Reserve(t.Context(), throttle.Claim{Key: key})
	require.NoError(t, err)
	return d
}

func never() float64 { return 0 } // no jitter

var errDown = errors.New("database is down")

func TestSource_conforms(t *testing.T) {
	ten := throttle.Limit{Name: "ten", Count: 10, Per: time.Second, Burst: 10}
	for name, lookup := range map[string]func(context.Context, string) (throttle.Limit, error){
		"limited": func(context.Context, string) (throttle.Limit, error) { return ten, nil },
		"missing": func(context.Context, string) (throttle.Limit, error) { return ten, rules.ErrNoLimit },
		"failed":  func(context.Context, string) (throttle.Limit, error) { return ten, errDown },
	} {
		t.Run(name, func(t *testing.T) {
			throttletest.TestLimiter(t, func(clk throttle.Clock) throttle.Limiter {
				return &rules.Source{Lookup: lookup, Default: ten, Clock: clk}
			}, throttletest.Spec{Limit: ten, Histories: 200})
		})
	}
}

func TestSource_asksOnceHoweverManyWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &accounts{takes: 100 * time.Millisecond}
		db.set("ann", 5)
		s := &rules.Source{Lookup: db.lookup, Keep: time.Minute, Rand: never}
		granted, began := make(chan bool, 100), time.Now()
		for range 100 {
			go func() { granted <- ask(t, s, "ann").OK }()
		}
		n := 0
		for range 100 {
			if <-granted {
				n++
			}
		}
		require.Equal(t, 5, n)
		require.Equal(t, 100*time.Millisecond, time.Since(began))
		require.Equal(t, 1, db.times())
		time.Sleep(time.Minute)
		ask(t, s, "ann")
		require.Equal(t, 2, db.times())
	})
}

// Only who notices that a limit is old waits for the new one.
func TestSource_othersUseWhatIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &accounts{}
		db.set("ann", 5)
		s := &rules.Source{Lookup: db.lookup, Rand: never}
		ask(t, s, "ann")
		time.Sleep(2 * time.Minute)
		db.set("ann", 7)
		db.takes = 100 * time.Millisecond
		go ask(t, s, "ann")
		synctest.Wait()
		began := time.Now()
		require.EqualValues(t, 5, ask(t, s, "ann").Limit)
		require.Zero(t, time.Since(began))
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		require.EqualValues(t, 7, ask(t, s, "ann").Limit)
		require.Equal(t, 2, db.times())
	})
}

// The three ways not to have a limit, and how long each is believed.
func TestSource_tellsApartWhoHasNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &accounts{}
		db.set("vip", 0)
		s := &rules.Source{Lookup: db.lookup, Default: throttle.PerMinute(3), Rand: never}
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
			db.asked = nil
			for _, key := range []string{"vip", "new", "bob"} {
				ask(t, s, key)
			}
			require.Equal(t, step.asked, db.asked)
		}
	})
}

func TestSource_withoutDefaultSaysWhy(t *testing.T) {
	db := &accounts{}
	s := &rules.Source{Lookup: db.lookup, MaxKeys: 1}
	_, err := s.Reserve(t.Context(), throttle.Claim{Key: "new"})
	require.ErrorIs(t, err, rules.ErrNoLimit)
	db.fail(errDown)
	_, err = s.Reserve(t.Context(), throttle.Claim{Key: "bob"})
	require.ErrorIs(t, err, errDown)
	require.NotContains(t, err.Error(), "bob", "an error must not hold a key")
	require.Panics(t, func() { new(rules.Source).Reserve(t.Context(), throttle.Claim{}) })
}

func TestSource_keepsWhatItKnewInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []string
		db := &accounts{}
		db.set("ann", 5)
		db.set("vip", 0)
		s := &rules.Source{Lookup: db.lookup, Default: throttle.PerMinute(1), Rand: never,
			OnError: func(key string, err error) { told = append(told, key+": "+errors.Unwrap(err).Error()) }}
		ask(t, s, "ann")
		ask(t, s, "vip")
		db.fail(errDown)
		time.Sleep(24 * time.Hour)
		require.EqualValues(t, 5, ask(t, s, "ann").Limit)
		require.Zero(t, ask(t, s, "vip").Limit)
		require.Equal(t, []string{"ann: database is down", "vip: database is down"}, told)

		db.fail(nil)
		db.set("ann", 9)
		time.Sleep(time.Second)
		require.EqualValues(t, 9, ask(t, s, "ann").Limit)
	})
}

func TestSource_limitThatCanNeverWorkIsAFailure(t *testing.T) {
	var told error
	s := &rules.Source{
		Lookup:  func(context.Context, string) (throttle.Limit, error) { return throttle.PerMinute(-1), nil },
		Default: throttle.PerMinute(3), OnError: func(_ string, err error) { told = err },
	}
	d := ask(t, s, "ann")
	require.EqualValues(t, 3, d.Limit)
	require.True(t, d.Degraded)
	require.ErrorContains(t, told, "Count is -1")
}

// Switching neither refills nor empties.
func TestSource_changedLimitKeepsWhatWasUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &accounts{}
		db.set("ann", 5)
		s := &rules.Source{Lookup: db.lookup}
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

func TestSource_anotherTakesOverFromWhoGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &accounts{takes: 100 * time.Millisecond}
		db.set("ann", 5)
		s := &rules.Source{Lookup: db.lookup, OnError: func(string, error) { t.Error("nothing failed") }}
		hasty, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, errors.New("hasty"))
		defer cancel()
		gaveUp := make(chan error, 1)
		go func() {
			_, err := s.Reserve(hasty, throttle.Claim{Key: "ann"})
			gaveUp <- err
		}()
		synctest.Wait()
		require.True(t, ask(t, s, "ann").OK)
		require.EqualError(t, <-gaveUp, "hasty")
		require.Equal(t, 2, db.times())

		db.set("bob", 5)
		go ask(t, s, "bob")
		synctest.Wait()
		waiting, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, errors.New("no time"))
		defer cancel()
		_, err := s.Reserve(waiting, throttle.Claim{Key: "bob"})
		require.EqualError(t, err, "no time")
		time.Sleep(time.Second)
	})
}

func TestSource_lookupEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &accounts{takes: time.Hour}
		s := &rules.Source{Lookup: db.lookup, Default: throttle.PerMinute(3), Timeout: 2 * time.Second}
		began := time.Now()
		require.True(t, ask(t, s, "ann").Degraded)
		require.Equal(t, 2*time.Second, time.Since(began))
	})
}

func TestSource_looksUpFewAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := &accounts{takes: 100 * time.Millisecond}
		s := &rules.Source{Lookup: db.lookup, Default: throttle.PerMinute(3), MaxLookups: 4}
		var wg sync.WaitGroup
		var mu sync.Mutex
		degraded := 0
		for i := range 100 {
			db.set(strconv.Itoa(i), 10)
			wg.Go(func() {
				if ask(t, s, strconv.Itoa(i)).Degraded {
					mu.Lock()
					degraded++
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		require.Equal(t, 4, db.most)
		require.Equal(t, 96, degraded)
		db.takes = 0
		for i := range 100 {
			d := ask(t, s, strconv.Itoa(i))
			require.False(t, d.Degraded)
			require.LessOrEqual(t, d.Remaining, int64(8), "what was used before the limit was known counts")
		}
	})
}

func TestSource_remembersFewKeys(t *testing.T) {
	db := &accounts{}
	s := &rules.Source{Lookup: db.lookup, Default: throttle.PerMinute(3), MaxKeys: 10}
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

// What was learned at one instant is not asked for at one instant again.
func TestSource_spreadsExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, x := &accounts{}, 0.
		s := &rules.Source{Lookup: db.lookup, Default: throttle.PerSecond(3), KeepMissing: 100 * time.Second,
			Rand: func() float64 { x += .01; return x - .01 }}
		for i := range 100 {
			ask(t, s, strconv.Itoa(i))
		}
		time.Sleep(80 * time.Second)
		var perSecond []int
		for range 20 {
			was := db.times()
			for i := range 100 {
				ask(t, s, strconv.Itoa(i))
			}
			perSecond = append(perSecond, db.times()-was)
			time.Sleep(time.Second)
		}
		require.LessOrEqual(t, slices.Max(perSecond), 6, perSecond)
	})
}

func TestSource_survivesWhatPanics(t *testing.T) {
	calls := 0
	s := &rules.Source{MaxLookups: 1, Lookup: func(context.Context, string) (throttle.Limit, error) {
		if calls++; calls == 1 {
			panic("driver")
		}
		return throttle.PerMinute(3), nil
	}}
	require.PanicsWithValue(t, "driver", func() { ask(t, s, "ann") })
	require.True(t, ask(t, s, "ann").OK)
}

// One claim with a reading of next year does not keep a limit for a year.
func TestSource_wrongReadingDoesNotLast(t *testing.T) {
	now := time.Now()
	db := &accounts{}
	db.set("ann", 5)
	s := &rules.Source{Lookup: db.lookup}
	_, err := s.Reserve(t.Context(), throttle.Claim{Key: "ann", Now: now.AddDate(1, 0, 0), DryRun: true})
	require.NoError(t, err)
	_, err = s.Reserve(t.Context(), throttle.Claim{Key: "ann", Now: now})
	require.NoError(t, err)
	require.Equal(t, 2, db.times())
}

func TestSource_isSafeForManyAtOnce(t *testing.T) {
	db := &accounts{}
	for i := range 20 {
		db.set(strconv.Itoa(i), int64(i))
	}
	s := &rules.Source{Lookup: db.lookup, Default: throttle.PerMinute(3), MaxKeys: 8, MaxLookups: 2}
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 500 {
				c := throttle.Claim{Key: strconv.Itoa((i*7 + g) % 24)}
				d, err := s.Reserve(t.Context(), c)
				if err != nil {
					t.Error(err)
				}
				if i%3 == 0 {
					s.Cancel(t.Context(), c, d)
				} else {
					s.Observe(t.Context(), c, d, throttle.Feedback{Cost: 2})
				}
				if i%50 == 0 {
					s.Refresh()
				}
			}
		})
	}
	wg.Wait()
	require.LessOrEqual(t, s.Len(), 8)
}

func TestSource_doesNotAllocate(t *testing.T) {
	db := &accounts{}
	db.set("ann", 1)
	db.set("vip", 0)
	s := &rules.Source{Lookup: db.lookup, Keep: time.Hour}
	for _, key := range []string{"ann", "vip"} {
		c := throttle.Claim{Key: key}
		n := testing.AllocsPerRun(200, func() {
			d, _ := s.Reserve(t.Context(), c)
			s.Cancel(t.Context(), c, d)
		})
		require.Zero(t, n, key)
	}
}
