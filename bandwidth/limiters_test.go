package bandwidth_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/bandwidth"
	"github.com/heed-go/heed/throttle"
)

// A probe is a Limiter that records claims and returns what decide returns.
type probe struct {
	decide   func(c throttle.Claim) (throttle.Decision, error)
	blocking bool

	mu       sync.Mutex
	claims   []throttle.Claim
	used     int64 // units of claims that have ended, as they were reported
	open     int   // claims that have not ended
	canceled int
}

func (p *probe) Reserve(_ context.Context, c throttle.Claim) (throttle.Decision, error) {
	d, err := p.decide(c)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.claims = append(p.claims, c)
	if err == nil && d.OK && !c.DryRun {
		p.open++
	}
	return d, err
}

func (p *probe) Report(_ context.Context, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	if f.State == throttle.Unused {
		p.mu.Lock()
		defer p.mu.Unlock()
		if d.OK {
			p.open--
			p.canceled++
		}
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if d.OK && f.State != throttle.Ongoing {
		p.open--
		p.used += c.Cost + f.ExtraCost(c, d)
	}
}

// Traits implements throttle.Limiter.
func (p *probe) Traits() throttle.Traits {
	return throttle.Traits{NonBlocking: !p.blocking, EndsAtResponse: true}
}

// result returns the number of units that were used, and of claims that have not ended.
func (p *probe) result() (used int64, open int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.used, p.open
}

func grantAll(throttle.Claim) (throttle.Decision, error) { return throttle.Decision{OK: true}, nil }

// grantUpTo returns a function that grants claims of up to n units, and rejects all others
// for good. If states is false, its decisions do not state n.
func grantUpTo(n int64, states bool) func(throttle.Claim) (throttle.Decision, error) {
	return func(c throttle.Claim) (throttle.Decision, error) {
		d := throttle.Decision{OK: c.Cost <= n}
		if !d.OK {
			d.Wait = throttle.Forever
		}
		if states {
			d.Limit = n
		}
		return d, nil
	}
}

// TestStream_costsFitTheLimiter checks that bodies pass limiters that grant few bytes at one
// time.
func TestStream_costsFitTheLimiter(t *testing.T) {
	for name, tt := range map[string]struct {
		limiter throttle.Limiter
		most    int64 // of a claim that is granted
	}{
		"states its burst":                {&probe{decide: grantUpTo(100, true)}, 50},
		"states nothing":                  {&probe{decide: grantUpTo(100, false)}, 100},
		"one byte":                        {&probe{decide: grantUpTo(1, true)}, 1},
		"one byte, states nothing":        {&probe{decide: grantUpTo(1, false)}, 1},
		"may block":                       {&probe{decide: grantUpTo(100, true), blocking: true}, 50},
		"may block and states nothing":    {&probe{decide: grantUpTo(3, false), blocking: true}, 3},
		"grants everything, no statement": {&probe{decide: grantAll}, 1 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				body := download(t, tt.limiter, zerosOf(10_000))
				n, err := io.Copy(io.Discard, body)
				require.NoError(t, err)
				require.EqualValues(t, 10_000, n)
				p := tt.limiter.(*probe)
				used, open := p.result()
				require.EqualValues(t, 10_000, used)
				require.Zero(t, open, "every claim has ended")
				for _, c := range p.claims {
					if d, _ := p.decide(c); d.OK {
						require.LessOrEqual(t, c.Cost, tt.most)
					}
				}
				require.LessOrEqual(t, len(p.claims), 10_000/int(max(tt.most/4, 1))+40, "few rejections")
			})
		})
	}
}

func TestStream_failsIfNotEvenOneByteIsGranted(t *testing.T) {
	for name, l := range map[string]throttle.Limiter{
		"deny all": throttle.DenyAll, "states nothing": &probe{decide: grantUpTo(0, false)},
		"states a burst that it does not grant": &probe{decide: func(throttle.Claim) (throttle.Decision, error) {
			return throttle.Decision{Wait: throttle.Forever, Limit: 1 << 30}, nil
		}},
		"may block": &probe{decide: grantUpTo(0, true), blocking: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				n, err := download(t, l, zeros{}).Read(make([]byte, 10_000))
				require.Zero(t, n)
				require.ErrorIs(t, err, bandwidth.ErrNeverGranted)
				require.ErrorIs(t, err, throttle.ErrRejected)
				require.Zero(t, time.Since(begin))
			})
		})
	}
}

func TestStream_fails(t *testing.T) {
	errDown := errors.New("store is down")
	for name, p := range map[string]*probe{
		"directly":  {decide: func(throttle.Claim) (throttle.Decision, error) { return throttle.Decision{}, errDown }},
		"may block": {decide: func(throttle.Claim) (throttle.Decision, error) { return throttle.Decision{}, errDown }, blocking: true},
	} {
		t.Run(name, func(t *testing.T) {
			n, err := download(t, p, zeros{}).Read(make([]byte, 100))
			require.Zero(t, n)
			require.Equal(t, errDown, err)
		})
	}
}

// TestStream_followsAChangedLimit checks that a stream continues when the burst of its limiter
// becomes smaller than its chunks.
func TestStream_followsAChangedLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := newBucket(tenMB)
		body, buf := download(t, limit, zeros{}), make([]byte, 64<<10)
		for range 100 {
			_, err := body.Read(buf)
			require.NoError(t, err)
		}
		require.NoError(t, limit.SetLimit(throttle.PerSecond(1000).WithBurst(10)))
		begin, got := time.Now(), 0
		for time.Since(begin) < time.Minute {
			n, err := body.Read(buf)
			require.NoError(t, err)
			got += n
		}
		require.InEpsilon(t, 60*1000, got, 0.01+float64(len(buf))/60_000)
		require.NoError(t, limit.SetLimit(bandwidth.PerSecond(tenMB)))
		begin, got = time.Now(), 0
		for time.Since(begin) < 2*time.Second {
			n, err := body.Read(buf)
			require.NoError(t, err)
			got += n
		}
		require.InEpsilon(t, 2*tenMB, got, 0.1)
	})
}

