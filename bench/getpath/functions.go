package main

import (
	"bufio"
	"cmp"
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

// A function is one that was executed.
type function struct {
	pkg  string // relative to the module, "." for its root
	file string // base name
	line int
	name string
}

// executed reads the output of go tool covdata func and returns the functions of the module
// that were executed, by package, file and line.
func executed(r io.Reader) ([]function, error) {
	var all []function
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) != 3 || fields[0] == "total" || fields[2] == "0.0%" {
			continue
		}
		f, err := parse(fields[0], fields[1])
		if err != nil {
			return nil, err
		}
		if f.pkg != "" {
			all = append(all, f)
		}
	}
	slices.SortFunc(all, func(a, b function) int {
		return cmp.Or(cmp.Compare(a.pkg, b.pkg), cmp.Compare(a.file, b.file), cmp.Compare(a.line, b.line))
	})
	return all, lines.Err()
}

// parse returns the function called name at a position such as
// "github.com/heed-go/heed/quota/tracker.go:12:". Its pkg is empty if it is not of the module.
func parse(position, name string) (function, error) {
	file, line, found := strings.Cut(strings.TrimSuffix(position, ":"), ":")
	n, err := strconv.Atoi(line)
	if !found || err != nil {
		return function{}, fmt.Errorf("%q is not a position", position)
	}
	relative, found := strings.CutPrefix(file, module+"/")
	top, _, inFolder := strings.Cut(relative, "/")
	if !found || inFolder && slices.Contains(nested, top) {
		return function{}, nil
	}
	return function{path.Dir(relative), path.Base(relative), n, name}, nil
}

// countFiles returns the number of files that contain functions.
func countFiles(functions []function) int {
	files := map[string]bool{}
	for _, f := range functions {
		files[path.Join(f.pkg, f.file)] = true
	}
	return len(files)
}
