// Replay replays every file of reference traces in a directory with our limiters and prints
// the result for each. It skips files of unknown kinds.
//
//	go run ./bench/replay -dir DIR -json
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/heed-go/heed/internal/replay"
)

func main() {
	log.SetFlags(0)
	dir := flag.String("dir", "", "folder with files of traces, one scenario a line")
	asJSON := flag.Bool("json", false, "print a line of JSON for each file")
	flag.Parse()
	files, err := filepath.Glob(filepath.Join(*dir, "*.jsonl"))
	if err != nil {
		log.Fatal(err)
	}
	if len(files) == 0 {
		log.Fatalf("replay: no *.jsonl in %q: name a folder with -dir", *dir)
	}
	differs := false
	for _, f := range files {
		r, known, err := replay.File(f)
		if err != nil {
			log.Fatal(err)
		}
		if !known {
			log.Printf("%s: no scenario of a known shape", r.File)
			continue
		}
		show(r, *asJSON)
		differs = differs || r.Mismatches > 0
	}
	if differs {
		os.Exit(1)
	}
}

// show prints r and its differences.
func show(r replay.Report, asJSON bool) {
	for _, d := range r.Differences {
		log.Print(d)
	}
	if !asJSON {
		fmt.Printf("%-28s %5d scenarios %7d operations %5d mismatches %5d waived\n", r.File, r.Scenarios, r.Ops, r.Mismatches, r.Waived)
		return
	}
	if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
		log.Fatal(err)
	}
}
