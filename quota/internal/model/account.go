package model

import "github.com/heed-go/heed/quota/internal/statedlimit"

// An Account is what the quotas of one account have in common.
type Account struct {
	*Config
	Names  Names
	Memory Memory
}

// Names are the names of limits in decisions.
type Names struct{ Quota, RetryAfter, LearnedRate, SlowStart, SlowResponses string }

// A Config is what the quotas of one Tracker have in common.
type Config struct {
	Full               bool               // limits that the server does not state are estimated
	InitialConcurrency int                // bound on the requests in flight at the beginning of slow start; negative: none
	Pacing             statedlimit.Pacing // how the remaining units are spent
	Random             func() float64     // returns random numbers in [0, 1)
}
