package queue

import (
	"context"
	"time"

	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/throttle"
)

// checkUpFront rejects w if one of its limits already states that it cannot grant w in time. The claim c has the fields
// that are common to all demands.
func (q *Queue) checkUpFront(w *waiter, c throttle.Claim) {
	for i := range w.ticket.Demands {
		m := &w.ticket.Demands[i]
		if m.Limiter == nil || !m.Limiter.Traits().NonBlocking {
			continue
		}
		c.Key, c.Cost, c.DryRun = m.Key, m.Cost, true
		d, err := m.Limiter.Reserve(context.Background(), c)
		if err == nil && d.OK {
			continue
		}
		q.lock()
		waiting := w.isWaiting() && (err != nil || !q.setBound(q.limitQueues[limitKeyOf(m, d.Part())], d, w))
		if waiting && err == nil {
			err = q.cannotWait(w, m.Key, d)
		}
		if waiting && err != nil {
			q.reject(w, err)
		}
		q.unlock()
		if !waiting || err != nil {
			return
		}
	}
	q.checkAhead(w, c)
}

// checkAhead rejects w, which has just joined, if the waiters that go before it use so many
// units that it cannot be granted in time. That is known only if these waiters are of the class
// of w, all of the same priority, and each limit that delays them states its rate. The time that each
// needs for their units is a lower bound, so the longest decides.
func (q *Queue) checkAhead(w *waiter, c throttle.Claim) {
	var delayed throttle.Decision // by the limit that delays w longest
	var key limitKey
	for _, k := range w.ticket.limits {
		l, ok := k.limiter.(throttle.Limiter)
		own, ahead, first := q.unitsAhead(w, k)
		if !ok || ahead <= 0 || !l.Traits().NonBlocking || len(l.Traits().Parts) > 0 {
			return
		}
		c.Key, c.Cost, c.DryRun, c.Waited = k.key, own, true, c.Now.Sub(q.time.At(first))
		d, err := l.Reserve(context.Background(), c)
		if err != nil {
			return
		}
		after, known := behind(ahead, l, c, d)
		switch {
		case !known:
			return
		case !after.OK && after.At.Add(after.Wait).After(delayed.At.Add(delayed.Wait)):
			delayed, key = after, k
		}
	}
	if delayed.Wait <= 0 {
		return
	}
	q.lock()
	defer q.unlock()
	if !w.isWaiting() {
		return
	}
	err := q.cannotWait(w, key.key, delayed)
	if retryAt, _ := q.retryTime(delayed); err == nil && q.isLate(w, retryAt) && q.stands(w) {
		err = &throttle.RejectedError{Key: key.key, Decision: delayed, Reason: context.DeadlineExceeded}
	}
	if err != nil {
		q.reject(w, err)
	}
}

// unitsAhead returns the units that w, which has just joined, needs of the limit k, those of the
// waiters that go before it, and since when the first of them waits; 0 if that is not known.
func (q *Queue) unitsAhead(w *waiter, k limitKey) (own, ahead, first int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	lq, c := q.limitQueues[k], w.class
	if !w.isWaiting() || lq == nil || lq.numClasses > 1 || c.mixed || w.late || w.ticket.arrival < c.newest {
		return 0, 0, 0
	}
	own = c.entryAt(k).units(w.ticket)
	return own, lq.waitingUnits - lq.lateUnits - own, int64(c.waiters.First().ticket.waited)
}

