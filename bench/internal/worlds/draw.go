package worlds

import (
	"cmp"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"
)

// New returns the world of a seed.
//
// Two thirds of the worlds have no limit. The latency, the load and its deadlines are drawn
// first. What can go wrong depends on them: intervals are parts of the duration, and
// limits are drawn by the number of calls that they reject.
func New(seed uint64) *World {
	d := draw{rand.New(rand.NewPCG(seed, 24))}
	w := &World{Seed: seed}
	w.LateDate, w.LateState = w.uniform(forHeaders, 0, 0) < .5, w.uniform(forHeaders, 1, 0) < .5
	w.Unnoticed = d.chance(.5)
	if d.chance(.08) {
		w.Skew = time.Duration(one(d, -1.0, 1) * d.log(float64(time.Second), float64(2*time.Minute)))
	}
	w.Start = time.Duration(d.Int64N(int64(7 * 24 * time.Hour)))
	w.Lateness = time.Duration(d.Int64N(int64(2 * time.Millisecond)))
	w.Latency = d.latency()
	limited := d.chance(1.0 / 3)
	w.Load = d.load(w.Latency.Median)
	if limited {
		w.Limit = d.limit(&w.Load, w.Latency.Median)
	}
	d.capacity(&w.Latency, w.Load, limited)
	d.slowness(&w.Latency, w.Load)
	w.Troubles = d.troubles(w.Load, limited)
	if !limited && d.chance(.25) {
		w.Stated = d.statement(w.Load)
	}
	w.calls = d.calls(w)
	return w
}

// Of returns the world that w describes, with calls that its Load and Seed determine. Zero
// fields mean one route, tenant and backend, a limit per host that rejects with 429, and
// troubles with the latency of other responses. An open load without Regular has random times.
func Of(w World) *World {
	w.Load.Routes, w.Load.Tenants = max(w.Load.Routes, 1), max(w.Load.Tenants, 1)
	w.Latency.Kind = cmp.Or(w.Latency.Kind, Constant)
	w.Troubles = slices.Clone(w.Troubles)
	for i := range w.Troubles {
		t := &w.Troubles[i]
		t.By, t.Slow = cmp.Or(t.By, ByRequest), cmp.Or(t.Slow, 1)
	}
	if w.Limit != nil {
		l := *w.Limit
		l.Scope, l.Backends, l.Status, l.Quick = cmp.Or(l.Scope, PerHost), max(l.Backends, 1), cmp.Or(l.Status, http.StatusTooManyRequests), cmp.Or(l.Quick, 1)
		l.Dialect.Headers, l.Dialect.Rounding = cmp.Or(l.Dialect.Headers, NoHeaders), cmp.Or(l.Dialect.Rounding, Up)
		l.Burst = max(l.Burst, 1)
		w.Limit = &l
	}
	w.calls = draw{rand.New(rand.NewPCG(w.Seed, 25))}.calls(&w)
	return &w
}

// A draw draws the properties of a world.
type draw struct{ *rand.Rand }

func (d draw) chance(p float64) bool { return d.Float64() < p }

// between returns a number in [low, high).
func (d draw) between(low, high float64) float64 { return low + (high-low)*d.Float64() }

// log returns a number in [low, high) whose logarithm is distributed evenly.
func (d draw) log(low, high float64) float64 {
	return low * math.Exp(d.Float64()*math.Log(high/low))
}

// count returns a whole number from low to high, by log.
func (d draw) count(low, high int) int {
	return min(int(d.log(float64(low), float64(high+1))), high)
}

// duration returns a duration, by log.
func (d draw) duration(low, high time.Duration) time.Duration {
	return time.Duration(d.log(float64(low), float64(high)))
}

// one returns one of values.
func one[T any](d draw, values ...T) T { return values[d.IntN(len(values))] }

