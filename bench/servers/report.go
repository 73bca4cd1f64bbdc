package main

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
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
	if job.Client == "heed" {
		line += "  " + verdict(r.goalOf(job).missedBy([]result{job}))
	}
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

func (r *report) goalOf(job result) goal {
	i := slices.IndexFunc(r.rows, func(row row) bool { return row.server == job.Server })
	return r.rows[i].goals[job.Job-1]
}

// missedBy returns the goals that any of the runs of a job misses.
func (g goal) missedBy(runs []result) (missed []string) {
	worst := func(f func(result) float64) float64 { return summarize(runs, f).max }
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

// misses returns a line for each job in which heed misses a goal.
func (r *report) misses() (lines []string) {
	for _, row := range r.rows {
		for job := 1; job <= 2; job++ {
			runs := r.runs(row.server, "heed", job)
			if missed := row.goals[job-1].missedBy(runs); len(missed) > 0 {
				lines = append(lines, fmt.Sprintf("%s, job %d: %s", row.server, job, strings.Join(missed, ", ")))
			}
		}
	}
	return lines
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
		"%d calls from %d goroutines. Ideal: the shortest time that the server allows for the first job. W: requests that the server refused. x: time as a multiple of the ideal time of the job; a dash if more than 1 %% of the\n"+
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
		for _, m := range row.goals[job-1].missedBy(r.runs(row.server, "heed", job)) {
			missed = append(missed, fmt.Sprintf("job %d %s", job, m))
		}
	}
	return missed
}

// cells returns the cells of a job: wasted, time and failed.
func cells(runs []result) string {
	cell := func(format string, f func(result) float64) string {
		s := summarize(runs, f)
		median, most := fmt.Sprintf(format, s.median), fmt.Sprintf(format, s.max)
		if median == most {
			return median
		}
		return fmt.Sprintf("%s (%s)", median, most)
	}
	x := cell("%.2f", result.times)
	if summarize(runs, result.failed).median > calls/100 {
		x = "-"
	}
	return fmt.Sprintf(" %s | %s | %s |", cell("%.0f", result.wasted), x, cell("%.0f", result.failed))
}

func (r result) wasted() float64 { return float64(r.Wasted) }
func (r result) failed() float64 { return float64(r.Failed) }

// A summary is the median and the maximum of runs.
type summary struct{ median, max float64 }

func summarize(runs []result, f func(result) float64) summary {
	if len(runs) == 0 {
		return summary{}
	}
	values := make([]float64, 0, len(runs))
	for _, r := range runs {
		values = append(values, f(r))
	}
	slices.SortFunc(values, cmp.Compare)
	return summary{values[(len(values)-1)/2], values[len(values)-1]}
}
