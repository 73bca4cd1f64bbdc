package rules

import (
	"context"
	"net/http"

	"github.com/heed-go/heed/throttle"
)

// Config holds the settings that a program supplies in addition to a file. The zero Config is
// sufficient for files that use only built-in keys and local limiters. Fields must not be changed
// while a Config is in use.
type Config struct {
	// Values maps keys of descriptors and limits to functions that return the value of a request,
	// such as its user, account or country. A function reports false if the request has no value;
	// then limits of descriptors with that key do not apply. An entry takes precedence over a
	// built-in key or an entry of the section values with the same name. A throttlehttp.KeyFunc
	// can be used as an entry; those for secrets return a hash.
	Values map[string]func(*http.Request) (string, bool)

	// Build returns the limiter of l if it is not kept in this process: for example a limiter in
	// Redis, or a source.Source if each key has a limit of its own. The limiter receives the key
	// in each claim, so Build is called once for all keys of l, and again when the definition of l
	// changes. It must apply l.Spec, l.Hard and l.Active itself; shadow mode, borrowing and bans
	// are added around it. A nil limiter without an error means a local limiter. An error is
	// reported at the position of l in the file. Nil means local limiters only.
	Build func(l *Limit) (throttle.Limiter, error)

	// CanBorrow maps the names that a file uses at the word borrow to functions that report
	// whether a claim may be granted beyond its limit. See throttle.NewSoftLimit.
	CanBorrow map[string]func(throttle.Claim, throttle.Decision) bool

	// DecisionHook receives the decisions of all limits. Nil means none.
	DecisionHook DecisionHook

	// Clock is the clock of all limiters. Nil means the system clock.
	Clock throttle.Clock

	// MaxBytes is the maximum size of a file in bytes. Zero or a negative value means 4 MiB.
	MaxBytes int64

	// MaxLimits is the maximum number of limits of a file. Zero or a negative value means 50,000.
	MaxLimits int
}

// DecisionHook receives the decisions of each limit of a Set and their outcomes. Its methods are
// called by several goroutines at the same time, without a lock held, and for requests that wait also
// by the goroutine of another request: they must not block. A panic is raised in the request that the
// decision is about, and takes no units. The methods are not called for dry runs, nor if a limiter
// returns an error. Decision.OverLimit is set for claims that would have been rejected without
// Limit.Shadow, Limit.Hard or Limit.Borrow. A rejection of a claim with Claim.Waits set is not
// reported, because the caller asks again.
type DecisionHook interface {
	// Decided is called with the decision d on c.
	Decided(l *Limit, c throttle.Claim, d throttle.Decision)

	// Cancelled is called if c was granted by d and is not used, for example because another limit
	// of the same request rejected it.
	Cancelled(l *Limit, c throttle.Claim, d throttle.Decision)

	// Observed is called with the outcome f of c. It is the last call for c unless f.State is
	// throttle.Ongoing.
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
