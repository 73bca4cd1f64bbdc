package quota

import "time"

// maxOverloads is how many times in a row a 503 without a good answer in between
// counts as a refusal. Then it is an outage, which waiting in line does not mend.
const maxOverloads = 3

// An overload tells two meanings of a 503 without Retry-After apart: some servers
// refuse with it (nginx by default, S3 with SlowDown), others are down.
//
//	good good 503 (pause) good good 503 (pause) good     it refuses
//	good good 503 (pause) 503 (pause) 503 (pause) 503    it is down
//
// So it is a refusal at first. Only the second of those teaches a pace: a server
// that was down for a moment is not slow for that.
type overload struct {
	good  int  // good answers since the last one
	inRow int  // of them without a good answer in between; 0: the last answer was good
	seen  bool // there was one
	known bool // there was one before the last, and good answers in between
}

// accepted counts a good answer.
func (o *overload) accepted() {
	o.good++
	o.inRow = 0
}

// teaches reports whether a refusal teaches a pace.
func (o *overload) teaches() bool { return o.inRow == 0 || o.known }

// refuses reports whether a 503 that came now is a refusal.
func (b *bucket) refuses(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	o := &b.overload
	switch {
	case b.gate.until.After(now):
		return o.seen // one of the same burst
	case o.good > 0:
		o.known, o.seen, o.inRow, o.good = o.seen, true, 1, 0
		return true
	case o.inRow == 0 || o.inRow == maxOverloads:
		o.inRow, b.gate.ajar = 0, false
		return false
	}
	o.inRow++
	return true
}

// refuses asks the quota that granted the request, or that would have.
func (s *site) refuses(asked *bucket, now time.Time) bool {
	if asked == nil {
		asked = s.fresh.Load()
	}
	return asked.refuses(now)
}
