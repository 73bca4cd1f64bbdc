package quota

import "time"

// A trial tells whether a lower rate makes a suspected failure rarer. If it does not,
// the failures have another reason.
type trial struct {
	active bool
	share  float64 // of failures before
	cuts   int     // how many times the rate was cut
	n      int     // responses that count
	bad    int     // of them, failures
	good   int     // successes in a row
}

// judge ends the trial of a suspected cause, or lowers the rate again.
func (l *rateLoop) judge(bad bool, rtt time.Duration, sent uint64, now time.Time) effect {
	t := &l.trial
	t.n++
	t.good++
	if bad {
		t.bad, t.good = t.bad+1, 0
	}
	switch {
	case float64(t.good) >= 3/t.share, t.n >= 20 && float64(t.bad) <= t.share/2*float64(t.n):
		l.trial = trial{}
		return continueLoop
	case t.n < 6, t.bad < t.n && t.n < 20:
		return continueLoop
	case t.cuts >= 3:
		return abandonLoop
	}
	l.rate = max(l.rate/4, minRate)
	l.trial = trial{active: true, share: t.share, cuts: t.cuts + 1}
	l.changed(rtt, sent, now)
	return continueLoop
}
