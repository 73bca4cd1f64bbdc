// Package monitor measures whether rate limits do their job.
//
// A [Registry] keeps [Stats] of each limit of a file of package rules: how many claims the
// limit granted and refused, which keys it refused most often, and how much those keys
// asked for. [Recommend] says what to change, given these numbers. [Instrument] does the
// same for a limiter that is in no file.
//
// An [Alert] calls a function when a key is refused, or fails, too often.
package monitor
