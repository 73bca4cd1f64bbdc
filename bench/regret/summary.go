package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/heed-go/heed/bench/internal/worlds"
)

// A summary collects the results of all worlds.
type summary struct {
	clients []string
	results []*result
}

func newSummary(clients []string) *summary { return &summary{clients: clients} }

func (s *summary) add(r *result) { s.results = append(s.results, r) }

// A row is the figures of one client in a group of worlds. Shares are in percent.
type row struct {
	Group  string  `json:"group"`
	Worlds int     `json:"worlds"`
	Client string  `json:"client"`
	Failed float64 `json:"failed"` // mean
	Harm   float64 `json:"harm"`   // mean, in points

	Over05 float64 `json:"over_0.5"` // of the worlds, with a harm of more than 0.5 points
	Over5  float64 `json:"over_5"`
	Over20 float64 `json:"over_20"`

	Short5  float64 `json:"short_5"`  // of the worlds, with a harm of more than 5 points within 60 s
	Long05  float64 `json:"long_0.5"` // with a harm of more than 0.5 points within 600 s
	Slower2 float64 `json:"slower_2"` // more than 2 x slower
	Slow10  float64 `json:"slower_10"`

	Wasted   float64 `json:"wasted,omitempty"` // mean
	Beyond   float64 `json:"beyond,omitempty"` // mean
	Rejected int     `json:"rejected"`
	Sent     int     `json:"sent"`
}

// rows returns a row for each client and group.
func (s *summary) rows() (rows []row) {
	for _, name := range []string{tame, noLimit, withLimit} {
		for _, client := range s.clients {
			if r := s.row(name, client); r.Worlds > 0 {
				rows = append(rows, r)
			}
		}
	}
	return rows
}

func (s *summary) row(group, client string) row {
	r := row{Group: group, Client: client}
	for _, world := range s.results {
		f, ok := world.Clients[client]
		if !ok || world.Group != group && !(group == tame && world.Tame) {
			continue
		}
		r.add(f)
	}
	n := max(float64(r.Worlds), 1)
	for _, mean := range []*float64{&r.Failed, &r.Harm, &r.Wasted, &r.Beyond} {
		*mean /= n
	}
	for _, share := range []*float64{&r.Over05, &r.Over5, &r.Over20, &r.Short5, &r.Long05, &r.Slower2, &r.Slow10} {
		*share *= 100 / n
	}
	return r
}

// add adds the figures of a world. The means and shares are sums until all were added.
func (r *row) add(f figures) {
	count := func(n *float64, ok bool) {
		if ok {
			*n++
		}
	}
	r.Worlds++
	r.Failed += f.Failed
	r.Harm += f.Harm
	r.Wasted += f.Wasted
	r.Beyond += f.Beyond
	r.Rejected += f.Rejected
	r.Sent += f.Sent
	count(&r.Over05, f.Harm > .5)
	count(&r.Over5, f.Harm > 5)
	count(&r.Over20, f.Harm > 20)
	count(&r.Short5, f.Short > 5)
	count(&r.Long05, f.Long > .5)
	count(&r.Slower2, f.Slower > 2)
	count(&r.Slow10, f.Slower > 10)
}

// print prints the summary for a reader, and the worlds in which the client of heed does
// most harm.
func (s *summary) print(w io.Writer, worst int) {
	group := ""
	for _, r := range s.rows() {
		if r.Group != group {
			group = r.Group
			printf(w, "\n%s: %d worlds\n", group, r.Worlds)
			printf(w, "%-18s %8s %7s | %6s %6s %6s | %7s %8s | %6s %6s |", "client", "failed %", "harm", ">0.5 %", ">5 %", ">20 %", "60 s >5", "600 >0.5", ">2 x %", ">10 x")
			if group == withLimit {
				printf(w, " %10s %8s |", "rejected %", "beyond")
			}
			printf(w, " %8s %8s\n", "rejected", "sent")
		}
		printf(w, "%-18s %8.2f %7.2f | %6.1f %6.1f %6.1f | %7.1f %8.1f | %6.1f %6.1f |", r.Client, r.Failed, r.Harm, r.Over05, r.Over5, r.Over20, r.Short5, r.Long05, r.Slower2, r.Slow10)
		if group == withLimit {
			printf(w, " %10.1f %8.2f |", r.Wasted, r.Beyond)
		}
		printf(w, " %8d %8d\n", r.Rejected, r.Sent)
	}
	ours := s.ours()
	if ours == "" {
		return
	}
	s.printDistribution(w, ours)
	if worst > 0 {
		printf(w, "\nworst worlds of %s\n", ours)
		for _, r := range s.worst(ours, worst) {
			r.print(w)
		}
	}
}

// printDistribution prints the harm that a part of the worlds does not exceed.
func (s *summary) printDistribution(w io.Writer, client string) {
	printf(w, "\nharm of %s in points:", client)
	sorted := s.worst(client, len(s.results))
	for _, percent := range []int{50, 75, 90, 95, 98, 99, 100} {
		i := len(sorted) * (100 - percent) / 100
		printf(w, " %d %% of the worlds <= %.1f%s", percent, sorted[i].Clients[client].Harm, map[bool]string{true: ",", false: "\n"}[percent < 100])
	}
}

