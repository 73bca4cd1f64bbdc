// Testsummary reads the output of go test -json, of one or several runs, and prints it as go
// test does without -v. At the end it counts the skipped tests by reason, and names what failed
// once more, since the end of a log is what people see. It fails if a test or a build failed.
//
//	go test -json ./... | go run ./bench/testsummary
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"regexp"
	"slices"
	"strings"
)

var errFailed = errors.New("tests failed")

func main() {
	log.SetFlags(0)
	if err := summarize(os.Stdin, os.Stdout); err != nil {
		log.Fatal("testsummary: ", err)
	}
}

// An event is a line of go test -json. See "go doc test2json".
type event struct {
	Action, Package, Test, Output string
	ImportPath                    string // instead of Package, of builds
}

type testKey struct{ pkg, test string }

type summary struct {
	w       io.Writer
	output  map[testKey]*bytes.Buffer // of tests that have not ended, and of packages with test ""
	skipped map[string]int            // number of tests by reason
	failed  []string                  // a line each
}

func summarize(r io.Reader, w io.Writer) error {
	s := &summary{w: w, output: map[testKey]*bytes.Buffer{}, skipped: map[string]int{}}
	in := bufio.NewScanner(r)
	in.Buffer(nil, 64<<20)
	for in.Scan() {
		var e event
		if line := in.Bytes(); !bytes.HasPrefix(line, []byte("{")) || json.Unmarshal(line, &e) != nil {
			fmt.Fprintf(w, "%s\n", line)
			continue
		}
		s.add(e)
	}
	s.report()
	if err := in.Err(); err != nil {
		return err
	}
	if len(s.failed) > 0 {
		return errFailed
	}
	return nil
}

func (s *summary) add(e event) {
	key := testKey{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		fmt.Fprint(s.w, e.Output)
	case "build-fail":
		s.failed = append(s.failed, cmp.Or(e.ImportPath, e.Package)+" does not build")
	case "output":
		if s.output[key] == nil {
			s.output[key] = new(bytes.Buffer)
		}
		s.output[key].WriteString(e.Output)
	case "pass", "skip", "fail":
		text := ""
		if b := s.output[key]; b != nil {
			text = b.String()
			delete(s.output, key)
		}
		s.end(e, text)
	}
}

// end processes the end of a test or package, with its output.
func (s *summary) end(e event, text string) {
	switch {
	case e.Test == "" && e.Action == "fail":
		all := s.flush(e.Package) + text
		fmt.Fprint(s.w, all)
		if line := crashLine.FindString(all); line != "" {
			s.failed = append(s.failed, e.Package+": "+line)
		} else if !slices.ContainsFunc(s.failed, func(f string) bool { return strings.HasPrefix(f, e.Package+" ") }) {
			s.failed = append(s.failed, e.Package)
		}
	case e.Test == "":
		if !strings.Contains(text, "[no test files]") {
			last := strings.LastIndex(strings.TrimSuffix(text, "\n"), "\n")
			fmt.Fprint(s.w, text[last+1:]) // the result, without what tests print
		}
	case e.Action == "fail":
		s.failed = append(s.failed, e.Package+" "+e.Test)
		fmt.Fprint(s.w, text)
	case e.Action == "skip":
		s.skipped[reasonOf(text)]++
	}
}

// crashLine is the first line of what a program prints that a signal, a panic or the runtime ends.
var crashLine = regexp.MustCompile(`(?m)^(SIG[A-Z]+: |panic: |fatal error: |ThreadSanitizer: |unexpected fault ).*`)

// flush returns the output of the tests of a package that have not ended: a crash ended them.
func (s *summary) flush(pkg string) string {
	var all strings.Builder
	for key, text := range s.output {
		if key.pkg == pkg && key.test != "" {
			all.Write(text.Bytes())
			delete(s.output, key)
		}
	}
	return all.String()
}

// report prints the number of skipped tests by reason, and what failed.
func (s *summary) report() {
	reasons := make([]string, 0, len(s.skipped))
	for reason := range s.skipped {
		reasons = append(reasons, reason)
	}
	slices.SortFunc(reasons, func(a, b string) int {
		return cmp.Or(cmp.Compare(s.skipped[b], s.skipped[a]), cmp.Compare(a, b))
	})
	for _, reason := range reasons {
		noun := "tests"
		if s.skipped[reason] == 1 {
			noun = "test"
		}
		fmt.Fprintf(s.w, "skipped: %d %s because %s\n", s.skipped[reason], noun, reason)
	}
	for _, line := range s.failed {
		fmt.Fprintf(s.w, "failed: %s\n", line)
	}
}

var skipMessage = regexp.MustCompile(`(?m)^\s+\w+\.go:\d+: (.*)$`)

// reasonOf returns the message of t.Skip, without details after a colon.
func reasonOf(output string) string {
	m := skipMessage.FindAllStringSubmatch(output, -1)
	if m == nil {
		return "no reason is given"
	}
	reason, _, _ := strings.Cut(m[len(m)-1][1], ": ")
	return reason
}