// weighted returns a key of the weights, which need not have the sum 1.
func weighted[T cmp.Ordered](d draw, weights map[T]float64) T {
	keys, sum := make([]T, 0, len(weights)), 0.0
	for key, weight := range weights {
		keys, sum = append(keys, key), sum+weight
	}
	slices.Sort(keys)
	x := d.Float64() * sum
	for _, key := range keys {
		if x -= weights[key]; x < 0 {
			return key
		}
	}
	return keys[len(keys)-1]
}

// exponential returns a number of an exponential distribution with mean 1 for a uniform one.
func exponential(u float64) float64 { return -math.Log(1 - u) }

func (d draw) latency() Latency {
	l := Latency{Median: d.duration(time.Millisecond, 30*time.Second)}
	if d.chance(.5) {
		l.Median = d.duration(5*time.Millisecond, 500*time.Millisecond) // usual ones more often
	}
	l.Kind = weighted(d, map[LatencyKind]float64{Constant: 2, Lognormal: 4, Bimodal: 2, HeavyTail: 2})
	switch l.Kind {
	case Lognormal:
		l.Sigma = d.between(.1, 1.2)
	case Bimodal:
		l.Slow, l.Times = d.log(.01, .4), d.log(2, 20)
	case HeavyTail:
		l.Alpha = d.between(1.2, 3)
	}
	return l
}

// capacity makes latency depend on load in some worlds.
func (d draw) capacity(l *Latency, load Load, limited bool) {
	if !d.chance(.15) || limited && !d.chance(.3) {
		return
	}
	usual := load.Rate() * l.Median.Seconds()
	if load.Thinking == 0 && load.Callers > 0 {
		usual = float64(load.Callers)
	}
	l.Capacity = max(int(usual*d.log(.5, 4)), 2)
	if d.chance(.4) {
		l.Failing = one(d, .1, .3, .6)
		l.OverloadStatus = one(d, 503, 503, 500, 429, 0, 502)
	}
}

// slowness makes some routes slow, or all for some time, in some worlds.
func (d draw) slowness(l *Latency, load Load) {
	longest := 300.
	if load.Deadline > 0 {
		longest = .6 * float64(load.Deadline) / float64(l.Median)
	}
	if load.Routes > 1 && longest > 4 && d.chance(.15) {
		l.SlowRoutes, l.SlowTimes = chosen(load.Routes, d.log(.01, .5)), min(d.log(3, longest), max(float64(time.Minute/l.Median), 3))
	}
	if d.chance(.08) {
		l.StallFrom = time.Duration(d.between(0, .8) * float64(load.Duration))
		l.StallTo = l.StallFrom + min(d.duration(200*time.Millisecond, time.Minute), load.Duration/5)
		l.StallTimes = d.log(2, 30)
	}
}

func (d draw) load(median time.Duration) Load {
	l := Load{Calls: d.count(200, 4000)}
	if d.chance(.1) {
		l.Calls = d.count(4000, MaxCalls)
	}
	l.Kind = weighted(d, map[LoadKind]float64{Open: 4, Closed: 3, Bursts: 1, Cron: 1, Cold: 1})
	l.Duration = max(d.duration(time.Minute, 20*time.Minute), 20*median)
	switch l.Kind {
	case Open:
		l.Regular = d.chance(.5)
		// at most 1,000 calls in flight
		l.Calls = min(l.Calls, int(1000*l.Duration/median))
	case Closed:
		d.workers(&l, median)
	case Bursts:
		l.Burst = min(d.count(2, 1000), l.Calls/3)
		l.Interval = max(d.duration(time.Second, 2*time.Minute), time.Duration(float64(median)*d.between(.5, 4)))
		l.Calls = min(l.Calls, l.Burst*int(1+30*time.Minute/l.Interval))
		l.Duration = time.Duration(1+l.Calls/l.Burst) * l.Interval
	case Cron:
		l.Interval = one(d, time.Minute, time.Minute, 5*time.Minute, 15*time.Minute, time.Hour)
		l.Burst = max(l.Calls/(3+d.IntN(10)), 1)
		l.Callers = min(d.count(1, 1000), l.Burst)
		jobs := (l.Calls + l.Burst - 1) / l.Burst
		l.Burst = min(l.Burst, l.Callers*max(int(l.Interval/median), 1)) // a job ends before the next one
		l.Calls = max(l.Burst*jobs, 100)
		l.Duration = time.Duration((l.Calls+l.Burst-1)/l.Burst) * max(l.Interval, median)
	case Cold:
		l.Burst = min(d.count(20, 1000), l.Calls)
	}
	l.Duration = max(l.Duration, 100*time.Millisecond)
	d.names(&l)
	if d.chance(.65) {
		l.Deadline = max(time.Duration(d.log(1.1, 50)*float64(median)), minDeadline)
		l.ClientTimeout = d.chance(.2)
		l.Steady = l.Callers > 0 && d.chance(.5)
	}
	return l
}

