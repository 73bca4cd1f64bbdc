package rules

import (
	"strconv"
	"time"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
	"github.com/heed-go/heed/warmup"
)

// Spec is the amount of a limit and its algorithm, as the configuration of a limiter. It is one of
//
//	throttle.Limit                 token_bucket
//	throttle.RefillBucketConfig    refill
//	throttle.LeakyBucketConfig     leaky_bucket
//	throttle.FixedWindowConfig     fixed_window, permits_per_period
//	throttle.SlidingLogConfig      sliding_log
//	throttle.SlidingCounterConfig  sliding_counter, sub_windows (with Parts)
//	throttle.NginxConfig           nginx
//	throttle.ConcurrencyConfig     concurrency
//	warmup.Config                  warm_up
//
// It is always a valid value of one of these types, never a pointer.
type Spec interface {
	Validate() error
}

// Limit is one limit of a file. Its fields must not be changed.
type Limit struct {
	// ID identifies the limit in its file, and stays the same when the file is read again. It
	// consists of the domain and the descriptors that lead to the limit, or of the domain and its
	// name. It is suitable as a name for counters and for keys in a store.
	ID string

	// Name is the name of the limit in the file. Empty means that it has none.
	Name string

	// Line and Column are the position of the limit in the file, both counted from 1.
	Line, Column int

	// Spec is the amount of the limit. Nil means that Blocked or Unlimited is set, or that the
	// limit grants something only in the periods of Active.
	Spec Spec

	// Blocked means that nothing is granted, because requests_per_unit is 0. The periods of Active
	// may still grant something.
	Blocked bool

	// Unlimited means that everything is granted.
	Unlimited bool

	// Hard is the amount that is enforced if it differs from Spec. Claims beyond Spec are granted
	// up to Hard, with Decision.OverLimit set. Nil means that claims beyond Spec are rejected.
	Hard Spec

	// Borrow is the name of the Config.CanBorrow that may grant claims beyond Spec. Empty means
	// none.
	Borrow string

	// Shadow means that claims that exceed the limit are granted with Decision.OverLimit set,
	// instead of being rejected.
	Shadow bool

	// Ban is the ban for keys that keep exceeding the limit. Nil means none.
	Ban *keyed.BanConfig

	// Active lists the periods in which another Spec applies. If several apply, the first one
	// counts. Nil means none.
	Active []Period

	// Cost is the number of units that each request takes, at least 1.
	Cost int64

	// Keyed means that each key has the limit for itself.
	Keyed bool

	// MaxKeys is the maximum number of keys with a limiter of their own. Further keys replace the
	// least used keys of networks with many new keys: see keyed.Limiter. A key needs at most about
	// 600 bytes (1,000 with Hard), and more if that depends on the limit: 16 bytes for each unit of a sliding_log
	// (rounded up to a power of 2), 9 for each sub-window, and 40 for each claim of a concurrency.
	// Zero means 65,536, or as many keys as fit into 256 MiB if these are fewer.
	MaxKeys int

	// Compact means that each key takes 16 bytes and starts anew when the limit changes. See
	// keyed.NewBuckets.
	Compact bool

	// Replaces lists the names of limits that do not apply to requests to which this limit
	// applies.
	Replaces []string

	metric           metric
	match            string   // what requests must match, as text; "" for descriptors
	keys             []string // names of the parts of the key
	address          int      // index of the part that is the address of the client; -1: none
	skipUnidentified bool     // do not apply to requests without these parts
}

// Period is a set of times at which another Spec applies. It follows the local time of Zone: if
// the clocks skip an hour, a Period within that hour does not apply on that day; if an hour is
// repeated, a Period within it applies twice.
type Period struct {
	// From and To are times of day, as durations since midnight on the clock. From is included, To
	// is not. If To is not after From, the period ends on the next day.
	From, To time.Duration

	// Days are the days on which the period begins.
	Days Weekdays

	// Zone is the time zone. Nil means UTC.
	Zone *time.Location

	// Spec is the amount in the period, with the same algorithm as Limit.Spec. Nil means that
	// nothing is granted.
	Spec Spec

	// Hard is the amount that is enforced in the period, as Limit.Hard.
	Hard Spec
}

// Algorithm returns the name of the algorithm of l in a file. It returns "blocked" or "unlimited"
// for a limit without Spec.
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
		if s.Parts > 0 {
			return "sub_windows"
		}
		return "sliding_counter"
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

// Policy returns the Decision.Policy of l: its Name, or its ID if it has no name.
func (l *Limit) Policy() string {
	if l.Name != "" {
		return l.Name
	}
	return l.ID
}

// Weekdays is a set of days of the week. Bit d is set if time.Weekday d belongs to it.
type Weekdays uint8

// EveryDay is the set of all days of the week.
const EveryDay Weekdays = 1<<7 - 1

// Has reports whether d belongs to w.
func (w Weekdays) Has(d time.Weekday) bool { return w&(1<<uint(d)) != 0 }

// A position is a line and a column of a file, both counted from 1.
type position struct{ line, column int }

func (p position) String() string {
	return strconv.Itoa(p.line) + ":" + strconv.Itoa(p.column)
}
