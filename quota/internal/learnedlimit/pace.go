package learnedlimit

import "time"

// A Pace measures the times between accepted requests while others are rejected. A server that limits the rate accepts
// one request in each interval, so these times hardly vary. If requests are rejected for any other reason, they vary as
// those between the requests do:
//
//	a limit of 20/s    |   x x |  x  |   x |  x x|   x |      standard deviation 0.2 of the mean
//	random failures    ||   x x  |x x x   x|   x  | |x       0.7 to 1 of the mean
//
// Mean and variance are exponentially weighted. The zero Pace has measured nothing.
type Pace struct {
	last           time.Time // of the latest accepted request; zero: none
	mean, variance float64   // seconds, and seconds squared
	n              int       // times
}

const (
	minTimes     = 16  // times that show a rate
	maxDeviation = 0.5 // standard deviation of times that a rate determines, as a part of their mean
)

// Accepted applies that a request was accepted now.
func (p *Pace) Accepted(now time.Time) {
	if !p.last.IsZero() {
		x := now.Sub(p.last).Seconds()
		p.n++
		w := max(1/float64(p.n), 1./minTimes)
		d := x - p.mean
		p.mean += w * d
		p.variance = (1 - w) * (p.variance + w*d*d)
	}
	p.last = now
}

// Rate returns the rate that the times show, in requests per second; 0: they show none.
func (p *Pace) Rate() float64 {
	if p.n < minTimes || p.mean <= 0 || p.variance > maxDeviation*maxDeviation*p.mean*p.mean {
		return 0
	}
	return 1 / p.mean
}
