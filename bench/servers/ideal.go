package main

import "time"

// An ideal returns the shortest time in which a client that knows the rule of a server could
// make n calls, if responses took no time. at is the time of the first call since the start
// of the server, which is a multiple of a minute since 1970.
type ideal func(n int, at time.Duration) time.Duration

// bucket admits burst calls immediately and then one per 1/rate seconds.
func bucket(rate float64, burst int) ideal {
	return func(n int, _ time.Duration) time.Duration {
		return time.Duration(float64(max(n-burst, 0)) / rate * float64(time.Second))
	}
}

// A span is one limit of windows: count calls per length.
type span struct {
	count  int
	length time.Duration
}

// fromFirst is for windows that begin with the first request.
func fromFirst(spans ...span) ideal {
	return func(n int, _ time.Duration) time.Duration { return windows(spans, n, 0) }
}

// aligned is for windows that are multiples of their length since 1970, and for those that
// begin at the start of the server.
func aligned(spans ...span) ideal {
	return func(n int, at time.Duration) time.Duration { return windows(spans, n, at) }
}

// windows makes as many calls as all windows allow, and continues when those that are used
// up have ended.
func windows(spans []span, n int, at time.Duration) time.Duration {
	used, end := make([]int, len(spans)), make([]time.Duration, len(spans))
	for now := at; ; {
		allowed := n
		for i, s := range spans {
			if now >= end[i] {
				used[i], end[i] = 0, now-now%s.length+s.length
			}
			allowed = min(allowed, s.count-used[i])
		}
		next := now
		for i, s := range spans {
			if used[i] += allowed; used[i] == s.count {
				next = max(next, end[i])
			}
		}
		if n -= allowed; n == 0 {
			return now - at
		}
		now = next
	}
}

// slidingFromFirst is for counters that weight the previous window and begin with the
// first request: a full window at first, and its rate from the second window on.
func slidingFromFirst(s span) ideal {
	return func(n int, _ time.Duration) time.Duration { return sliding(s, n, 0) }
}

// slidingAligned is for such counters whose windows are multiples of their length since the
// start of the server.
func slidingAligned(s span) ideal {
	return func(n int, at time.Duration) time.Duration { return sliding(s, n, at) }
}

func sliding(s span, n int, at time.Duration) time.Duration {
	if n <= s.count {
		return 0
	}
	return s.length - at%s.length + time.Duration(n-s.count)*s.length/time.Duration(s.count)
}

// queued is for a server that delays calls itself, to rate calls per second after the first
// undelayed ones.
func queued(rate float64, undelayed int) ideal { return bucket(rate, undelayed) }

// perPath is for a limit of each of several paths that the calls use in turn.
func perPath(paths int, of ideal) ideal {
	return func(n int, at time.Duration) time.Duration { return of((n+paths-1)/paths, at) }
}
