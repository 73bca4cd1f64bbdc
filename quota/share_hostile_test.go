package quota

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// Lost, repeated and late messages cost refusals, never more than that.
func TestShare_bearsWhatHappensToMessages(t *testing.T) {
	for name, copies := range map[string]func(Update) int{
		"all lost":    func(Update) int { return 0 },
		"half lost":   func() func(Update) int { r := random(1); return func(Update) int { return r.IntN(2) } }(),
		"twice":       func(Update) int { return 2 },
		"up to three": func() func(Update) int { r := random(2); return func(Update) int { return r.IntN(4) } }(),
	} {
		for _, delay := range []time.Duration{time.Millisecond, 700 * time.Millisecond} {
			synctest.Test(t, func(t *testing.T) {
				var log []arrival
				b := &bus{delay: delay, copies: copies}
				jobs := sail(t, trackers(b, 10, 0), watch(alignedWindow(50, 2*time.Second, true, true), &log), 50, 10, 20*time.Millisecond)
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

func TestShare_ignoresWhatIsNotMadeWithTheSecret(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bus{delay: time.Millisecond}
		_, other := two(t, b)
		site := other.siteOf(request(t, users))
		n := news{From: 1, Seq: 1, At: time.Now().UnixMicro(), Route: site.route(request(t, users)), Say: sayShut, Wait: inMicros(time.Hour)}
		good := n.encode(other.Secret, site.id)
		for name, text := range map[string]string{
			"another secret":  n.encode([]byte("another"), site.id),
			"none":            n.encode(nil, site.id),
			"another account": n.encode(other.Secret, "another"),
			"half":            good[:len(good)/2],
			"no code":         good[:strings.LastIndexByte(good, '.')],
			"changed":         strings.Replace(good, "36", "37", 1),
			"long":            strings.Repeat("x", maxNews+1),
			"nothing":         ".",
		} {
			other.convoy.hear(Update{Account: site.id, News: text})
			require.True(t, claim(t, other, users).OK, name)
		}
		other.convoy.hear(Update{Account: site.id, News: good})
		require.False(t, claim(t, other, users).OK)
	})
}

func TestShare_ignoresNumbersOutOfBounds(t *testing.T) {
	for _, body := range []string{
		`{"say":"shut","wait":-1}`,
		`{"say":"shut","wait":1e18}`,
		`{"say":"shut","wait":9223372036854775807}`,
		`{"say":"left","left":[{"limit":-1,"left":0,"reset":1}]}`,
		`{"say":"left","left":[{"limit":1,"left":9223372036854775807,"reset":1}]}`,
		`{"say":"left","left":[{"limit":1,"left":1,"reset":-1}]}`,
		`{"say":"left","left":[{},{},{},{},{},{},{},{},{}]}`,
		`{"say":"what"}`, `{}`, `[]`, `null`, ``,
	} {
		_, ok := decodeNews(nil, "a", body+"."+newsCode(nil, "a", []byte(body)))
		require.False(t, ok, body)
	}
}

// Without a secret the hash of a weak credential could be guessed.
func TestShare_withoutSecretKeepsCredentialsAtHome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bus{delay: time.Millisecond}
		all := trackers(b, 2, 0)
		for _, tr := range all {
			tr.Secret = nil
			tr.Demand(request(t, users, "Authorization", "one"))
			tr.Demand(request(t, users, "X-Api-Key", "one"))
		}
		require.Empty(t, b.posted)
		for _, tr := range all {
			tr.Demand(request(t, users))
		}
		settle(b)
		refuse(t, all[0], users, "Retry-After", "60")
		settle(b)
		require.False(t, claim(t, all[1], users).OK, "who has no credential shares")
		for _, m := range b.posted {
			require.NotContains(t, m.Account+m.Bucket+m.News, "api.test")
		}
	})
}

