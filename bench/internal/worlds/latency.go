package worlds

import (
	"fmt"
	"math"
	"time"
)

// A LatencyKind is the distribution of latencies.
type LatencyKind string

// The distributions of latencies.
const (
	Constant  LatencyKind = "constant"
	Lognormal LatencyKind = "lognormal"
	Bimodal   LatencyKind = "bimodal"
	HeavyTail LatencyKind = "heavy tail"
)

// A Latency is the time between the arrival of a request and its response.
type Latency struct {
	Kind   LatencyKind
	Median time.Duration

	Sigma float64 // of the logarithm, if Kind is Lognormal
	Slow  float64 // the share of the slow responses, if Kind is Bimodal
	Times float64 // slow responses take so many times as long, if Kind is Bimodal
	Alpha float64 // the exponent of the Pareto distribution, if Kind is HeavyTail

	// SlowRoutes is the share of the routes, such as long polls, that take SlowTimes as long.
	SlowRoutes float64
	SlowTimes  float64

	// From StallFrom to StallTo responses take StallTimes as long.
	StallFrom, StallTo time.Duration
	StallTimes         float64

	// Capacity is the number of requests in flight beyond which each takes longer in
	// proportion. Zero means that latency does not depend on load.
	Capacity int

	// Failing is the share of the requests beyond Capacity that fail with OverloadStatus.
	Failing        float64
	OverloadStatus int // zero means that the connection is closed
}

// maxLatency is the longest latency of the distributions without an upper bound.
const maxLatency = 10 * time.Minute

// of returns the latency for two uniform random numbers.
func (l Latency) of(u, v float64) time.Duration {
	f := 1.0
	switch l.Kind {
	case Lognormal:
		normal := math.Sqrt(-2*math.Log(1-u)) * math.Cos(2*math.Pi*v)
		f = math.Exp(l.Sigma * normal)
	case Bimodal:
		f = 0.9 + 0.2*v
		if u < l.Slow {
			f *= l.Times
		}
	case HeavyTail:
		// The median of the Pareto distribution minimum * u^(-1/Alpha) is minimum * 2^(1/Alpha).
		f = math.Pow(2*(1-u), -1/l.Alpha)
	}
	d := float64(l.Median) * f
	return time.Duration(min(d, max(float64(maxLatency), float64(4*l.Median))))
}

// typical returns the latency that four of five responses do not exceed.
func (l Latency) typical() time.Duration {
	switch l.Kind {
	case Lognormal:
		return time.Duration(float64(l.Median) * math.Exp(0.84*l.Sigma))
	case Bimodal:
		return time.Duration(float64(l.Median) * 1.1)
	case HeavyTail:
		return time.Duration(float64(l.Median) * math.Pow(0.4, -1/l.Alpha))
	}
	return l.Median
}

// String describes l.
func (l Latency) String() string {
	s := fmt.Sprintf("%s %s", l.Kind, short(l.Median))
	switch l.Kind {
	case Lognormal:
		s += fmt.Sprintf(" (sigma %.2g)", l.Sigma)
	case Bimodal:
		s += fmt.Sprintf(" (%s take %.2g times as long)", percent(l.Slow), l.Times)
	case HeavyTail:
		s += fmt.Sprintf(" (alpha %.2g)", l.Alpha)
	}
	if l.SlowRoutes > 0 {
		s += fmt.Sprintf(", %s of the routes %.2g times", percent(l.SlowRoutes), l.SlowTimes)
	}
	if l.StallTimes > 0 {
		s += fmt.Sprintf(", %.2g times from %s to %s", l.StallTimes, short(l.StallFrom), short(l.StallTo))
	}
	if l.Capacity > 0 {
		s += fmt.Sprintf(", slower beyond %d in flight", l.Capacity)
	}
	if l.Failing > 0 {
		s += fmt.Sprintf(", where %s fail with %s", percent(l.Failing), statusName(l.OverloadStatus))
	}
	return s
}

// latency returns the latency of an attempt that an idle server receives at a time since
// the start of the world.
func (w *World) latency(call, attempt int, at time.Duration) time.Duration {
	l := &w.Latency
	d := l.of(w.uniform(forLatency, call, attempt), w.uniform(forShape, call, attempt))
	if l.SlowRoutes > 0 && w.among(slowRoutes, int(w.calls[call].route), w.Load.Routes, l.SlowRoutes) {
		d = time.Duration(float64(d) * l.SlowTimes)
	}
	if l.StallTimes > 0 && l.StallFrom <= at && at < l.StallTo {
		d = time.Duration(float64(d) * l.StallTimes)
	}
	return d
}

// slowRoutes distinguishes the choice of slow routes from those of troubles.
const slowRoutes = 100