// behind returns d, the decision of l on the dry run c, as it is after claims of so many units
// ahead, and whether that is known. It adds to d.Wait the time that l needs for their units:
//
//	left │<-- rest: l is asked -->│<-- periods: d.Limit units in d.Per each -->│
//	     │<------------------- units of the claims and of c ------------------->│
//
// It is not too long, whether l restores its units one by one or all together.
func behind(ahead int64, l throttle.Limiter, c throttle.Claim, d throttle.Decision) (after throttle.Decision, known bool) {
	switch {
	case d.OK && d.Limit == 0:
		return d, true
	case d.Estimated || !d.OK && d.Wait <= 0 || d.Wait == throttle.Forever || d.Limit <= 0:
		return d, false
	}
	ask := func(units int64) throttle.Decision {
		c.Cost = units
		answer, err := l.Reserve(context.Background(), c)
		known = err == nil
		return answer
	}
	all, left := ticks.Add(c.Cost, ahead), min(max(d.Remaining, 0), d.Limit-1)
	periods := max(all-left-1, 0) / d.Limit
	rest := all - periods*d.Limit
	if _, steps := l.(interface{ RefillsInSteps() }); steps && periods > 0 { // its Per is too long if a step is no part of its burst
		return d, false
	}
	after = ask(min(rest, d.Limit))
	switch {
	case !known || d.Per <= 0 && (!after.OK || periods > 0):
		return after, false
	case after.OK: // the first of the periods may end at any time
		after.OK, after.Wait = periods <= 1, time.Duration(ticks.Mul(max(periods-1, 0), int64(d.Per)))
		return after, true
	}
	if more := rest - d.Limit; more > 0 && left < d.Limit-1 { // restored at the pace of those before
		pace := max(after.Wait-ask(left+1).Wait, 0)
		after.Wait += time.Duration(ticks.MulDivDown(int64(pace), more, d.Limit-left-1))
	}
	together := ticks.Add(int64(after.Wait), ticks.Mul(periods, int64(d.Per)))
	oneByOne := ticks.MulDivDown(int64(d.Per), all-left-1, d.Limit)
	if !d.OK {
		oneByOne = ticks.Add(int64(d.Wait), ticks.MulDivDown(int64(d.Per), ahead, d.Limit))
	}
	after.Wait = max(d.Wait, time.Duration(min(oneByOne, together)))
	return after, known
}

// stands reports whether the class of w has had waiters for longer than w can wait, so that
// they are no burst. If the work may take most of the time that w has, it reports false: then w
// is rather put before those that are late.
func (q *Queue) stands(w *waiter) bool {
	left := q.timeLeft(w)
	return ticks.Sub(q.now, w.class.since) >= left && int64(w.ticket.HighLatency) < left/2
}

// rejectHopeless rejects all waiters that need lq and cannot wait until the end that the rejection d states, if that
// is more than a second after the latest such end.
func (q *Queue) rejectHopeless(lq *limitQueue, d throttle.Decision) {
	d.Wait = max(d.Wait, d.Expected)
	expected, _ := q.retryTime(d)
	if !d.ServerImposed || d.Expected <= 0 || expected-lq.announcedRetryAt <= int64(time.Second) {
		return
	}
	lq.announcedRetryAt = expected
	for _, w := range q.waitersOf(lq) {
		if err := q.cannotWait(w, lq.key.key, d); err != nil && w.class.reserving != w {
			q.reject(w, err)
		}
	}
}

// cannotWait returns an error if w cannot wait until the limit that made the rejection d is expected to grant it.
func (q *Queue) cannotWait(w *waiter, key string, d throttle.Decision) error {
	d.Wait = max(d.Wait, d.Expected)
	switch retryAt, known := q.retryTime(d); {
	case d.Wait == throttle.Forever:
		return &throttle.RejectedError{Key: key, Decision: d}
	case !known, d.ServerImposed && d.Expected == 0: // what the limit is based on is being tested, and may prove to be wrong at any time
		return nil
	case retryAt > q.maxWaitEnd(w):
		return &throttle.RejectedError{Key: key, Decision: d}
	case w.ctxDeadline != never && retryAt > q.now && retryAt-q.now >= w.ctxDeadline-q.realNow(),
		w.ticket.Latency <= 0 && d.Per > 0 && !d.ServerImposed && q.isLate(w, retryAt):
		return &throttle.RejectedError{Key: key, Decision: d, Reason: context.DeadlineExceeded}
	case d.ServerImposed && w.ticket.MaxServerWait > 0 && retryAt-q.now > int64(w.ticket.MaxServerWait):
		return &throttle.RejectedError{Key: key, Decision: d}
	}
	return nil
}

// retryTime returns when to ask again after the rejection d, and whether d stated that time.
func (q *Queue) retryTime(d throttle.Decision) (retryAt int64, exact bool) {
	if d.Wait <= 0 {
		return ticks.Add(q.now, unknownRetryInterval), false
	}
	at := q.claimTime
	if !d.At.IsZero() {
		at = q.time.Read(d.At)
	}
	return ticks.Add(at, int64(d.Wait)), true
}