func TestShare_memoryIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := trackers(deaf{}, 1, 0)[0]
		tr.MaxAccounts = 64
		s := tr.siteOf(request(t, users))
		for i := range 2000 {
			n := news{From: uint64(i + 1), Seq: 1, At: time.Now().UnixMicro(), Route: uint64(i + 1), Say: sayShut, Wait: inMicros(time.Hour), Left: []stock{{Name: fmt.Sprint(i), Limit: 9, Reset: inMicros(time.Hour)}}}
			for _, account := range []string{s.id, fmt.Sprint("unknown", i%500)} {
				tr.convoy.hear(Update{Account: account, News: n.encode(tr.Secret, account)})
			}
			tr.Demand(request(t, fmt.Sprintf("https://host%d.test/", i)))
		}
		require.LessOrEqual(t, len(tr.convoy.sites), 64)
		require.LessOrEqual(t, len(tr.convoy.early), maxEarly)
		require.LessOrEqual(t, len(tr.convoy.guard.senders), maxSenders)
		require.LessOrEqual(t, len(tr.convoy.guard.recalling), maxRecalling)
		for _, kept := range tr.convoy.early {
			require.LessOrEqual(t, len(kept), maxEarlyEach)
		}
		require.LessOrEqual(t, len(s.pools), maxPools)
		for _, b := range s.pools {
			require.LessOrEqual(t, len(b.told), maxTold)
			require.LessOrEqual(t, len(b.joint.crew.others), maxCrew)
		}
	})
}

// How many messages a busy process may post.
func TestShare_postsAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bus{delay: time.Millisecond}
		tr := trackers(b, 1, 0)[0]
		j := play(t, tr, alignedWindow(5000, time.Hour, true, true), 5000, 50, 20*time.Millisecond)
		t.Logf("%d posts in %v", len(b.posted), j.elapsed)
		require.Less(t, len(b.posted), 100+int(j.elapsed/time.Second))
		time.Sleep(time.Second)
	})
}

// FuzzShare_hear plays a process that knows the secret and is broken.
func FuzzShare_hear(f *testing.F) {
	for _, seed := range []string{
		`{"from":1,"seq":1,"at":1700000000000000,"route":1,"say":"shut","wait":60000000,"told":true}`,
		`{"from":1,"seq":1,"at":1700000000000000,"route":1,"say":"open","wait":31622400000000}`,
		`{"from":1,"seq":1,"at":1700000000000000,"route":1,"say":"probe"}`, `{"from":1,"seq":1,"at":1700000000000000,"say":"here"}`,
		`{"from":1,"seq":1,"at":1700000000000000,"route":1,"say":"left","left":[{"name":"a","limit":9007199254740992,"left":1,"per":1,"reset":31622400000000}]}`,
	} {
		f.Add(seed, int64(0), uint8(3))
		f.Add(seed, int64(math.MaxInt64), uint8(0))
	}
	f.Fuzz(func(t *testing.T, body string, age int64, asked uint8) {
		now := time.Unix(1_700_000_000, 0)
		tr := &Tracker{Exchange: deaf{}, Clock: stopped(now), Rand: func() float64 { return 0.999 }}
		req := request(t, users)
		s := tr.siteOf(req)
		s.endRecall()
		body = strings.ReplaceAll(body, `"route":1`, fmt.Sprintf(`"route":%d`, s.route(req)))
		for range asked % 4 {
			tr.Demand(req).Limiter.Reserve(t.Context(), throttle.Claim{Now: now})
		}
		tr.convoy.hear(Update{Account: s.id, News: body + "." + newsCode(nil, s.id, []byte(body)), Age: time.Duration(age)})
		d, err := tr.Demand(req).Limiter.Reserve(t.Context(), throttle.Claim{Now: now})
		require.NoError(t, err)
		require.LessOrEqual(t, d.Wait, maxDelay+time.Minute)
		require.GreaterOrEqual(t, d.Wait, time.Duration(0))
	})
}

// stopped is a clock that stands.
type stopped time.Time

func (s stopped) Now() time.Time                       { return time.Time(s) }
func (s stopped) After(time.Duration) <-chan time.Time { return nil }
