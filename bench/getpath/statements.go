package main

import (
	"bufio"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"
)

const module = "github.com/heed-go/heed"

// nested are the folders of the repository that are modules of their own, and those that no
// program imports.
var nested = []string{"bench", "examples", "throttleredis"}

// A file is one of which statements were executed.
type file struct {
	Package    string `json:"package"` // relative to the module, "." for its root
	Name       string `json:"name"`
	Statements int    `json:"statements"` // executed at least once
}

// executed reads a profile, the output of go tool covdata textfmt, and returns the files of the module
// of which statements were executed, by package and name.
func executed(profile io.Reader) ([]file, error) {
	statements := map[string]int{} // by path relative to the module
	lines := bufio.NewScanner(profile)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "mode: ") {
			continue
		}
		name, n, err := parse(lines.Text())
		if err != nil {
			return nil, err
		}
		if n > 0 && name != "" {
			statements[name] += n
		}
	}
	files := make([]file, 0, len(statements))
	for name, n := range statements {
		files = append(files, file{path.Dir(name), path.Base(name), n})
	}
	slices.SortFunc(files, func(a, b file) int {
		if a.Package != b.Package {
			return strings.Compare(a.Package, b.Package)
		}
		return strings.Compare(a.Name, b.Name)
	})
	return files, lines.Err()
}

// parse returns the file and the number of executed statements of a block such as
// "github.com/heed-go/heed/quota/tracker.go:12.2,14.3 2 1": the last two numbers are how many statements it
// has, and how often it was executed. The name is empty if the file is not of the module.
func parse(block string) (name string, executed int, err error) {
	position, counts, _ := strings.Cut(block, " ")
	position, _, found := strings.Cut(position, ":")
	of, times, _ := strings.Cut(counts, " ")
	n, err1 := strconv.Atoi(of)
	count, err2 := strconv.ParseUint(times, 10, 64)
	if !found || err1 != nil || err2 != nil {
		return "", 0, fmt.Errorf("%q is not a block of a profile", block)
	}
	if count == 0 {
		n = 0
	}
	name, found = strings.CutPrefix(position, module+"/")
	top, _, inFolder := strings.Cut(name, "/")
	if !found || inFolder && slices.Contains(nested, top) {
		return "", 0, nil
	}
	return name, n, nil
}

// sum returns the number of executed statements of files.
func sum(files []file) (n int) {
	for _, f := range files {
		n += f.Statements
	}
	return n
}
