package quota_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/heed-go/heed/internal/explain"
)

// plot runs the scenario and prints what happened, in columns of equal time:
//
//	arrivals    the calls that are made
//	accepted    the requests that the server accepts, when they arrive at the server
//	rejected    the number of requests that it rejects
//	waits for   the limit that the first of the waiting calls waits for, most of the time
//
// The number beside a chart is its greatest value. Below the time axis are the limits that
// the Trackers learned and dropped, and in the last line the totals.
func (c *scenario) plot() { fmt.Print(c.run().plot()) }

const (
	defaultColumn = 250 * time.Millisecond
	tickTime      = 5 * time.Second // between the marks of the time axis
	chartHeight   = 3               // lines
	maxNotices    = 6
	levels        = "▁▂▃▄▅▆▇█"
)

// letters are those of the reasons of package quota, and the digit for many rejections.
var letters = []struct{ letter, reason string }{
	{"+", "10 or more"}, {"s", "slow start"}, {"q", "quota"}, {"a", "retry-after"}, {"r", "learned rate"}, {"o", "overload"},
}

// reasonOf returns the reason in the name of a limit.
func reasonOf(policy string) string {
	_, reason := explain.SplitLimit(policy)
	return reason
}

// plot returns the plot, whose lines end without spaces.
func (s *simulation) plot() string {
	p := plotter{column: s.column}
	if p.column == 0 {
		p.column = defaultColumn
	}
	p.columns = int(s.elapsed()/p.column) + 1
	p.line(s.name)
	arrivals := make([]int, p.columns)
	for i := range s.calls {
		arrivals[p.columnOf(s.arrival(i))]++
	}
	p.chart("arrivals", arrivals)
	shown := "" // letters and digits
	for i := range s.clients {
		of := ""
		if len(s.clients) > 1 {
			of = " " + strconv.Itoa(i+1)
		}
		accepted, rejected := s.count(&p, i)
		p.chart("accepted"+of, accepted)
		p.row("rejected"+of, digits(rejected))
		p.row("waits for"+of, s.waits(&p, i))
		shown += digits(rejected) + s.waits(&p, i)
	}
	p.axis()
	p.legend(shown)
	p.notices(s.learned)
	p.line(s.totals())
	return p.text.String()
}

// count returns the requests of a client that were accepted and rejected in each column.
func (s *simulation) count(p *plotter, client int) (accepted, rejected []int) {
	accepted, rejected = make([]int, p.columns), make([]int, p.columns)
	for _, r := range s.requests {
		switch {
		case r.client != client:
		case r.accepted:
			accepted[p.columnOf(r.at)]++
		default:
			rejected[p.columnOf(r.at)]++
		}
	}
	return accepted, rejected
}

// waits returns the letter of the most frequent reason in each column.
func (s *simulation) waits(p *plotter, client int) string {
	counts := make([][]int, p.columns)
	for i := range counts {
		counts[i] = make([]int, len(letters))
	}
	for _, one := range s.samples {
		for i, l := range letters {
			if one.client == client && one.reason == l.reason {
				counts[p.columnOf(one.at)][i]++
			}
		}
	}
	var row strings.Builder
	for _, of := range counts {
		most := slices.Max(of)
		if most == 0 {
			row.WriteByte(' ')
			continue
		}
		row.WriteString(letters[slices.Index(of, most)].letter)
	}
	return row.String()
}

// totals returns the last line.
func (s *simulation) totals() string {
	return fmt.Sprintf("%d calls: %d requests sent, %d rejected, %d calls failed, %s (ideal %s)",
		s.calls, len(s.requests), s.rejected(), s.failed, seconds(s.elapsed()), seconds(s.ideal))
}

// rejected returns the number of requests that the server rejected.
func (s *simulation) rejected() (n int) {
	for _, r := range s.requests {
		if !r.accepted {
			n++
		}
	}
	return n
}

// A plotter writes the lines of a plot.
type plotter struct {
	column  time.Duration
	columns int
	text    strings.Builder
}

// columnOf returns the number of the column of a time.
func (p *plotter) columnOf(at time.Duration) int { return min(int(at/p.column), p.columns-1) }

func (p *plotter) line(s string) { p.text.WriteString(strings.TrimRight(s, " ") + "\n") }

// row writes one line of a series.
func (p *plotter) row(label, row string) { p.line(fmt.Sprintf("%-15s│%s", label, row)) }

// chart writes a column chart.
func (p *plotter) chart(label string, values []int) {
	marks, most := []rune(levels), max(slices.Max(values), 1)
	for line := chartHeight - 1; line >= 0; line-- {
		row := make([]rune, len(values))
		for i, v := range values {
			height := (v*chartHeight*len(marks) + most - 1) / most // rounded up, so that 1 is seen
			row[i] = ' '
			if height -= line * len(marks); height > 0 {
				row[i] = marks[min(height, len(marks))-1]
			}
		}
		if line == chartHeight-1 {
			label = fmt.Sprintf("%-11s%3d ", label, most)
		}
		p.row(label, string(row))
		label = ""
	}
}

// axis writes the time axis.
func (p *plotter) axis() {
	every := max(int(tickTime/p.column), 5) // columns
	line, times := []rune(strings.Repeat("─", p.columns)), strings.Builder{}
	for i := 0; i < p.columns; i += every {
		line[i] = '┬'
		times.WriteString(fmt.Sprintf("%-*s", every, seconds(time.Duration(i)*p.column)))
	}
	p.line(strings.Repeat(" ", 15) + "└" + string(line))
	p.line(strings.Repeat(" ", 16) + times.String())
}

// legend explains the columns, and the letters that a plot shows.
func (p *plotter) legend(shown string) {
	all := []string{"1 column = " + explain.Duration(p.column)}
	for _, l := range letters {
		if strings.Contains(shown, l.letter) {
			all = append(all, l.letter+" = "+l.reason)
		}
	}
	p.line(strings.Join(all, ", "))
}

// notices writes the first events.
func (p *plotter) notices(all []notice) {
	for i, n := range all {
		if i == maxNotices {
			p.line(fmt.Sprintf("and %d more events", len(all)-i))
			return
		}
		p.line(fmt.Sprintf("%7s  %s", seconds(n.at), n.text))
	}
}

// digits returns the values as one digit each.
func digits(values []int) string {
	var row strings.Builder
	for _, v := range values {
		switch {
		case v == 0:
			row.WriteByte(' ')
		case v > 9:
			row.WriteByte('+')
		default:
			row.WriteString(strconv.Itoa(v))
		}
	}
	return row.String()
}

// seconds returns d with one decimal, or none if that is 0.
func seconds(d time.Duration) string {
	return strings.TrimSuffix(strconv.FormatFloat(d.Seconds(), 'f', 1, 64), ".0") + " s"
}