// minDeadline is the shortest deadline, because timers are up to 2 ms late.
const minDeadline = 10 * time.Millisecond

// workers draws the workers of a closed load and the time between their calls.
func (d draw) workers(l *Load, median time.Duration) {
	l.Callers = d.count(1, 1000)
	l.Calls = max(min(l.Calls, int(l.Duration/median)*l.Callers), 100)
	l.Callers = min(l.Callers, l.Calls)
	if d.chance(.6) {
		l.Pause = d.duration(10*time.Millisecond, time.Second)
	}
	each := l.Duration * time.Duration(l.Callers) / time.Duration(l.Calls)
	if d.chance(.5) && each > median {
		l.Thinking = each - median
		return
	}
	l.Duration = median * time.Duration(l.Calls) / time.Duration(l.Callers)
}

// names draws routes, resources, tenants and methods.
func (d draw) names(l *Load) {
	l.Routes = 1
	if d.chance(.6) {
		l.Routes = d.count(1, 100)
	}
	if d.chance(.1) {
		l.Routes = d.count(100, 10_000)
	}
	if d.chance(.6) {
		l.Resources = max(min(d.count(1, 2000), 10_000/l.Routes), 1)
	}
	l.Tenants = 1
	if d.chance(.5) {
		l.Tenants = d.count(2, 50)
	}
	l.Carrier = weighted(d, map[Carrier]float64{Authorization: 4, APIKeyHeader: 1, APIKeyQuery: 1, TenantQuery: 1, Cookie: 1, Path: 1})
	if l.Tenants == 1 && d.chance(.4) {
		l.Carrier = ""
	}
	l.Uneven = d.chance(.4)
	if d.chance(.25) {
		l.Posts = d.log(.02, 1)
	}
}

// calls draws the calls of w.
func (d draw) calls(w *World) []call {
	l := w.Load
	calls := make([]call, l.Calls)
	toMinute := time.Minute - w.Start%time.Minute
	for i := range calls {
		c := &calls[i]
		switch l.Kind {
		case Open:
			c.at = time.Duration(float64(l.Duration) * (float64(i) / float64(l.Calls)))
			if !l.Regular {
				c.at = time.Duration(d.Float64() * float64(l.Duration))
			}
		case Bursts:
			c.at = time.Duration(i/l.Burst) * l.Interval
		case Cron:
			c.at = toMinute + time.Duration(i/l.Burst)*l.Interval
		case Cold:
			if i >= l.Burst {
				c.at = time.Duration(d.Float64() * float64(l.Duration))
			}
		}
		c.at += time.Duration(d.Float64() * float64(w.Lateness))
		c.route, c.tenant = d.item(l.Routes, l.Uneven), d.item(l.Tenants, l.Uneven)
		if l.Resources > 0 {
			c.resource = d.item(l.Resources, l.Uneven)
		}
		c.post = d.chance(l.Posts)
	}
	slices.SortFunc(calls, func(a, b call) int { return cmp.Compare(a.at, b.at) })
	return calls
}

