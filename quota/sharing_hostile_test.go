package quota

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota/headers"
	"github.com/heed-go/heed/quota/internal/peers"
	"github.com/heed-go/heed/quota/internal/statedlimit"
	"github.com/heed-go/heed/throttle"
)

// Updates do not reveal which paths their hashes are of, also if the path of one is known. FNV-1a with a secret
// initial value, which they were, can be inverted from the hash of a known path to that value.
func TestSharing_aKnownRouteDoesNotRevealOthers(t *testing.T) {
	_, q, _ := sharedQuota(t, .5)
	hash := func(path string) uint64 { return q.endpoint.route(request(t, "https://api.test"+path)) }
	const prime, inverse = 1099511628211, 0xce965057aff6957b // modulo 2^64
	known, victim := hash("/healthz"), hash("/internal/payroll")
	for _, top := range []uint64{0, 1 << 63} { // the bit of named routes is cleared
		basis := known | top
		for i := len("r/healthz") - 1; i >= 0; i-- {
			basis = basis*inverse ^ uint64("r/healthz"[i])
		}
		for _, c := range []byte("r/internal/payroll") {
			basis = (basis ^ uint64(c)) * prime
		}
		require.NotEqual(t, victim, basis&^(1<<63))
	}
	require.Equal(t, victim, hash("/internal/payroll"), "all processes compute the same")
}

// Lost, repeated and late messages cause rejected requests and delays, but no failed calls.
func TestSharing_toleratesLossAndRepetition(t *testing.T) {
	for name, copies := range map[string]func(message) int{
		"all lost":    func(message) int { return 0 },
		"half lost":   func() func(message) int { r := random(1); return func(message) int { return r.IntN(2) } }(),
		"twice":       func(message) int { return 2 },
		"up to three": func() func(message) int { r := random(2); return func(message) int { return r.IntN(4) } }(),
	} {
		for _, delay := range []time.Duration{time.Millisecond, 700 * time.Millisecond} {
			synctest.Test(t, func(t *testing.T) {
				var log []arrival
				b := &bus{delay: delay, copies: copies}
				jobs := playAll(t, trackers(b, 10, 0), watch(alignedWindow(50, 2*time.Second, true, true), &log), 50, 10, 20*time.Millisecond)
				for _, j := range jobs {
					require.LessOrEqual(t, j.failed, 10, name)
					require.Less(t, j.elapsed, 80*time.Second, "%s: 20 s would be ideal", name)
				}
				t.Logf("%s, %v late: %d sent, of 500", name, delay, len(log))
				time.Sleep(10 * time.Second)
			})
		}
	}
}

func TestSharing_ignoresForgedMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bus{}
		_, other := two(t, b)
		id := other.endpointOf(request(t, users)).id
		b.copies = func(message) int { return 0 }
		b.publish(t, other, Update{Kind: UpdateHold, Sender: 1, Wait: time.Hour})
		valid := b.published[len(b.published)-1].Content
		for name, text := range map[string]string{
			"half":    valid[:len(valid)/2],
			"no code": valid[:strings.LastIndexByte(valid, '.')],
			"changed": strings.Replace(valid, "36", "37", 1),
			"long":    strings.Repeat("x", 5000),
			"nothing": ".",
		} {
			b.deliver(message{Account: id, Content: text})
			require.True(t, claim(t, other, users).OK, name)
		}
		b.deliver(message{Account: "another", Content: valid})
		require.True(t, claim(t, other, users).OK)
		b.deliver(message{Account: id, Content: valid})
		require.False(t, claim(t, other, users).OK)
	})
}

// Without a secret the hash of a weak credential could be guessed.
func TestSharing_withoutSecretDoesNotShareCredentials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bus{delay: time.Millisecond}
		all := trackers(b, 2, 0)
		for _, tr := range all {
			tr.Exchange = newExchange(b, nil, nil)
			tr.Demand(request(t, users, "Authorization", "one"))
			tr.Demand(request(t, users, "X-Api-Key", "one"))
		}
		require.Empty(t, b.published)
		for _, tr := range all {
			tr.Demand(request(t, users))
		}
		settle(b)
		reject(t, all[0], users, "Retry-After", "60")
		settle(b)
		require.False(t, claim(t, all[1], users).OK, "accounts without credentials are shared")
		for _, m := range b.published {
			require.NotContains(t, m.Account+m.Quota+m.Content, "api.test")
		}
	})
}

