package main

import (
	"io"
	"slices"
	"time"

	"github.com/heed-go/heed/bench/internal/worlds"
)

// timelineSlices is the number of parts of a time line.
const timelineSlices = 20

// A slice is a part of the time of a run.
type slice struct {
	sent, rejected, failedAttempts int
	made, ok, failed               int
	waiting                        int             // calls at the end of the slice that have begun and have no attempt in flight
	times                          []time.Duration // of the calls that ended well in the slice
}

// printTimeline prints what happened in each twentieth of the time of run.
func printTimeline(w io.Writer, run *worlds.Run) {
	width := max(run.Elapsed/timelineSlices+1, 1)
	parts := make([]slice, timelineSlices)
	at := func(t time.Duration) *slice { return &parts[min(int(t/width), timelineSlices-1)] }
	for _, a := range run.Attempts {
		at(a.Sent).sent++
		switch {
		case a.Cause == worlds.ByLimit || a.Rejected:
			at(a.Done).rejected++
		case a.Status < 0 || a.Status >= 500:
			at(a.Done).failedAttempts++
		}
	}
	for _, r := range run.Results {
		at(r.Start).made++
		end := at(r.Start + r.Duration)
		if r.OK() {
			end.ok++
			end.times = append(end.times, r.Duration)
		} else {
			end.failed++
		}
	}
	for i := range parts {
		parts[i].waiting = waiting(run, time.Duration(i+1)*width)
	}
	printf(w, "\n%s\n%10s %7s %7s %9s %8s %7s %7s %8s %9s\n", run.Client, "until", "calls", "sent", "rejected", "failures", "ok", "failed", "waiting", "p50")
	for i, p := range parts {
		slices.Sort(p.times)
		median := "-"
		if len(p.times) > 0 {
			median = seconds(p.times[len(p.times)/2].Seconds())
		}
		printf(w, "%10s %7d %7d %9d %8d %7d %7d %8d %9s\n", seconds((time.Duration(i+1) * width).Seconds()),
			p.made, p.sent, p.rejected, p.failedAttempts, p.ok, p.failed, p.waiting, median)
	}
}

// waiting returns the number of calls that wait at a time.
func waiting(run *worlds.Run, t time.Duration) (n int) {
	for _, r := range run.Results {
		if r.Start <= t && t < r.Start+r.Duration {
			n++
		}
	}
	for _, a := range run.Attempts {
		if a.Sent <= t && t < a.Done {
			n--
		}
	}
	return n
}
