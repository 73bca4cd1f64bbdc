// Cards prints the report cards of HTTP clients with retries: the results of heedtest.Check
// for our client and for those of other libraries, each configured as in its documentation.
// The servers are in memory and the time is virtual.
//
//	go run ./cards -out CARDS.md
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/heed-go/heed/bench/internal/simulation"
	_ "github.com/heed-go/heed/heedtest" // sets scorecard.Run
	"github.com/heed-go/heed/internal/scorecard"
)

// A line is one mark of one client.
type line struct {
	Client string           `json:"client"`
	Check  string           `json:"check"`
	Result scorecard.Result `json:"result"`
	Figure float64          `json:"figure"`
	Limit  float64          `json:"limit"`
	Unit   string           `json:"unit"`
	Detail string           `json:"detail,omitempty"`
}

func main() {
	log.SetFlags(0)
	names := flag.String("clients", strings.Join(clientNames(), ";"), "which clients, separated by semicolons")
	asJSON := flag.Bool("json", false, "print a line of JSON for each mark")
	out := flag.String("out", "", "file to write the table to; it is printed in any case")
	check := flag.Bool("check", false, "exit with code 1 if heed fails a check")
	flag.Parse()
	chosen, err := choose(strings.Split(*names, ";"))
	if err != nil {
		log.Fatal("cards: ", err)
	}
	simulation.Main(func(t *testing.T) int {
		cards := measure(t, chosen)
		if err := write(chosen, cards, *asJSON, *out); err != nil {
			log.Print("cards: ", err)
			return 1
		}
		if i := slices.IndexFunc(chosen, func(c client) bool { return c.name == "heed" }); *check && i >= 0 && len(cards[i].Failed()) > 0 {
			return 1
		}
		return 0
	})
}

func clientNames() (names []string) {
	for _, c := range all {
		names = append(names, c.name)
	}
	return names
}

func choose(names []string) (chosen []client, err error) {
	for _, name := range names {
		i := slices.Index(clientNames(), name)
		if i < 0 {
			return nil, fmt.Errorf("no client %q: take one of %s", name, strings.Join(clientNames(), "; "))
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

func measure(t *testing.T, chosen []client) (cards []scorecard.Card) {
	for _, c := range chosen {
		cards = append(cards, scorecard.Run(t, c.build))
	}
	return cards
}

func write(chosen []client, cards []scorecard.Card, asJSON bool, out string) error {
	page := table(chosen, cards)
	if out != "" {
		if err := os.WriteFile(out, []byte(page), 0o666); err != nil {
			return err
		}
	}
	if !asJSON {
		fmt.Print(page)
		return nil
	}
	lines := json.NewEncoder(os.Stdout)
	for i, card := range cards {
		for _, m := range card {
			if err := lines.Encode(line{chosen[i].name, m.Check, m.Result, m.Figure, m.Limit, m.Unit, m.Detail}); err != nil {
				return err
			}
		}
	}
	return nil
}

// table returns the page in Markdown: a row for each check, then what went wrong.
func table(chosen []client, cards []scorecard.Card) string {
	var s strings.Builder
	s.WriteString("# Report cards\n\nWritten by `go run ./cards -out CARDS.md` in `bench/`; do not edit. The checks are those of `heedtest.Check`: each observes one kind of\n" +
		"harm, in memory and in virtual time. A client passes if its figure is at most the limit. **Bold**: failed. n/a: the client never came\n" +
		"into the situation, for instance because it does not retry. Each client is configured as in its documentation, in `bench/cards/clients.go`.\n\n| check | limit |")
	for _, c := range chosen {
		s.WriteString(" " + c.name + " |")
	}
	s.WriteString("\n|---|---|" + strings.Repeat("--:|", len(chosen)) + "\n")
	for i, name := range scorecard.Names() {
		fmt.Fprintf(&s, "| %s | %s %s |", name, number(cards[0][i].Limit), cards[0][i].Unit)
		for _, card := range cards {
			s.WriteString(" " + cell(card[i]) + " |")
		}
		s.WriteString("\n")
	}
	s.WriteString("| failed | |")
	for _, card := range cards {
		fmt.Fprintf(&s, " %d |", len(card.Failed()))
	}
	s.WriteString("\n\n## What went wrong\n\nThe worst trial of each failed check.\n")
	for i, card := range cards {
		fmt.Fprintf(&s, "\n**%s**%s\n\n", chosen[i].name, version(chosen[i].version))
		for _, m := range card.Failed() {
			fmt.Fprintf(&s, "- %s: %s\n", m.Check, m.Detail)
		}
		if len(card.Failed()) == 0 {
			s.WriteString("Full marks.\n")
		}
	}
	return s.String()
}

func cell(m scorecard.Mark) string {
	switch {
	case m.Result == scorecard.NotApplicable:
		return "n/a"
	case m.Result == scorecard.Failed && m.Figure <= m.Limit:
		return "**failed**" // for a reason other than its figure
	case m.Result == scorecard.Failed:
		return "**" + number(m.Figure) + "**"
	}
	return number(m.Figure)
}

// number formats f with at most two decimals.
func number(f float64) string {
	s := strconv.FormatFloat(f, 'f', 2, 64)
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}

// version returns the version of the module at path, in brackets.
func version(path string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok || path == "" {
		return ""
	}
	for _, m := range info.Deps {
		if m.Path == path {
			return " (" + m.Path + " " + m.Version + ")"
		}
	}
	return ""
}
