package quota

import (
	"errors"
	"io"
	"net/http"
	"syscall"
	"time"

	"github.com/heed-go/heed/throttle"
)

// Some servers refuse by closing the connection without a word (444 of nginx). One
// that is closed says nothing: a program was restarted somewhere, or an idle
// connection was too old. But a second one within hangUpsWithin counts as a 503
// without a word does, which is a refusal until it is an outage.
const hangUpsWithin = time.Second

// hungUp reports whether err says that the other side closed the connection instead
// of answering.
func hungUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET)
}

// hangUp makes a refusal of f, the feedback on a request without an answer, if it is
// one. asked is the quota that granted the request; nil: none.
func (s *site) hangUp(req *http.Request, asked *bucket, f *throttle.Feedback) {
	if f.Now.IsZero() {
		f.Now = s.tracker.clock().Now()
	}
	s.mu.Lock()
	again := !s.hungUp.IsZero() && f.Now.Sub(s.hungUp) < hangUpsWithin
	s.hungUp = f.Now
	s.mu.Unlock()
	if again && s.refuses(asked, f.Now) {
		f.Outcome = throttle.Throttled
		s.heed(req, asked, f)
	}
}
