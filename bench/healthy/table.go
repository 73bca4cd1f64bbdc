package main

import (
	"fmt"
	"strings"
	"time"
)

// A table prints a line for each row and compares heed with go-retryablehttp.
type table struct {
	clients    []string
	results    []result // of the current row
	header     bool     // the header has been printed
	missedRows int      // rows in which heed misses a goal
}

// evaluate adds r and, with the last result of a row, returns its results and the goals
// that heed misses in it.
func (t *table) evaluate(r result) (row []result, missed []string) {
	t.results = append(t.results, r)
	if !r.lastInRow {
		return nil, nil
	}
	row, t.results = t.results, nil
	if missed = misses(row); len(missed) > 0 {
		t.missedRows++
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
		fmt.Printf("%-8s %-34s %5s %5s", "loop", "fault", "%", "s")
		for _, name := range t.clients {
			fmt.Printf(" | %-13s %6s %8s %8s", name+" %", "max", "s", "max")
		}
		fmt.Println(" | goals")
	}
	fmt.Printf("%-8s %-34s %5.1f %5.1f", r.Loop, r.Fault, r.Percent, r.Deadline)
	for _, name := range t.clients {
		f, e := summarize(row, name, result.failed), summarize(row, name, result.elapsed)
		fmt.Printf(" | %13.2f %6.2f %8.3f %8.3f", f.mean, f.max, e.mean, e.max)
	}
	verdict := "met"
	if len(missed) > 0 {
		verdict = "missed: " + strings.Join(missed, ", ")
	}
	fmt.Println(" |", verdict)
}

// misses returns the goals that heed misses in a row. Failures are compared for every seed,
// times by their mean and their maximum. Times are compared with other clients if these
// retry. With Retry-After: 0, and with 403s, which of all clients only heed retries, there is a
// fixed maximum. The one for 403s is what go-retryablehttp takes for as many 503s, or less.
func misses(row []result) (missed []string) {
	miss := func(ok bool, format string, args ...any) {
		if !ok {
			missed = append(missed, fmt.Sprintf(format, args...))
		}
	}
	r := row[0].row
	other, tolerance := "retryablehttp", .5
	switch {
	case r.fault == singleRejection:
		tolerance = 1
	case r.loop == "overload":
		other, tolerance = "plain", 0
	case r.fault == none:
		tolerance = 0
	}
	heedResults, theirs := byClient(row, "heed"), byClient(row, other)
	if len(heedResults) == 0 || len(theirs) == 0 {
		return nil
	}
	over := 0
	for i, ours := range heedResults {
		if ours.failed() > theirs[i].failed()+tolerance {
			over++
		}
	}
	if r.fault == "403" && r.deadline != 300*time.Millisecond { // so many fail twice by chance
		worst := summarize(row, "heed", result.failed)
		miss(worst.max <= .75, "%.2f %% fail of at most 0.75", worst.max)
	}
	miss(over == 0, "more failures than %s in %d of %d seeds", other, over, len(heedResults))
	ours, time := summarize(row, "heed", result.elapsed), summarize(row, other, result.elapsed)
	switch {
	case r.fault == "403" && r.loop == "closed":
		miss(ours.max <= 2, "longer than 2 s")
	case r.fault == "403" && r.loop == "crowd":
		miss(ours.max <= 4, "longer than 4 s")
	case r.loop == "closed":
		miss(ours.mean <= 1.2*time.mean && ours.max <= 1.2*time.max, "longer than 1.2 x")
	case r.loop == "crowd" && r.fault == retryNow:
		miss(ours.max <= .1, "longer than 0.1 s")
	case r.loop == "crowd":
		miss(ours.mean <= 2*time.mean && ours.max <= 2*time.max, "longer than 2 x")
	case r.loop == "polls":
		miss(ours.max <= pollDelay.Seconds()+3, "the last begins after 3 s")
	case r.loop == "overload":
		end := summarize(row, "heed", func(r result) float64 { return r.Overload })
		miss(end.max <= 10, "overload until %.1f s", end.max)
	}
	return missed
}

func (r result) failed() float64  { return 100 * float64(r.Failed) / float64(r.Calls) }
func (r result) elapsed() float64 { return r.Elapsed }

// byClient returns the results of one client, by seed.
func byClient(row []result, client string) (of []result) {
	for _, r := range row {
		if r.Client == client {
			of = append(of, r)
		}
	}
	return of
}

// A figure summarizes the seeds of a row.
type figure struct{ mean, max float64 }

func summarize(row []result, client string, value func(result) float64) (f figure) {
	results := byClient(row, client)
	for _, r := range results {
		f.mean += value(r) / float64(len(results))
		f.max = max(f.max, value(r))
	}
	return f
}
