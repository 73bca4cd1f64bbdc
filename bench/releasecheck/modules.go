package main

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
)

// A releaseModule is a published module with the version that other modules require.
type releaseModule struct {
	published
	path    string
	version string
	goMod   []byte
}

// readModules returns the published modules. It fails if a module of the repository is
// neither published nor unpublished, or if requirements of one module differ.
func readModules(root string) ([]releaseModule, error) {
	files, err := readGoMods(root)
	if err != nil {
		return nil, err
	}
	versions, err := requiredVersions(files)
	if err != nil {
		return nil, err
	}
	var all []releaseModule
	for _, p := range publishedModules {
		f := files[p.dir]
		if f == nil {
			return nil, fmt.Errorf("%s has no go.mod", p.dir)
		}
		m := releaseModule{published: p, path: f.Module.Mod.Path, version: versions[f.Module.Mod.Path]}
		if m.version == "" {
			return nil, fmt.Errorf("no go.mod requires %s: its version is unknown", m.path)
		}
		if err := module.Check(m.path, m.version); err != nil {
			return nil, err
		}
		if m.goMod, err = os.ReadFile(filepath.Join(root, p.dir, "go.mod")); err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}

// readGoMods returns the go.mod file of each folder that has one.
func readGoMods(root string) (map[string]*modfile.File, error) {
	files := map[string]*modfile.File{}
	err := filepath.WalkDir(root, func(file string, e fs.DirEntry, err error) error {
		name := e.Name()
		switch {
		case err != nil:
			return err
		case e.IsDir() && file != root && (name[0] == '.' || name[0] == '_' || name == "testdata" || name == "node_modules"):
			return fs.SkipDir
		case name != "go.mod":
			return nil
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, filepath.Dir(file))
		if err != nil {
			return err
		}
		dir := filepath.ToSlash(rel)
		files[dir], err = modfile.Parse(file, text, nil)
		return err
	})
	if err != nil {
		return nil, err
	}
	for dir := range files {
		isPublished := slices.ContainsFunc(publishedModules, func(p published) bool { return p.dir == dir })
		if isPublished == slices.Contains(unpublished, dir) {
			return nil, fmt.Errorf("%s must be listed either in publishedModules or in unpublished", path.Join(dir, "go.mod"))
		}
	}
	return files, nil
}

// requiredVersions returns the version of each module of the repository that the others
// require. All must require the same one.
func requiredVersions(files map[string]*modfile.File) (map[string]string, error) {
	prefix := files["."].Module.Mod.Path
	versions, requiredBy := map[string]string{}, map[string]string{}
	for dir, f := range files {
		for _, r := range f.Require {
			p, v := r.Mod.Path, r.Mod.Version
			if p != prefix && !strings.HasPrefix(p, prefix+"/") {
				continue
			}
			if old := versions[p]; old != "" && old != v {
				return nil, fmt.Errorf("%s requires %s %s, but %s requires %s", dir, p, v, requiredBy[p], old)
			}
			versions[p], requiredBy[p] = v, dir
		}
	}
	return versions, nil
}
