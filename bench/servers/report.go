package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/heed-go/heed/bench/internal/simulation"
)

// A report summarizes results and compares heed with its goals.
type report struct {
	rows    []row
	clients []string
	results []result
	header  bool // the header of the table has been printed
}

func (r *report) add(job result) { r.results = append(r.results, job) }

// print prints a line for a job.
func (r *report) print(job result) {
	if !r.header {
		r.header = true
		fmt.Printf("%-74s %-14s %3s %4s %6s %6s %6s %9s %8s %6s\n", "server", "client", "job", "seed", "sent", "wasted", "failed", "elapsed s", "ideal s", "x")
	}
	line := fmt.Sprintf("%-74s %-14s %3d %4d %6d %6d %6d %9.2f %8.2f %6s", job.Server, job.Client, job.Job, job.Seed, job.Sent, job.Wasted, job.Failed, job.Elapsed, job.Ideal, ratio(job))
	fmt.Println(line)
}

// ratio returns the elapsed time as a multiple of the ideal one, or a dash if more than 1 %
// of the calls failed: then the time means little.
func ratio(job result) string {
	if job.Failed > job.Calls/100 {
		return "-"
	}
	return fmt.Sprintf("%.2f", job.times())
}

func verdict(missed []string) string {
	if len(missed) == 0 {
		return "met"
	}
	return "missed: " + strings.Join(missed, ", ")
}

// missedBy returns the goals that any of the runs of a job misses.
func (g goal) missedBy(runs []result) (missed []string) {
	worst := func(f func(result) float64) float64 { return simulation.Summarize(runs, f).Max }
	if w := worst(result.wasted); int(w) > g.wasted {
		missed = append(missed, fmt.Sprintf("%.0f wasted of at most %d", w, g.wasted))
	}
	if x := worst(result.times); x > g.time {
		missed = append(missed, fmt.Sprintf("%.2f x of at most %.2f", x, g.time))
	}
	if f := worst(result.failed); int(f) > g.failed {
		missed = append(missed, fmt.Sprintf("%.0f failed of at most %d", f, g.failed))
	}
	return missed
}

// tolerance is how much worse than go-retryablehttp heed may be: figures of two runs differ.
const tolerance = 1.05

// worse lists in what heed is worse than go-retryablehttp: by the worst runs of a job. Times are compared if no
// more than 1 % of the calls of the other fail.
func worse(ours, theirs []result) (in []string) {
	for _, f := range []struct {
		format string
		of     func(result) float64
		spare  float64
	}{{"%.0f wasted, go-retryablehttp %.0f", result.wasted, calls / 100}, {"%.0f failed, go-retryablehttp %.0f", result.failed, calls / 100}, {"%.2f x, go-retryablehttp %.2f x", result.times, 0}} {
		us, them := simulation.Summarize(ours, f.of).Max, simulation.Summarize(theirs, f.of).Max
		if f.spare == 0 && simulation.Summarize(theirs, result.failed).Max > calls/100 {
			continue
		}
		if us > tolerance*them+f.spare {
			in = append(in, fmt.Sprintf(f.format, us, them))
		}
	}
	return in
}

// misses returns a line for each job in which heed misses a goal.
func (r *report) misses() (lines []string) {
	for _, row := range r.rows {
		for job := 1; job <= 2; job++ {
			if missed := r.missedBy(row, job); len(missed) > 0 {
				lines = append(lines, fmt.Sprintf("%s, job %d: missed: %s", row.server, job, strings.Join(missed, ", ")))
			}
		}
	}
	return lines
}

// missedBy returns the goals that heed misses in any run of a job, or with a row that is
// compared in what it is worse.
func (r *report) missedBy(row row, job int) []string {
	ours := r.runs(row.server, "heed", job)
	if row.compared {
		return worse(ours, r.runs(row.server, "retryablehttp", job))
	}
	return goals[job-1].missedBy(ours)
}

// runs returns the results of a job with all seeds.
func (r *report) runs(server, client string, job int) (some []result) {
	for _, x := range r.results {
		if x.Server == server && x.Client == client && x.Job == job {
			some = append(some, x)
		}
	}
	return some
}

// markdown returns bench/SERVERS.md.
func (r *report) markdown(seed, runs int) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# What a job costs on servers that limit requests\n\n"+
		"Written by `cd bench && go run ./servers -seed %d -runs %d -markdown SERVERS.md`; [README.md](README.md#servers) describes the measurement and the goals.\n\n"+
		"%d calls from %d goroutines. Ideal: the shortest time that the server allows for the first job. W: requests that the server rejected. x: time as a multiple of the ideal time of the job; a dash if more than 1 %% of the\n"+
		"calls failed. F: calls that failed. Job 2 uses the same Transport after a pause. Each figure is the median of %d runs, with the maximum in parentheses where it differs.\n\n",
		seed, runs, calls, workers, runs)
	b.WriteString("| server | ideal s |")
	for _, c := range r.clients {
		fmt.Fprintf(&b, " %s 1: W | x | F | 2: W | x | F |", c)
	}
	b.WriteString(" goals of heed |\n|---|--:|" + strings.Repeat("--:|", 6*len(r.clients)) + "---|\n")
	met := 0
	for _, row := range r.rows {
		fmt.Fprintf(&b, "| %s | %.1f |", row.server, r.results[slices.IndexFunc(r.results, func(x result) bool { return x.Server == row.server })].Ideal)
		for _, c := range r.clients {
			for job := 1; job <= 2; job++ {
				b.WriteString(cells(r.runs(row.server, c, job)))
			}
		}
		missed := r.missesOf(row)
		if len(missed) == 0 {
			met++
		}
		fmt.Fprintf(&b, " %s |\n", verdict(missed))
	}
	fmt.Fprintf(&b, "\nheed meets the goals on %d of %d servers.\n", met, len(r.rows))
	return b.Bytes()
}

// missesOf returns the goals that heed misses in any run of row.
func (r *report) missesOf(row row) (missed []string) {
	for job := 1; job <= 2; job++ {
		for _, m := range r.missedBy(row, job) {
			missed = append(missed, fmt.Sprintf("job %d %s", job, m))
		}
	}
	return missed
}

// cells returns the cells of a job: wasted, time and failed.
func cells(runs []result) string {
	cell := func(format string, f func(result) float64) string {
		s := simulation.Summarize(runs, f)
		median, most := fmt.Sprintf(format, s.Median), fmt.Sprintf(format, s.Max)
		if median == most {
			return median
		}
		return fmt.Sprintf("%s (%s)", median, most)
	}
	x := cell("%.2f", result.times)
	if simulation.Summarize(runs, result.failed).Median > calls/100 {
		x = "-"
	}
	return fmt.Sprintf(" %s | %s | %s |", cell("%.0f", result.wasted), x, cell("%.0f", result.failed))
}

func (r result) wasted() float64 { return float64(r.Wasted) }
func (r result) failed() float64 { return float64(r.Failed) }
