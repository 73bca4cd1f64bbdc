package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// A pkg is a package of the root module, as listed by go list.
type pkg struct {
	ImportPath   string
	Name         string
	Dir          string
	GoFiles      []string
	Imports      []string
	TestGoFiles  []string
	TestImports  []string
	XTestGoFiles []string
	XTestImports []string
}

func (p *pkg) hasTests() bool { return len(p.TestGoFiles)+len(p.XTestGoFiles) > 0 }

// imports reports whether p or its tests import the package with the given path.
func (p *pkg) imports(path string) bool {
	return slices.Contains(p.Imports, path) || slices.Contains(p.TestImports, path) || slices.Contains(p.XTestImports, path)
}

// packages holds all packages of a module.
type packages struct {
	root string // absolute
	all  []*pkg
	dirs map[string]string // from the root, with slashes, by import path
}

// load lists the packages of the module in a directory.
func load(ctx context.Context, root string) (*packages, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "go", "list", "-json", "./...")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list in %s: %w%s", root, err, stderr(err))
	}
	p := &packages{root: root, dirs: map[string]string{}}
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		one := new(pkg)
		if err := dec.Decode(one); errors.Is(err, io.EOF) {
			return p, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list in %s: %w", root, err)
		}
		dir, err := filepath.Rel(root, one.Dir)
		if err != nil {
			return nil, err
		}
		p.all = append(p.all, one)
		p.dirs[one.ImportPath] = filepath.ToSlash(dir)
	}
}

func stderr(err error) string {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return "\n" + string(exit.Stderr)
	}
	return ""
}

// changes returns all changes that satisfy wanted, in the order of the files.
func (p *packages) changes(wanted func(change) bool) ([]change, error) {
	var all []change
	for _, one := range p.all {
		if one.Name == "main" {
			continue
		}
		for _, name := range one.GoFiles {
			file := filepath.Join(one.Dir, name)
			found, err := changesOf(file)
			if err != nil {
				return nil, err
			}
			for _, c := range found {
				if c.pkg, c.path, c.File = one, file, path.Join(p.dirs[one.ImportPath], name); wanted(c) {
					all = append(all, c)
				}
			}
		}
	}
	return all, nil
}

// testersOf returns the packages whose tests may detect a change of one: the package
// itself, then those that import it.
func (p *packages) testersOf(one *pkg) []*pkg {
	var all []*pkg
	if one.hasTests() {
		all = append(all, one)
	}
	for _, other := range p.all {
		if other != one && other.hasTests() && other.imports(one.ImportPath) {
			all = append(all, other)
		}
	}
	return all
}