// A failingWriter writes up to n bytes.
type failingWriter struct {
	http.ResponseWriter
	n int
}

func (w *failingWriter) Write(p []byte) (int, error) {
	n := min(len(p), w.n)
	if w.n -= n; n < len(p) {
		return n, io.ErrClosedPipe
	}
	return n, nil
}

// TestStream_returnsUnusedUnits checks that a write that fails takes no more units than it has
// written bytes.
func TestStream_returnsUnusedUnits(t *testing.T) {
	for _, n := range []int{0, 1, 1000, 300_000} {
		p := &probe{decide: grantAll}
		m := &bandwidth.Middleware{Download: p}
		w := &failingWriter{n: n}
		m.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			written, err := w.Write(make([]byte, 1<<20))
			require.Equal(t, n, written)
			require.Equal(t, io.ErrClosedPipe, err)
		})).ServeHTTP(w, newRequest(http.MethodGet))
		used, open := p.result()
		require.EqualValues(t, n, used)
		require.Zero(t, open)
	}
}

// grantEvery returns a function that grants one claim per interval, of any cost.
func grantEvery(interval time.Duration) func(throttle.Claim) (throttle.Decision, error) {
	var next time.Time
	return func(c throttle.Claim) (throttle.Decision, error) {
		d := throttle.Decision{At: c.Now, Limit: tenMB, Per: time.Second}
		if d.OK = !c.Now.Before(next); !d.OK {
			d.Wait = next.Sub(c.Now)
		} else if !c.DryRun {
			next = c.Now.Add(interval)
		}
		return d, nil
	}
}

// TestStream_returnsUnitsAtItsEnd checks that a stream that has claimed in advance returns
// what it has not used, when it is closed and when it was idle.
func TestStream_returnsUnitsAtItsEnd(t *testing.T) {
	for name, end := range map[string]func(io.ReadCloser) (more int64){
		"closed": func(b io.ReadCloser) int64 {
			b.Close()
			return 0
		},
		"idle": func(b io.ReadCloser) int64 {
			time.Sleep(time.Second)
			n, _ := b.Read(make([]byte, 1))
			return int64(n)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &probe{decide: grantEvery(time.Millisecond)}
				body := download(t, p, zeros{})
				for range 5 {
					_, err := io.ReadFull(body, make([]byte, 100))
					require.NoError(t, err)
				}
				require.EqualValues(t, 400, p.claims[len(p.claims)-1].Cost, "in advance")
				more := end(body)
				used, open := p.result()
				require.Equal(t, 500+more, used)
				require.Zero(t, open)
			})
		})
	}
}

// TestMiddleware_returnsUnitsWhenTheHandlerReturns checks that a request and a response whose
// streams have claimed in advance return what they have not used.
func TestMiddleware_returnsUnitsWhenTheHandlerReturns(t *testing.T) {
	for name, handle := range map[string]func(http.ResponseWriter, *http.Request){
		"reads": func(_ http.ResponseWriter, r *http.Request) {
			_, err := io.ReadFull(r.Body, make([]byte, 100))
			require.NoError(t, err)
		},
		"writes": func(w http.ResponseWriter, _ *http.Request) {
			_, err := w.Write(make([]byte, 100))
			require.NoError(t, err)
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := &probe{decide: grantEvery(time.Millisecond)}
			m := &bandwidth.Middleware{Upload: p, Download: p}
			r := newRequest(http.MethodPost)
			r.Body = io.NopCloser(zeros{})
			m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				for range 5 {
					handle(w, r)
				}
				require.EqualValues(t, 400, p.claims[len(p.claims)-1].Cost, "%s: in advance", name)
			})).ServeHTTP(discarder{}, r)
			used, open := p.result()
			require.EqualValues(t, 500, used, name)
			require.Zero(t, open, name)
		})
	}
}

// TestMiddleware_writeEndsWhenTheHandlerReturns checks a Write that a handler has left behind.
func TestMiddleware_writeEndsWhenTheHandlerReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left := make(chan error, 1)
		(&bandwidth.Middleware{Download: newBucket(100)}).Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			go func() {
				_, err := w.Write(make([]byte, 10_000))
				left <- err
			}()
			time.Sleep(time.Second)
		})).ServeHTTP(discarder{}, newRequest(http.MethodGet))
		begin := time.Now()
		require.ErrorContains(t, <-left, "bandwidth: the handler has returned")
		require.Zero(t, time.Since(begin))
	})
}

// TestStream_firstClaimOfARemoteLimiter checks that a limiter that may block is not asked before
// the first claim, which is of at most 4 KiB.
func TestStream_firstClaimOfARemoteLimiter(t *testing.T) {
	p := &probe{decide: grantUpTo(1<<20, true), blocking: true}
	_, err := io.ReadFull(download(t, p, zeros{}), make([]byte, 100_000))
	require.NoError(t, err)
	require.False(t, p.claims[0].DryRun)
	require.EqualValues(t, 4<<10, p.claims[0].Cost)
	require.Greater(t, p.claims[1].Cost, int64(4<<10), "the decision states more")
}