func TestSharing_memoryIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := trackers(silentBus{}, 1, 0)[0]
		tr.MaxAccounts = 64
		ep := tr.endpointOf(request(t, users))
		for i := range 2000 {
			for _, account := range []string{ep.id, fmt.Sprint("unknown", i%500)} {
				tr.sharing.receive(Update{Kind: UpdateHold, Sender: uint64(i + 1), Account: account, Route: uint64(i + 1), Wait: time.Hour, Limits: []throttle.RemoteLimit{{Name: fmt.Sprint(i), Limit: 9, ResetAfter: time.Hour}}})
			}
			tr.Demand(request(t, fmt.Sprintf("https://host%d.test/", i)))
		}
		require.LessOrEqual(t, len(tr.sharing.endpoints), 64)
		require.LessOrEqual(t, len(ep.quotas), maxQuotas)
		for _, q := range ep.quotas {
			require.LessOrEqual(t, len(q.Estimates), statedlimit.MaxEstimates)
			require.LessOrEqual(t, q.shared.peers.Len(), peers.Max)
		}
	})
}

// A busy process publishes about one message a second and quota.
func TestSharing_publishesLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bus{delay: time.Millisecond}
		tr := trackers(b, 1, 0)[0]
		j := play(t, tr, alignedWindow(5000, time.Hour, true, true), 5000, 50, 20*time.Millisecond)
		t.Logf("%d count in %v", len(b.published), j.elapsed)
		require.Less(t, len(b.published), 100+int(j.elapsed/time.Second))
		time.Sleep(time.Second)
	})
}

// FuzzSharing_apply is a process that knows the secret and has errors, or an Exchange that has.
func FuzzSharing_apply(f *testing.F) {
	for kind := range byte(8) {
		f.Add(kind, int64(time.Minute), true, "a", int64(1)<<53, int64(1), int64(time.Second), int64(time.Hour), int64(0), uint8(3))
		f.Add(kind, int64(math.MaxInt64), false, "", int64(-1), int64(math.MinInt64), int64(-1), int64(math.MaxInt64), int64(math.MaxInt64), uint8(0))
		f.Add(kind, int64(math.MinInt64), false, "", int64(math.MaxInt64), int64(math.MaxInt64), int64(math.MaxInt64), int64(1), int64(math.MinInt64), uint8(2))
	}
	f.Fuzz(func(t *testing.T, kind byte, wait int64, stated bool, name string, limit, left, per, reset, age int64, asked uint8) {
		now := time.Unix(1_700_000_000, 0)
		tr := &Tracker{Exchange: newExchange(silentBus{}, nil, nil), Clock: stopped(now), Rand: func() float64 { return 0.999 }}
		req := request(t, users)
		ep := tr.endpointOf(req)
		ep.endFetch()
		for range asked % 4 {
			tr.Demand(req).Limiter.Reserve(t.Context(), throttle.Claim{Now: now})
		}
		tr.sharing.receive(Update{
			Kind: UpdateKind(kind), Sender: 1, Account: ep.id, Route: ep.route(req), Wait: time.Duration(wait), Stated: stated, Age: time.Duration(age),
			Limits: []throttle.RemoteLimit{{Name: name, Limit: limit, Remaining: left, Per: time.Duration(per), ResetAfter: time.Duration(reset)}},
		})
		d, err := tr.Demand(req).Limiter.Reserve(t.Context(), throttle.Claim{Now: now})
		require.NoError(t, err)
		require.LessOrEqual(t, d.Wait, headers.MaxDelay+time.Minute)
		require.GreaterOrEqual(t, d.Wait, time.Duration(0))
	})
}

// A stopped clock always returns the same time.
type stopped time.Time

func (s stopped) Now() time.Time                       { return time.Time(s) }
func (s stopped) After(time.Duration) <-chan time.Time { return nil }
