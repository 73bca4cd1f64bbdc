package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// consume builds and runs the consumer of m in a module of its own, and returns the modules
// that it links besides those of mods.
func consume(root, temp, proxy string, m releaseModule, mods []releaseModule) (linked []string, err error) {
	dir := filepath.Join(temp, m.consumer)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(root, "bench", "releasecheck", "consumer", m.consumer, "main.go"))
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "main.go"), text, 0o644); err != nil {
		return nil, err
	}
	env, err := environment(temp, proxy)
	if err != nil {
		return nil, err
	}
	run := func(args ...string) (string, error) { return goCommand(dir, env, args...) }
	for _, args := range [][]string{
		{"mod", "init", "example.com/consumer"},
		{"get", m.path + "@" + m.version},
		{"build", "-o", "consumer", "."},
		{"mod", "verify"},
	} {
		if _, err := run(args...); err != nil {
			return nil, err
		}
	}
	cmd := exec.Command(filepath.Join(dir, "consumer"))
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("it fails: %w: %s", err, out)
	}
	out, err := run("list", "-deps", "-json=Module", ".")
	if err != nil {
		return nil, err
	}
	return linkedModules(out, m, mods)
}

// linkedModules reads the output of go list and returns the modules besides those of mods.
// It fails if a module of mods has another version or is replaced, or if the consumer of m
// must not link a module.
func linkedModules(list string, m releaseModule, mods []releaseModule) (linked []string, err error) {
	for dec := json.NewDecoder(strings.NewReader(list)); dec.More(); {
		var p struct {
			Module *struct {
				Path, Version string
				Main          bool
				Replace       *struct{ Path string }
			}
		}
		if err := dec.Decode(&p); err != nil {
			return nil, err
		}
		if p.Module == nil || p.Module.Main || slices.Contains(linked, p.Module.Path) {
			continue
		}
		i := slices.IndexFunc(mods, func(m releaseModule) bool { return m.path == p.Module.Path })
		switch {
		case i >= 0 && p.Module.Replace != nil:
			return nil, fmt.Errorf("it links a replacement of %s", p.Module.Path)
		case i >= 0 && p.Module.Version != mods[i].version:
			return nil, fmt.Errorf("it links %s %s, not %s", p.Module.Path, p.Module.Version, mods[i].version)
		case i >= 0:
			continue
		case m.links != nil && !slices.Contains(m.links, p.Module.Path):
			return nil, fmt.Errorf("it links %s: a program that imports only %s must not", p.Module.Path, m.path)
		}
		linked = append(linked, p.Module.Path)
	}
	slices.Sort(linked)
	return linked, nil
}

// environment returns the variables of the go command. Packed modules are stored in a
// module cache of their own, so that they never stand for a release; modules of others come
// from the cache of this machine if it has them.
func environment(temp, proxy string) ([]string, error) {
	out, err := exec.Command("go", "env", "GOPROXY", "GOMODCACHE", "GONOSUMDB", "GOSUMDB").Output()
	if err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	normal := strings.Split(string(out), "\n")
	cache := filepath.Join(normal[1], "cache", "download")
	return append(os.Environ(),
		"GOPROXY="+strings.Join([]string{fileURL(proxy), fileURL(cache), normal[0]}, ","),
		"GONOSUMDB="+strings.TrimPrefix(normal[2]+",github.com/heed-go/*", ","),
		"GOSUMDB="+normal[3],
		"GOENV=off", // with GONOPROXY or GOPRIVATE the go command would not ask the proxy first
		"GONOPROXY=",
		"GOPRIVATE=",
		"GOMODCACHE="+filepath.Join(temp, "mod"),
		"GOFLAGS=-mod=mod -modcacherw",
		"GOWORK=off",
	), nil
}

func fileURL(dir string) string {
	return "file:///" + strings.TrimPrefix(filepath.ToSlash(dir), "/")
}

func goCommand(dir string, env []string, args ...string) (string, error) {
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Env = dir, env
	out, err := cmd.Output()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		return "", fmt.Errorf("go %s: %w:\n%s", strings.Join(args, " "), err, exit.Stderr)
	}
	return string(out), err
}
