package rules

import (
	"context"
	"net/http"

	"github.com/heed-go/heed/throttle"
)

// A Config is what a file cannot say and the program does. The zero Config is
// good for files that speak of nothing but what package rules knows itself. No
// field may change once it is in use.
type Config struct {
	// Values finds what a request has under a name that the file uses as the key of
	// a descriptor: its user, its account, its country. It reports false if the
	// request has none; then no limit with that key holds for it. A value that is
	// found goes before what package rules would take under that name. The
	// functions of the server's identity and those of a client fit as they are.
	Values map[string]func(*http.Request) (string, bool)

	// Build makes the limiter of l where it is not to be kept in this process, in
	// Redis say, or where each key has a limit of its own, by a source.Source. It is told the
	// key of each claim and so is made once for all keys, and again when the file says
	// something else of l. It makes l.Spec, l.Hard and l.Active what they should be
	// there, while Shadow, Borrowing and Ban are put around it. Nil, or a nil limiter
	// without an error: local. An error is one of the file, at the place of l.
	Build func(l *Limit) (throttle.Limiter, error)

	// CanBorrow says for each name that a file has at the word borrow whether there is
	// room to lend, see throttle.Borrowing.
	CanBorrow map[string]func(throttle.Claim, throttle.Decision) bool

	// DecisionHook sees what limits decide. Nil: nobody does.
	DecisionHook DecisionHook

	Clock throttle.Clock // nil: the system clock

	// MaxBytes is the longest file that is read. 0: 4 MiB.
	MaxBytes int64

	// MaxLimits is how many limits a file may have. 0: 50,000.
	MaxLimits int
}

// A DecisionHook is told by each limit of a Set what it decided and how that ended.
// Its methods are called by many goroutines at once, and sometimes under the lock
// of a Waiter: they must not block, panic, or call one. Dry runs are not told, and
// neither is what reached no decision. Decision.Over tells what a limit would have
// refused but for Limit.Shadow, Hard or Borrow. Who waits in line is told as refused
// each time that he is asked for.
type DecisionHook interface {
	// Decided is told the answer to c.
	Decided(l *Limit, c throttle.Claim, d throttle.Decision)

	// Cancelled is told that c was granted by d and will not be used, perhaps
	// because another limit of the same request refused it.
	Cancelled(l *Limit, c throttle.Claim, d throttle.Decision)

	// Observed is told what became of c. It was the last of it without f.More.
	Observed(ctx context.Context, l *Limit, c throttle.Claim, d throttle.Decision, f throttle.Feedback)
}

func (s *Config) maxBytes() int64 {
	if s.MaxBytes <= 0 {
		return 4 << 20
	}
	return s.MaxBytes
}

func (s *Config) maxLimits() int {
	if s.MaxLimits <= 0 {
		return 50_000
	}
	return s.MaxLimits
}