// printCauses prints the harm of the client that is judged by why the harmed calls were late or not sent again, and by
// the properties of the worlds.
func (s *summary) printCauses(w io.Writer) {
	ours := s.ours()
	for _, name := range []string{tame, noLimit, withLimit} {
		causes := map[string]float64{}
		for _, r := range s.results {
			if r.Group == name || name == tame && r.Tame {
				for cause, points := range r.Clients[ours].Causes {
					causes[cause] += points
				}
			}
		}
		n := float64(s.row(name, ours).Worlds)
		printf(w, "\n%-36s %7s\n", name, "harm")
		for _, cause := range largestFirst(causes) {
			printf(w, "%-36s %7.3f\n", cause, causes[cause]/n)
		}
	}
	for _, name := range []string{noLimit, withLimit} {
		groups := map[string]*row{}
		for _, r := range s.results {
			if r.Group != name {
				continue
			}
			for _, feature := range r.Features {
				if groups[feature] == nil {
					groups[feature] = &row{Group: feature}
				}
				groups[feature].add(r.Clients[ours])
			}
		}
		printf(w, "\n%-36s %6s %8s %7s %6s %8s\n", name, "worlds", "failed %", "harm", ">5 %", ">10 x")
		for _, feature := range slices.Sorted(maps.Keys(groups)) {
			g := groups[feature]
			n := float64(g.Worlds)
			printf(w, "%-36s %6d %8.2f %7.2f %6.1f %8.1f\n", feature, g.Worlds, g.Failed/n, g.Harm/n, 100*g.Over5/n, 100*g.Slow10/n)
		}
	}
}

// ours returns the client that is judged.
func (s *summary) ours() string {
	for _, name := range []string{worlds.Heed, worlds.HeedFull, worlds.HeedOff} {
		if slices.Contains(s.clients, name) {
			return name
		}
	}
	return ""
}

// worst returns the n worlds in which a client does most harm.
func (s *summary) worst(client string, n int) []*result {
	sorted := slices.Clone(s.results)
	slices.SortStableFunc(sorted, func(a, b *result) int { return cmp.Compare(b.Clients[client].Harm, a.Clients[client].Harm) })
	return sorted[:min(n, len(sorted))]
}

// totals is the last line of JSON.
type totals struct {
	Rows       []row                     `json:"rows"`
	Missed     []string                  `json:"missed"`
	Violations map[string]map[string]int `json:"violations"` // worlds by client and invariant
}

func (s *summary) figures() totals {
	return totals{s.rows(), s.missed(), s.violations()}
}

// violations returns in how many worlds each client violates each invariant.
func (s *summary) violations() map[string]map[string]int {
	all := map[string]map[string]int{}
	for _, r := range s.results {
		for client, f := range r.Clients {
			for name, n := range f.Violations {
				if all[client] == nil {
					all[client] = map[string]int{}
				}
				if n > 0 {
					all[client][name]++
				}
			}
		}
	}
	return all
}

// missed returns the goals that heed misses.
func (s *summary) missed() (missed []string) {
	if s.ours() == "" {
		return nil
	}
	goal := func(r row, name string, value, most float64) {
		if r.Worlds > 0 && value > most+1e-9 {
			missed = append(missed, fmt.Sprintf("%s, %s: %.2f, goal %.3g", r.Group, name, value, most))
		}
	}
	r := s.row(tame, s.ours())
	goal(r, "% of the worlds harmed by > 0.5 points", r.Over05, 1)
	goal(r, "% of the worlds harmed by > 5 points", r.Over5, 0)
	r = s.row(noLimit, s.ours())
	goal(r, "% of the worlds harmed by > 0.5 points", r.Over05, 5)
	goal(r, "% of the worlds harmed by > 5 points", r.Over5, 1)
	goal(r, "% of the worlds harmed by > 20 points", r.Over20, 0)
	goal(r, "mean failed %", r.Failed, s.row(noLimit, worlds.RetryableHTTPSafe).Failed)
	r = s.row(withLimit, s.ours())
	goal(r, "% of the worlds harmed by > 0.5 points", r.Over05, 10)
	goal(r, "% of the worlds harmed by > 5 points", r.Over5, 3)
	goal(r, "rejected by what the oracle sent, mean %", r.Wasted, 25)
	goal(r, "failed beyond the oracle, mean points", r.Beyond, 6)
	return missed
}

// printInvariants prints in how many worlds each client violates each invariant, and the
// worst worlds with the number of violations.
func (s *summary) printInvariants(w io.Writer) {
	printf(w, "\nworlds that violate an invariant\n")
	for _, client := range s.clients {
		for _, name := range worlds.Invariants() {
			var seeds []*result
			checked := 0
			for _, r := range s.results {
				if _, ok := r.Clients[client].Violations[name]; ok {
					checked++
				}
				if r.Clients[client].Violations[name] > 0 {
					seeds = append(seeds, r)
				}
			}
			slices.SortStableFunc(seeds, func(a, b *result) int {
				return cmp.Compare(b.Clients[client].Violations[name], a.Clients[client].Violations[name])
			})
			list := make([]string, 0, 8)
			for _, r := range seeds[:min(len(seeds), 8)] {
				list = append(list, fmt.Sprintf("%d (%d)", r.Seed, r.Clients[client].Violations[name]))
			}
			printf(w, "%-18s %-3s %4d of %4d worlds: %s\n", client, name, len(seeds), checked, strings.Join(list, ", "))
		}
	}
}
