package rules

import (
	"strconv"
	"time"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
	"github.com/heed-go/heed/warmup"
)

// A Spec says how much a limit allows and by which algorithm, in the words of the
// package that has it. It is one of
//
//	throttle.Limit                 token_bucket
//	throttle.RefillBucketConfig    refill
//	throttle.LeakyBucketConfig     leaky_bucket
//	throttle.FixedWindowConfig     fixed_window, permits_per_period
//	throttle.SlidingLogConfig      sliding_log
//	throttle.SlidingCounterConfig  sliding_counter
//	throttle.SubWindowsConfig      sub_windows
//	throttle.NginxConfig           nginx
//	throttle.ConcurrencyConfig     concurrency
//	warmup.Config                  warm_up
//
// always as a value, and valid.
type Spec interface {
	Validate() error
	String() string
}

// A Limit is what a file says at one place. All of it is read only.
type Limit struct {
	// ID tells the limit from all others of its file, and stays the same when the
	// file is read again: the domain and the descriptors that lead to it, or the
	// domain and its name. Counters and stores may be named after it.
	ID string

	Name         string // as the file says; "": it has none
	Line, Column int    // where the file says it

	Spec      Spec // nil: see Blocked and Unlimited
	Blocked   bool // nothing is granted: requests_per_unit is 0
	Unlimited bool // everything is granted

	Hard   Spec             // what is granted in fact, beyond Spec with a mark; nil: no more than Spec
	Borrow string           // which Config.CanBorrow may lend beyond Spec; "": none
	Shadow bool             // nothing is refused, only marked
	Ban    *keyed.BanConfig // for who does not heed refusals; nil: none
	Active []Period         // at these times another Spec holds

	Cost     int64    // units that each request takes; at least 1
	Keyed    bool     // each key has the limit for itself
	MaxKeys  int      // keys at a time, of about 500 bytes; those beyond share a few limiters; 0: 65,536
	Compact  bool     // keys have 16 bytes each, and begin anew when the limit changes, see keyed.Buckets
	Replaces []string // the names of limits that do not hold where this one does

	metric           metric
	match            string   // what requests must be like, as text; "": descriptors lead here
	keys             []string // what makes the key
	skipUnidentified bool     // requests without that
}

// A Period says when another Spec holds than at other times. Which one holds at
// an instant is what the clocks of Zone show at it: where they skip an hour, nothing
// holds in it, and where they show one twice, the Period holds twice.
type Period struct {
	From, To time.Duration  // of a day, as clocks show it; To is not part of it; To <= From: until the next day
	Days     Weekdays       // on which it begins
	Zone     *time.Location // nil: UTC

	Spec Spec // as Limit.Spec, of the same algorithm
	Hard Spec // as Limit.Hard
}

// Algorithm returns the word that a file has for the algorithm of l, and
// "blocked" or "unlimited" if it has none.
func (l *Limit) Algorithm() string {
	switch s := l.Spec.(type) {
	case throttle.Limit:
		return "token_bucket"
	case throttle.RefillBucketConfig:
		return "refill"
	case throttle.LeakyBucketConfig:
		return "leaky_bucket"
	case throttle.FixedWindowConfig:
		if s.Align == throttle.AtCreation {
			return "permits_per_period"
		}
		return "fixed_window"
	case throttle.SlidingLogConfig:
		return "sliding_log"
	case throttle.SlidingCounterConfig:
		return "sliding_counter"
	case throttle.SubWindowsConfig:
		return "sub_windows"
	case throttle.NginxConfig:
		return "nginx"
	case throttle.ConcurrencyConfig:
		return "concurrency"
	case warmup.Config:
		return "warm_up"
	}
	if l.Blocked {
		return "blocked"
	}
	return "unlimited"
}

// maxKeys returns how many keys l has limiters for, see keyed.Limiter.
func (l *Limit) maxKeys() int {
	if l.MaxKeys == 0 {
		return 1 << 16
	}
	return l.MaxKeys
}

// Policy returns what Decision.Policy says of l: its name, or else its place.
func (l *Limit) Policy() string {
	if l.Name != "" {
		return l.Name
	}
	return l.ID
}

// Weekdays is a set of days of the week: bit time.Sunday to bit time.Saturday.
type Weekdays uint8

// EveryDay is the set of all days.
const EveryDay Weekdays = 1<<7 - 1

// Has reports whether d belongs to w.
func (w Weekdays) Has(d time.Weekday) bool { return w&(1<<uint(d)) != 0 }

// position says where something is in a file, as editors count.
type position struct{ line, column int }

func (p position) String() string {
	return strconv.Itoa(p.line) + ":" + strconv.Itoa(p.column)
}
