package scenario

import "time"

// A Bucket is a limit of an API that is enforced with a token bucket. It is not safe for
// concurrent use.
type Bucket struct {
	Size float64       // units that fit in
	Per  time.Duration // the time in which Size units are restored

	used float64
	at   time.Time
}

// Take takes n units if there are so many.
func (b *Bucket) Take(now time.Time, n float64) bool {
	b.advance(now)
	if b.used+n > b.Size {
		return false
	}
	b.used += n
	return true
}

// Left returns the number of units that are left.
func (b *Bucket) Left(now time.Time) float64 {
	b.advance(now)
	return b.Size - b.used
}

// Until returns the time until n units are left.
func (b *Bucket) Until(now time.Time, n float64) time.Duration {
	missing := max(n-b.Left(now), 0)
	return time.Duration(missing / b.Size * float64(b.Per))
}

func (b *Bucket) advance(now time.Time) {
	restored := b.Size * float64(now.Sub(b.at)) / float64(b.Per)
	b.used, b.at = max(b.used-restored, 0), now
}

// A Window is a limit of an API that is enforced with fixed windows. It is not safe for
// concurrent use.
type Window struct {
	Limit int
	Per   time.Duration
	Used  int       // in the window that ends at End
	End   time.Time // zero: the first window begins with the first request
}

// Take takes n units if there are so many.
func (w *Window) Take(now time.Time, n int) bool {
	if !now.Before(w.End) {
		w.Used, w.End = 0, now.Add(w.Per)
	}
	if w.Used+n > w.Limit {
		return false
	}
	w.Used += n
	return true
}