// item returns one of n items. If uneven is set, half of the draws are one of an eighth of the items.
func (d draw) item(n int, uneven bool) int32 {
	u := d.Float64()
	if uneven {
		u *= u * u
	}
	return int32(u * float64(n))
}

// troubles draws what fails without a limit.
func (d draw) troubles(l Load, limited bool) (all []Trouble) {
	n := weighted(d, map[int]float64{0: .3, 1: .55, 2: .15})
	if limited {
		n = weighted(d, map[int]float64{0: .65, 1: .35})
	}
	for range n {
		all = append(all, d.trouble(l))
	}
	return all
}

const outage Attribute = "everything" // drawn like an attribute; becomes ByRequest with share 1

func (d draw) trouble(l Load) Trouble {
	t := Trouble{Share: d.log(.001, .6), Slow: 1, Body: d.IntN(100)}
	kinds := map[Attribute]float64{ByRequest: 3, ByBackend: 2.5, outage: 2.5}
	if l.Resources > 1 {
		kinds[ByResource] = 4
	}
	if l.Tenants > 1 {
		kinds[ByTenant] = 4
	}
	if l.Routes > 1 {
		kinds[ByRoute] = 2.5
	}
	t.By = weighted(d, kinds)
	t.Status = weighted(d, map[int]float64{
		http.StatusTooManyRequests: 3, http.StatusServiceUnavailable: 3, http.StatusInternalServerError: 2, http.StatusBadGateway: 1.5,
		http.StatusGatewayTimeout: 1, 529: .3, Reset: 1, GoAway: .5, Refused: .5,
	})
	switch t.By {
	case ByTenant:
		t.Share = chosen(l.Tenants, t.Share)
	case ByRoute:
		t.Share = chosen(l.Routes, t.Share)
	}
	switch t.By {
	case outage:
		t.By, t.Share = ByRequest, 1
		d.interval(&t, l)
	case ByBackend:
		t.Count = max(d.count(2, 50), min(int(1/t.Share), 50))
		t.Share = chosen(t.Count, t.Share)
	case ByResource, ByTenant, ByRoute:
		if d.chance(.3) {
			t.Status, t.Permission = one(d, http.StatusForbidden, http.StatusForbidden, http.StatusNotFound), true
			return t
		}
	}
	if t.By != ByRequest && d.chance(.4) {
		t.Status = http.StatusTooManyRequests
	}
	if t.Share < 1 && d.chance(.4) {
		d.interval(&t, l)
	}
	d.response(&t)
	return t
}

// chosen returns the part of count items that among chooses for a share.
func chosen(count int, share float64) float64 {
	return float64(chosenOf(count, share)) / float64(count)
}

// interval limits t to an interval, which may recur.
func (d draw) interval(t *Trouble, l Load) {
	length := min(d.duration(500*time.Millisecond, 5*time.Minute), l.Duration/3)
	t.From = time.Duration(d.between(0, .6) * float64(l.Duration))
	t.To = t.From + max(length, time.Millisecond)
	if d.chance(.2) {
		t.Period = time.Duration(float64(length) * d.log(2, 10))
	}
}

// response draws the Retry-After header and the latency of t.
func (d draw) response(t *Trouble) {
	rejection := t.Status == http.StatusTooManyRequests || t.Status == http.StatusServiceUnavailable
	switch {
	case rejection && d.chance(.6):
		t.Retry = weighted(d, map[RetryAfter]float64{AfterSeconds: 6, AfterDate: 1.5, AfterPast: .3, AfterText: .3})
		if t.To > 0 && d.chance(.4) {
			t.Retry = AfterEnd
		}
	case t.Status >= 500 && d.chance(.05):
		t.Retry = AfterSeconds
	}
	t.Seconds = one(d, 0, 1, 1, 1, 2, 3, 5, 5, 10, 10, 30, 30, 60, 60, 120, 3600)
	switch {
	case t.Status == http.StatusGatewayTimeout:
		t.Slow = d.log(1, 10)
	case d.chance(.4):
		t.Slow = d.log(.05, 1)
	}
}

