package quota

import (
	"context"
	"net/http"
	"time"

	"github.com/heed-go/heed/throttle"
)

// A sharing is a bucket that tells the fleet what it learns. It compares what it
// knows with what the fleet was told last, and so says everything once, however it
// came to know it.
type sharing bucket

// limiter returns the quota of a request as others may use it.
func (s *site) limiter(req *http.Request) throttle.Limiter {
	b := s.bucket(req)
	if s.id == "" {
		return b
	}
	return (*sharing)(b)
}

// bucketOf returns the bucket that l is.
func bucketOf(l throttle.Limiter) (b *bucket, ours bool) {
	if s, shared := l.(*sharing); shared {
		return (*bucket)(s), true
	}
	b, ours = l.(*bucket)
	return b, ours
}

// Reserve implements throttle.Limiter.
func (s *sharing) Reserve(_ context.Context, c throttle.Claim) (throttle.Decision, error) {
	if _, err := c.Units(); err != nil {
		return throttle.Decision{}, err
	}
	b := (*bucket)(s)
	b.mu.Lock()
	if d, leaves := b.leavesToOthers(b.now(c.Now)); leaves {
		b.mu.Unlock()
		return d, nil
	}
	d, err := b.reserve(c)
	probe := d.OK && !c.DryRun && b.probes(d.Grant)
	n := news{Route: b.joint.route, Say: sayProbe}
	b.mu.Unlock()
	if probe {
		b.site.tracker.convoy.post(b.site, n)
	}
	return d, err
}

// Cancel implements throttle.Limiter.
func (s *sharing) Cancel(ctx context.Context, c throttle.Claim, d throttle.Decision) {
	(*bucket)(s).Cancel(ctx, c, d)
}

// Observe implements throttle.Observer.
func (s *sharing) Observe(ctx context.Context, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	b := (*bucket)(s)
	b.Observe(ctx, c, d, f)
	b.tell(&f)
}

// NonBlocking is the method that throttle.IsNonBlocking calls.
func (*sharing) NonBlocking() bool { return true }

// tell tells the fleet what an answer taught the quota of req, if it was another
// one that granted it.
func (s *site) tell(req *http.Request, asked *bucket, f *throttle.Feedback) {
	if s.id == "" {
		return
	}
	if home := s.homeOf(req); home != nil && home != asked {
		home.tell(f)
	}
}

const (
	postEvery  = 5 * time.Millisecond   // news of what is left, unless that is nothing
	showEvery  = time.Second            // so that others know that we are there
	probeEvery = 100 * time.Millisecond // news of probes, if one after the other fails
	worthPart  = 4                      // a change by a part of that is worth telling
)

// joint is what a bucket needs to be one of a fleet. It is guarded by bucket.mu.
type joint struct {
	route   uint64 // that an answer spoke of last, by which others know the bucket; 0: none yet
	known   known
	recall  time.Time // until when it waits for what others know; zero: it does not
	follows bool      // the probe is left to another process

	rejected int    // requests that were rejected without a statement and are not posted yet
	from     uint64 // the route of the latest
	crew     crew
}

// known is what the fleet was told of a bucket, by us or by others.
type known struct {
	ajar   bool
	shut   time.Time // gate.at of the latest time that it was shut
	until  time.Time
	probed time.Time // when a probe was last told of
	posted time.Time // when news of what is left were last posted
	left   []knownLeft

	rejected time.Time // when news of rejections were last posted
}

type knownLeft struct {
	name  string
	per   time.Duration
	left  int64
	reset time.Time
}

// heardOf notes that an answer to a request of route spoke of b.
func (b *bucket) heardOf(route uint64) {
	if b.site.id == "" {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.joint.route = route
}

// tell posts what the fleet does not know.
func (b *bucket) tell(f *throttle.Feedback) {
	b.mu.Lock()
	now := b.now(f.Now)
	rejected := b.rejectedSince(now)
	n := b.newsSince(now)
	b.mu.Unlock()
	if rejected.Say != "" {
		b.site.tracker.convoy.post(b.site, rejected)
	}
	if n.Say != "" {
		b.site.tracker.convoy.post(b.site, n)
	}
}

// rejectedSince returns news of the rejections that state nothing and were not posted
// yet; Say is "" if there are none, or if some were posted a moment ago.
func (b *bucket) rejectedSince(now time.Time) news {
	j := b.joint
	if j.rejected == 0 || now.Sub(j.known.rejected) < postEvery {
		return news{}
	}
	n := news{Route: j.from, Say: sayRejected, Count: min(j.rejected, maxRejected)}
	j.rejected, j.known.rejected = 0, now
	return n
}

// probes reports whether claim n, which goes now, is a probe that the fleet had
// better know of.
func (b *bucket) probes(n uint64) bool {
	if !b.gate.ajar || n <= b.gate.round || b.last.Sub(b.joint.known.probed) < probeEvery {
		return false
	}
	b.joint.known.probed = b.last
	return true
}

// newsSince returns what is new as of now, and notes that it is known; Say is ""
// if there is none.
func (b *bucket) newsSince(now time.Time) news {
	n := news{Route: b.joint.route}
	if n.Route == 0 {
		return n // nothing was said of it yet
	}
	g, k := &b.gate, &b.joint.known
	switch {
	case g.ajar && (!k.ajar || g.at.After(k.shut) || g.until.Sub(k.until) > slack):
		n.Say, n.Wait, n.Told = sayShut, inMicros(max(g.until.Sub(now), 0)), !g.estimated
	case !g.ajar && k.ajar:
		n.Say, n.Wait = sayOpen, inMicros(max(now.Sub(b.last), 0))
	}
	k.gate(g)
	if !b.worthTelling(now) && n.Say == "" {
		return n
	}
	if n.Say == "" {
		n.Say = sayLeft
	}
	n.Left, k.posted = b.stocks(now), now
	return n
}

// gate notes that the fleet knows how g stands.
func (k *known) gate(g *gate) { k.ajar, k.shut, k.until = g.ajar, g.at, g.until }

// worthTelling reports whether some limit stands so differently that the fleet had
// better know.
func (b *bucket) worthTelling(now time.Time) (worth bool) {
	since := now.Sub(b.joint.known.posted)
	often := since < postEvery
	worth = since >= showEvery && len(b.told) > 0
	for i := range b.told {
		t := &b.told[i]
		k := b.joint.known.find(t)
		switch {
		case t.slots.are: // what is left of them is no longer true when it arrives
		case k == nil || t.reset.Sub(k.reset) > slack:
			worth = worth || !often
		case t.remaining > k.left:
			k.left = t.remaining
		case t.remaining < k.left && t.remaining <= k.left-k.left/worthPart:
			worth = worth || !often || t.remaining == 0
		}
	}
	return worth
}

// stocks returns all limits as of now, and notes that they are known.
func (b *bucket) stocks(now time.Time) (all []stock) {
	b.joint.known.left = b.joint.known.left[:0]
	for i := range b.told {
		t := &b.told[i]
		b.joint.known.left = append(b.joint.known.left, knownLeft{t.name, t.per, t.remaining, t.reset})
		if reset := t.reset.Sub(now); reset > 0 && !t.slots.are {
			all = append(all, stock{Name: t.name, Limit: t.limit, Left: t.remaining, Per: inMicros(t.per), Reset: inMicros(reset)})
		}
	}
	return all
}

func (k *known) find(t *told) *knownLeft {
	for i := range k.left {
		if k.left[i].name == t.name && k.left[i].per == t.per {
			return &k.left[i]
		}
	}
	return nil
}
