package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/heed-go/heed/bench/internal/simulation"
)

// A table prints a line for each row and compares heed with its goals.
type table struct {
	clients    []string
	results    []result // of the current row
	header     bool     // the header has been printed
	rows       int
	missedRows int // rows in which heed misses a goal
	lines      []line
}

// A line is what heed costs in a row in addition to the best peer.
type line struct {
	name   string
	points float64 // of failed calls
	times  float64 // the time as a multiple of that of the fastest peer that fails no more; zero if heed fails more
}

// evaluate adds r and, with the last result of a row, returns its results and the goals
// that heed misses in it.
func (t *table) evaluate(r result) (row []result, missed []string) {
	t.results = append(t.results, r)
	if !r.lastInRow {
		return nil, nil
	}
	row, t.results = t.results, nil
	t.rows++
	if missed = misses(row); len(missed) > 0 {
		t.missedRows++
	}
	if heedResults := byClient(row, "heed"); len(heedResults) > 0 {
		t.lines = append(t.lines, compare(row))
	}
	return row, missed
}

// add prints the row of which r is the last result.
func (t *table) add(r result) {
	row, missed := t.evaluate(r)
	if row == nil {
		return
	}
	if !t.header {
		t.header = true
		fmt.Printf("%-9s%-82s", "family", "row")
		for _, name := range t.clients {
			fmt.Printf(" | %-7.7s %6s %7s %7s", name+" %", "max", "s", "max")
		}
		fmt.Println(" | goals")
	}
	fmt.Printf("%-9s%-82s", r.Family, r.Row)
	for _, name := range t.clients {
		f, e := summarize(row, name, result.failed), summarize(row, name, result.time)
		fmt.Printf(" | %7.2f %6.2f %7.3f %7.3f", f.Mean, f.Max, e.Mean, e.Max)
	}
	verdict := "met"
	if len(missed) > 0 {
		verdict = "missed: " + strings.Join(missed, ", ")
	}
	fmt.Println(" |", verdict)
}

// worst prints the n rows in which heed is worst beside the best peer, by failures and by time.
func (t *table) worst(n int) {
	list := func(title, unit string, by func(line) float64, least float64) {
		slices.SortStableFunc(t.lines, func(a, b line) int { return cmp.Compare(by(b), by(a)) })
		fmt.Println(title)
		for _, l := range t.lines[:min(n, len(t.lines))] {
			if by(l) > least {
				fmt.Printf("%10.2f %s  %s\n", by(l), unit, l.name)
			}
		}
	}
	sum, over := 0.0, 0
	for _, l := range t.lines {
		sum += max(l.points, 0)
		if l.points > 5 {
			over++
		}
	}
	fmt.Printf("%d of %d rows miss a goal; more failures than the best peer: %.0f points in all, %d rows by more than 5\n", t.missedRows, t.rows, sum, over)
	list("rows with the most failures in addition to the best peer:", "points", func(l line) float64 { return l.points }, .5)
	list("rows that take the longest beside a peer that fails no more:", "x", func(l line) float64 { return l.times }, 1.2)
}

const (
	// elapsedSlack is what may be added to the time of a peer: what a new host may cost.
	elapsedSlack = 100 * time.Millisecond

	// meanSlack is the same for the mean time of calls.
	meanSlack = 50 * time.Millisecond

	// comparable is the percentage of calls that a peer may fail in addition if times are compared: one that
	// does not retry is faster.
	comparable = .05
)

// misses returns the goals that heed misses in a row. Failures are compared for every seed,
// times by their mean and their maximum, and only with peers that fail no more.
func misses(row []result) (missed []string) {
	miss := func(ok bool, format string, args ...any) {
		if !ok {
			missed = append(missed, fmt.Sprintf(format, args...))
		}
	}
	g := row[0].row.goal
	heedResults := byClient(row, "heed")
	if len(heedResults) == 0 {
		return nil
	}
	over, early, peerNames := 0, 0, []string{}
	for _, name := range g.peers {
		if len(byClient(row, name)) == len(heedResults) {
			peerNames = append(peerNames, name)
		}
	}
	for i, ours := range heedResults {
		best := 100.
		for _, name := range peerNames {
			best = min(best, byClient(row, name)[i].failed())
		}
		if ours.failed() > best+g.points {
			over++
		}
		early += ours.Early
	}
	miss(over == 0, "more failures than %s in %d of %d seeds", strings.Join(peerNames, " or "), over, len(heedResults))
	miss(early == 0, "%d sent early", early)
	ours := summarize(row, "heed", result.time)
	for _, name := range peerNames {
		more := summarize(row, name, result.failed).Mean - summarize(row, "heed", result.failed).Mean
		if g.times == 0 || over > 0 || more > comparable {
			continue
		}
		theirs, slack := summarize(row, name, result.time), row[0].slack()
		met := ours.Mean <= g.times*theirs.Mean+slack && ours.Max <= g.times*theirs.Max+slack
		miss(met, "%.1f x the time of %s", max(ours.Mean/theirs.Mean, ours.Max/theirs.Max), name)
	}
	if g.elapsed > 0 {
		miss(summarize(row, "heed", result.elapsed).Max <= g.elapsed.Seconds(), "longer than %v", g.elapsed)
	}
	if g.overload > 0 {
		end := summarize(row, "heed", func(r result) float64 { return r.Overloaded })
		miss(end.Max <= g.overload.Seconds(), "overload until %.1f s", end.Max)
	}
	return missed
}

// compare compares heed with the best of the peers of a row.
func compare(row []result) line {
	ours, best, fastest := summarize(row, "heed", result.failed).Mean, 100., math.Inf(1)
	for _, r := range row {
		if !slices.Contains(r.row.goal.peers, r.Client) {
			continue
		}
		theirs := summarize(row, r.Client, result.failed).Mean
		best = min(best, theirs)
		if theirs <= ours+comparable {
			fastest = min(fastest, summarize(row, r.Client, result.time).Mean)
		}
	}
	l := line{name: row[0].Family + ": " + row[0].Row, points: ours - best}
	if l.points <= row[0].row.goal.points {
		l.times = (summarize(row, "heed", result.time).Mean - row[0].slack()) / fastest
	}
	return l
}

func (r result) failed() float64  { return 100 * float64(r.Failed) / float64(r.Calls) }
func (r result) elapsed() float64 { return r.Elapsed }

// time returns the time that is compared: that of all calls, or in an open loop the mean of
// those that have not failed.
func (r result) time() float64 {
	if r.row.openLoop() {
		return r.Mean
	}
	return r.Elapsed
}

func (r result) slack() float64 {
	if r.row.openLoop() {
		return meanSlack.Seconds()
	}
	return elapsedSlack.Seconds()
}

// byClient returns the results of one client, by seed.
func byClient(row []result, client string) (of []result) {
	for _, r := range row {
		if r.Client == client {
			of = append(of, r)
		}
	}
	return of
}

func summarize(row []result, client string, value func(result) float64) simulation.Summary {
	return simulation.Summarize(byClient(row, client), value)
}