func (d draw) dialect() Dialect {
	v := Dialect{Rounding: one(d, Up, Up, Down, Nearest)}
	v.Headers = weighted(d, map[HeaderKind]float64{XRateLimit: 4, Draft6: 1.5, Draft7: 1, Draft8: 1, XRateLimitLow: .7})
	v.Reset = Seconds
	if v.Headers == XRateLimit {
		v.Reset = weighted(d, map[ResetKind]float64{Seconds: 3, UnixSeconds: 4, UnixMillis: .5, DateOfReset: .5, ResetMissing: 1})
	}
	if v.Headers == XRateLimitLow {
		v.Reset = ResetMissing
	}
	v.OnlyLow = d.chance(.05)
	return v
}

func (d draw) statement(l Load) *Statement {
	s := &Statement{Dialect: d.dialect()}
	s.Dialect.OnlyLow = false
	s.Kind = one(d, Distant, ConstantValue, ConstantValue, Cached, OtherClients, SomeOthers, WrongScope, Vanishing, Daily, CountedDown)
	s.Window = one(d, time.Second, 10*time.Second, time.Minute, time.Minute, 15*time.Minute, time.Hour, 24*time.Hour)
	inWindow := max(l.Rate()*min(s.Window, l.Duration).Seconds(), 1)
	s.Count = max(int(inWindow*d.log(.05, 2)), 1)
	s.Remaining = s.Count
	switch s.Kind {
	case Distant:
		s.Count = int(inWindow*d.log(5, 100)) + 100
		s.Remaining = s.Count
	case ConstantValue, Vanishing:
		s.Remaining = one(d, 0, 0, 1, s.Count/2, s.Count)
	case SomeOthers:
		s.Share = d.log(.005, .5)
	case Daily:
		s.Window = 24 * time.Hour
		s.Count = max(int(float64(l.Calls)*d.log(.1, 2)), 1)
		s.Remaining = int(float64(s.Count) * d.Float64())
	}
	s.Until = time.Duration(d.between(.01, .3) * float64(l.Duration))
	return s
}

// limit draws a limit for a load and may change the duration of a closed one.
func (d draw) limit(load *Load, median time.Duration) *Limit {
	l := &Limit{Scope: PerHost, Backends: 1, Body: d.IntN(100), Quick: d.log(.02, 1)}
	l.Kind = weighted(d, map[LimitKind]float64{FixedWindow: 4, SlidingLog: 1.5, SlidingCounter: 1.5, Bucket: 3, InFlight: 1.5})
	sharers := 1
	switch {
	case load.Tenants > 1 && d.chance(.6):
		l.Scope, sharers = PerTenant, load.Tenants
	case load.Routes > 1 && load.Routes <= 100 && d.chance(.3):
		l.Scope, sharers = PerRoute, load.Routes
	}
	// The demand is below the limit, slightly above, or far above.
	switch weighted(d, map[string]float64{"below": .4, "above": .45, "far above": .15}) {
	case "below":
		l.Load = d.between(.2, .95)
	case "above":
		l.Load = d.log(1.05, 4)
	default:
		l.Load = d.log(4, 50)
	}
	if l.Kind == InFlight {
		d.inFlightLimit(l, load, median, sharers)
	} else {
		d.rateLimit(l, load, sharers)
	}
	d.rejections(l)
	return l
}

func (d draw) inFlightLimit(l *Limit, load *Load, median time.Duration, sharers int) {
	usual := load.Rate() * median.Seconds()
	if load.Callers > 0 && load.Thinking == 0 {
		usual = float64(load.Callers)
	}
	usual = max(usual, float64(load.Burst)/2)
	l.Count = max(int(usual/l.Load/float64(sharers)+.5), 1)
}

