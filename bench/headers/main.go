// Headers parses recorded responses of real APIs and counts how many are completely
// correct, with the table of providers and by the general rules alone:
//
//	go run ./headers -f cases.jsonl -json
//
// It prints a line for each error, and then a line of totals.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"

	"github.com/heed-go/heed/internal/headercases"
)

// totals is the last line of the output.
type totals struct {
	Cases  int `json:"cases"`
	Table  int `json:"full_with_table"`
	Rules  int `json:"full_rules_alone"`
	Panics int `json:"panics"`
}

// A miss is a case that was not parsed correctly.
type miss struct {
	ID    string `json:"miss"`
	API   string `json:"api"`
	Table bool   `json:"with_table"`
	Wrong string `json:"wrong"`
}

func main() {
	log.SetFlags(0)
	file := flag.String("f", "", "file of cases, a JSON object on each line")
	asJSON := flag.Bool("json", false, "print JSON lines")
	flag.Parse()
	f, err := os.Open(*file)
	if err != nil {
		log.Fatalf("headers: cannot read the cases: %v: name a file with -f", err)
	}
	defer f.Close()
	all, err := headercases.Read(f)
	if err != nil {
		log.Fatalf("headers: %s: %v", *file, err)
	}
	run(all, printer(*asJSON))
}

func run(all []headercases.Case, print func(any)) {
	t := totals{Cases: len(all)}
	for i := range all {
		for _, table := range []bool{true, false} {
			wrong, panicked := try(&all[i], table)
			switch {
			case panicked:
				t.Panics++
				fallthrough
			case wrong != "":
				print(miss{all[i].ID, all[i].API, table, wrong})
			case table:
				t.Table++
			default:
				t.Rules++
			}
		}
	}
	print(t)
}

// try parses one case. A panic counts as a miss, and is counted separately.
func try(c *headercases.Case, table bool) (wrong string, panicked bool) {
	defer func() {
		if v := recover(); v != nil {
			wrong, panicked = fmt.Sprintf("panic: %v", v), true
		}
	}()
	return c.Compare(c.Report(table), table), false
}

func printer(asJSON bool) func(any) {
	if asJSON {
		out := json.NewEncoder(os.Stdout)
		return func(v any) {
			if err := out.Encode(v); err != nil {
				log.Fatalf("headers: cannot print: %v", err)
			}
		}
	}
	return func(v any) {
		switch v := v.(type) {
		case miss:
			fmt.Printf("%-32s %-24s table %-5v  %s\n", v.ID, v.API, v.Table, v.Wrong)
		case totals:
			fmt.Printf("%d cases: %d in full with the table, %d by rules alone, %d panics\n", v.Cases, v.Table, v.Rules, v.Panics)
		}
	}
}
