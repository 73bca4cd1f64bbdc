package main

import (
	"cmp"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/heed-go/heed/bench/internal/worlds"
)

// A result is the figures of all clients in one world.
type result struct {
	Seed     uint64             `json:"seed"`
	World    string             `json:"world"`
	Group    string             `json:"group"`
	Tame     bool               `json:"tame"`
	Calls    int                `json:"calls"`
	Peer     string             `json:"peer"` // the better of the peers
	Features []string           `json:"features"`
	Clients  map[string]figures `json:"clients"`

	names []string // of the clients, in the order of their runs
}

// figures are those of one client in one world. Times are in seconds, shares in percent.
type figures struct {
	Failed   float64        `json:"failed"`
	Reasons  map[string]int `json:"reasons,omitempty"` // of the failed calls
	Mean     float64        `json:"mean_s"`            // of the successful calls
	Median   float64        `json:"median_s"`
	P99      float64        `json:"p99_s"`
	Elapsed  float64        `json:"elapsed_s"`
	Cut      bool           `json:"cut,omitempty"` // the run did not end by itself
	Sent     int            `json:"sent"`
	Rejected int            `json:"rejected"` // by the limit

	Harm   float64 `json:"harm"`   // see worlds.Comparison
	Points float64 `json:"points"` // Harm, including what may be noise
	Error  float64 `json:"error"`  // the standard error of Points
	Late   int     `json:"late"`   // calls
	Short  float64 `json:"short"`  // the highest harm of 60 s
	Long   float64 `json:"long"`   // the highest harm of 600 s, beyond three standard errors
	Slower float64 `json:"slower"` // mean time by that of the peer, of the calls that succeed in both

	Wasted float64 `json:"wasted,omitempty"` // rejected requests by those that the oracle sent, in percent
	Beyond float64 `json:"beyond,omitempty"` // failed calls beyond those of the oracle, in points

	Causes     map[string]float64 `json:"causes,omitempty"`     // of Harm, in points
	Violations map[string]int     `json:"violations,omitempty"` // of the invariants
	Bytes      int64              `json:"bytes,omitempty"`      // the most that the tracker had reserved for an account
	Accounts   int                `json:"accounts,omitempty"`   // the most that the tracker kept
	Memory     []string           `json:"memory,omitempty"`     // the violations of I6
}

// newResult returns the figures of the runs of one world.
func newResult(runs []*worlds.Run) *result {
	w := runs[0].World
	summaries, byName := map[string]worlds.Summary{}, map[string]*worlds.Run{}
	r := &result{Seed: w.Seed, World: w.String(), Group: group(w.Limit != nil), Calls: w.Calls(), Features: w.Features(), Clients: map[string]figures{}}
	for _, run := range runs {
		r.names = append(r.names, run.Client)
		summaries[run.Client], byName[run.Client] = run.Summarize(), run
	}
	plain, retrying := summaries[worlds.Plain], summaries[worlds.RetryableHTTPSafe]
	r.Peer = worlds.RetryableHTTPSafe
	if plain.Better(retrying) {
		r.Peer = worlds.Plain
	}
	r.Tame = w.Limit == nil && summaries[r.Peer].FailedShare() < 1
	for _, run := range runs {
		f := newFigures(run, summaries[run.Client])
		f.compare(run, byName[r.Peer], byName[worlds.Oracle])
		if oracle, ok := summaries[worlds.Oracle]; ok {
			f.Wasted = 100 * float64(f.Rejected) / float64(max(oracle.Sent, 1))
			f.Beyond = f.Failed - oracle.FailedShare()
		}
		f.Violations = worlds.Violations(run, byName[cmp.Or(worlds.WithoutTracker(run.Client), r.Peer)], byName[worlds.Oracle])
		r.Clients[run.Client] = f
	}
	return r
}

func newFigures(run *worlds.Run, s worlds.Summary) figures {
	f := figures{
		Failed: s.FailedShare(), Reasons: s.Reasons, Mean: s.Mean.Seconds(), Median: s.Median.Seconds(), P99: s.P99.Seconds(),
		Elapsed: run.Elapsed.Seconds(), Cut: run.Cut, Sent: s.Sent, Rejected: s.Rejected,
	}
	if m := run.Memory; m != nil {
		f.Bytes, f.Accounts, f.Memory = m.Peak, m.Accounts, m.Problems
	}
	return f
}

// compare adds the comparison with a peer and, if there is a limit, with the oracle.
func (f *figures) compare(run, peer, oracle *worlds.Run) {
	c := worlds.Compare(run, peer, oracle)
	f.Harm, f.Points, f.Error, f.Late, f.Short, f.Long = c.Harm, c.Points, c.Error, c.Late, c.Short, c.Long
	f.Slower = worlds.Slower(run, peer)
	if f.Harm > 0 && run.Waits != nil {
		f.Causes = map[string]float64{}
		for cause, n := range c.Causes {
			f.Causes[cause] = f.Harm * float64(n) / float64(c.Harmed)
		}
	}
}

// print prints r for a reader.
func (r *result) print(w io.Writer) {
	printf(w, "%d: %s\n", r.Seed, r.World)
	for _, name := range r.names {
		f := r.Clients[name]
		mark := ""
		if name == r.Peer {
			mark = "the better peer"
		}
		if f.Cut {
			mark += " cut"
		}
		printf(w, "  %-18s failed %6.2f %%, mean %8s, p99 %8s, sent %6d, rejected %6d, %8s | harm %6.2f (%.2f ± %.2f), late %d, 60 s %.1f, 600 s %.1f, %.3g x slower %s %v\n",
			name, f.Failed, seconds(f.Mean), seconds(f.P99), f.Sent, f.Rejected, seconds(f.Elapsed),
			f.Harm, f.Points, f.Error, f.Late, f.Short, f.Long, f.Slower, mark, f.Reasons)
		for _, cause := range largestFirst(f.Causes) {
			printf(w, "%28.2f points: %s\n", f.Causes[cause], cause)
		}
		for _, problem := range f.Memory {
			printf(w, "%28s memory: %s\n", "", problem)
		}
	}
}

// seconds formats a time with three digits.
func seconds(s float64) string {
	d := time.Duration(s * float64(time.Second))
	switch {
	case d >= 10*time.Second:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	}
	return d.Round(10 * time.Microsecond).String()
}

// largestFirst returns the causes, those of most points first.
func largestFirst(points map[string]float64) []string {
	return slices.SortedFunc(maps.Keys(points), func(a, b string) int {
		return cmp.Or(cmp.Compare(points[b], points[a]), cmp.Compare(a, b))
	})
}