func (d draw) rateLimit(l *Limit, load *Load, sharers int) {
	duration := load.Duration
	if load.Kind == Closed && load.Thinking == 0 {
		// The limit determines how long a closed load takes.
		duration = d.duration(max(30*time.Second, duration), max(time.Hour, 2*duration))
		l.Load = max(duration.Seconds()/load.Duration.Seconds(), 1)
	} else {
		duration = time.Duration(float64(duration) * l.Load)
	}
	if load.Deadline == 0 && d.chance(.8) {
		// Without a deadline all calls wait. The last one waits for at most about 100 s.
		longest := load.Duration + 100*time.Second
		if load.Callers > 0 {
			longest = 100 * time.Second * time.Duration(load.Calls/load.Callers)
		}
		if longest < duration {
			duration = longest
			l.Load = duration.Seconds() / load.Duration.Seconds()
		}
	}
	if longest := 6 * time.Hour; duration > longest && load.Duration < longest {
		duration = longest
		l.Load = duration.Seconds() / load.Duration.Seconds()
	}
	rate := float64(load.Calls) / duration.Seconds() / float64(sharers)
	l.Window = one(d, time.Second, time.Second, 10*time.Second, time.Minute, time.Minute, time.Minute, 5*time.Minute, 15*time.Minute, time.Hour)
	for rate*l.Window.Seconds() < 1 {
		l.Window *= 2
	}
	l.Count = max(int(rate*l.Window.Seconds()+.5), 1)
	if l.Window >= 15*time.Minute || d.chance(.05) {
		d.longWindow(l, load, sharers)
	}
	if l.Used == 0 && d.chance(.08) {
		times := one(d, 10, 60)
		l.Longer, l.LongerCount = l.Window*time.Duration(times), max(int(float64(l.Count*times)*d.between(.3, .9)), 1)
	}
	l.Aligned = d.chance(.6)
	if l.Kind == Bucket {
		l.Burst = min(d.count(1, max(2, l.Count)), l.Count)
		if d.chance(.3) {
			l.Burst = l.Count
		}
	}
	if d.chance(.15) {
		l.Backends = min(1+d.count(1, 5), l.Count)
		l.Count = l.Count / l.Backends * l.Backends
	}
	if sharers == 1 && d.chance(.15) {
		l.Others = d.log(.1, .7)
	}
	l.CountRejected = l.Kind != Bucket && d.chance(.15)
}

// longWindow makes l a limit of an hour or a day of which a part is used at the start.
func (d draw) longWindow(l *Limit, load *Load, sharers int) {
	if d.chance(.3) {
		l.Window = 24 * time.Hour
	}
	left := max(int(float64(load.Calls)/float64(sharers)*d.log(.4, 4)), 1)
	l.Count = int(float64(left) * d.log(1, 10))
	l.Used = l.Count - left
	l.Load = float64(load.Calls) / float64(sharers) / float64(left)
	if l.Kind == SlidingLog || l.Kind == Bucket {
		l.Count, l.Used = left, 0
	}
}

// rejections draws how l rejects requests and what it states.
func (d draw) rejections(l *Limit) {
	l.Status = weighted(d, map[int]float64{http.StatusTooManyRequests: 8, http.StatusServiceUnavailable: 2})
	l.Dialect = Dialect{Headers: NoHeaders, Rounding: one(d, Up, Up, Up, Nearest, Down)}
	l.Retry = d.chance(.5)
	if l.Kind != InFlight && d.chance(.5) {
		l.Dialect = d.dialect()
		if d.chance(.15) {
			l.Status = http.StatusForbidden
		}
	}
	if l.Kind != InFlight && d.chance(.12) {
		l.Ban = Ban{After: d.count(3, 50), Within: d.duration(time.Second, time.Minute), Length: d.duration(5*time.Second, 10*time.Minute), Extend: d.chance(.4), Stated: d.chance(.6)}
	}
}
