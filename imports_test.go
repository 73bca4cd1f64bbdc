package heed_test

import (
	"encoding/json"
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// modulePath is the path of the root module.
const modulePath = "github.com/heed-go/heed"

// layers says who may import whom: only what stands further up. Rooms that share
// a layer know nothing of each other. The table holds for all files but those of
// external test packages, which may reach where they like.
//
// A room is a folder with a package. One that ends in "/*" is each folder in it,
// one that ends in "/..." a whole tree, whose packages may import each other.
var layers = [][]string{
	{"backoff", "internal/memhttp", "internal/httphost"},
	{"throttle"},
	{"warmup", "quota", "sketch", "throttle/throttletest"},
	{".", "throttlehttp", "rules", "throttleredis/...", "internal/replay"},
	{"retryable", "debugpage", "heedtest", "internal/headercases"},
	{"examples/gateway", "examples/redis/...", "examples/*", "bench/...", "throttleotel/...", "throttleprom/..."},
}

// nested are the rooms that are modules of their own, so that whoever does not
// use them never gets their dependencies.
var nested = []string{"examples/gateway", "examples/redis/...", "throttleredis/...", "bench/...", "throttleotel/...", "throttleprom/..."}

// arithmetic are the rooms that must not reach net/http, not even through others.
var arithmetic = []string{"backoff", "throttle", "warmup", "sketch"}

// foreign says in which room of the root module the code of others is used. Only
// tests, examples and nested modules are free.
var foreign = map[string]string{
	"github.com/cenkalti/backoff/v4":        "backoff",
	"golang.org/x/time":                     "throttle",
	"github.com/zeebo/xxh3":                 "sketch",
	"golang.org/x/net/http/httpguts":        ".",
	"golang.org/x/net/http2/hpack":          "heedtest",
	"github.com/hashicorp/go-retryablehttp": "retryable",
	"github.com/fsnotify/fsnotify":          "rules",
	"go.yaml.in/yaml/v3":                    "rules",
}

// bannedNames are folders that say nothing of what is in them.
var bannedNames = []string{"util", "utils", "common", "types", "testutil", "helpers", "misc"}

// maxLines is the length that a file with one idea does not reach.
const maxLines = 350

// source is what the rules need to know of one file.
type source struct {
	file    string // slashes, from the root of the repository
	pkg     string
	imports []string
	lines   int
	module  string // folder of the go.mod that it belongs to
}

func (s source) dir() string    { return path.Dir(s.file) }
func (s source) isTest() bool   { return strings.HasSuffix(s.file, "_test.go") }
func (s source) external() bool { return s.isTest() && strings.HasSuffix(s.pkg, "_test") }

func TestImports_followTheOrder(t *testing.T) {
	sources := readRepository(t)
	for _, fault := range faults(sources) {
		t.Error(fault)
	}
}

func TestImports_violationsAreReported(t *testing.T) {
	for name, tt := range map[string]struct {
		source source
		fault  string
	}{
		"up":             {source{file: "throttle/a.go", imports: []string{modulePath + "/quota"}}, "throttle/a.go imports quota: "},
		"up to the root": {source{file: "quota/a.go", imports: []string{modulePath}}, "quota/a.go imports .: "},
		"sideways":       {source{file: "quota/a.go", imports: []string{modulePath + "/warmup"}}, "quota/a.go imports warmup: "},
		"sideways in a test of its own package": {source{file: "quota/a_test.go", pkg: "quota", imports: []string{modulePath + "/warmup"}},
			"quota/a_test.go imports warmup: "},
		"another example":   {source{file: "examples/a/main.go", imports: []string{modulePath + "/examples/b"}}, "examples/a/main.go imports examples/b: "},
		"no room":           {source{file: "queue/a.go"}, "queue/a.go: "},
		"no room for it":    {source{file: "heedtest/a.go", imports: []string{modulePath + "/queue"}}, "heedtest/a.go imports queue: "},
		"nameless":          {source{file: "bench/util/a.go", module: "bench"}, "bench/util/a.go: "},
		"too long":          {source{file: "quota/a.go", lines: maxLines}, "quota/a.go has 350 lines: "},
		"not a module":      {source{file: "throttleredis/a.go"}, "throttleredis/a.go: "},
		"a module":          {source{file: "quota/a.go", module: "quota"}, "quota/a.go: "},
		"net/http":          {source{file: "warmup/a.go", imports: []string{"net/http"}}, "warmup/a.go imports net/http: "},
		"below net/http":    {source{file: "sketch/a.go", imports: []string{"net/http/httptrace"}}, "sketch/a.go imports net/http/httptrace: "},
		"stranger":          {source{file: "quota/a.go", imports: []string{"example.org/x"}}, "quota/a.go imports example.org/x: "},
		"in the wrong room": {source{file: "quota/a.go", imports: []string{"golang.org/x/time/rate"}}, "quota/a.go imports golang.org/x/time/rate: "},
	} {
		if tt.source.module == "" {
			tt.source.module = "."
		}
		got := faults([]source{tt.source})
		require.Len(t, got, 1, name)
		require.Contains(t, got[0], tt.fault, name)
	}
}

func TestImports_validOnesPass(t *testing.T) {
	require.Empty(t, faults([]source{
		{file: "quota/a.go", module: ".", imports: []string{"net/http", modulePath + "/throttle"}, lines: maxLines - 1},
		{file: "throttle/rate.go", module: ".", imports: []string{"golang.org/x/time/rate"}},
		{file: "throttle/a_test.go", pkg: "throttle_test", module: ".", imports: []string{modulePath, "net/http"}, lines: 2000},
		{file: "throttle/b_test.go", pkg: "throttle", module: ".", imports: []string{"github.com/stretchr/testify/require"}},
		{file: "examples/a/main.go", module: ".", imports: []string{modulePath, "github.com/benbjohnson/clock"}},
		{file: "bench/ratio/main.go", module: "bench", imports: []string{modulePath + "/bench", "golang.org/x/time/rate"}},
		{file: "transport.go", module: ".", imports: []string{modulePath + "/quota", "golang.org/x/net/http/httpguts"}},
	}))
}

// TestImports_limitersDoNotReachHTTP asks the go command, which also sees what
// the dependencies import.
func TestImports_limitersDoNotReachHTTP(t *testing.T) {
	for _, dir := range arithmetic {
		if found, _ := filepath.Glob(dir + "/*.go"); len(found) == 0 {
			continue // not built yet
		}
		for dep := range strings.Lines(run(t, "go", "list", "-deps", "./"+dir)) {
			require.NotEqual(t, "net/http", strings.TrimSpace(dep), dir)
		}
	}
}

// TestModules_areInTheWorkspace keeps a clone buildable both ways: in the workspace, and
// with GOWORK=off, where a nested module finds the root by its replace line.
func TestModules_areInTheWorkspace(t *testing.T) {
	var work struct{ Use []struct{ DiskPath string } }
	require.NoError(t, json.Unmarshal([]byte(run(t, "go", "work", "edit", "-json", "go.work")), &work))
	var used []string
	for _, u := range work.Use {
		used = append(used, path.Clean(u.DiskPath))
	}
	require.ElementsMatch(t, modules(t), used, "go.work and the go.mod files of the repository differ")

	for _, dir := range modules(t) {
		if dir == "." {
			continue
		}
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		require.NoError(t, err)
		require.Contains(t, string(mod), "module "+modulePath+"/"+dir+"\n", dir)
		up := strings.Repeat("../", strings.Count(dir, "/")+1)
		require.Contains(t, string(mod), "replace "+modulePath+" => "+up+"\n", dir)
	}
}

// TestDocs_nameTestsThatExist keeps comments and pages honest: what they give
// as evidence must be there.
func TestDocs_nameTestsThatExist(t *testing.T) {
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark|Example)\w*)\(`)
	named := regexp.MustCompile(`\b(?:Test|Fuzz|Benchmark|Example)(?:[A-Z]\w*)?_\w+`)
	exists, claims := map[string]bool{}, map[string]string{}
	walk(t, func(file string) {
		if ext := path.Ext(file); ext != ".go" && ext != ".md" {
			return
		}
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range declared.FindAllSubmatch(text, -1) {
			exists[string(m[1])] = true
		}
		for _, name := range named.FindAll(text, -1) {
			claims[string(name)] = file
		}
	})
	for name, file := range claims {
		if !exists[name] {
			t.Errorf("%s names %s, which does not exist", file, name)
		}
	}
}

// faults returns what is wrong with the house, one line each.
func faults(sources []source) (all []string) {
	for _, s := range sources {
		for _, fault := range []string{misplaced(s), tooLong(s)} {
			if fault != "" {
				all = append(all, fault)
			}
		}
		if dir, _ := place(s.dir()); dir == "" || s.external() {
			continue
		}
		for _, imp := range s.imports {
			if fault := misuse(s, imp); fault != "" {
				all = append(all, fmt.Sprintf("%s imports %s: %s", s.file, under(imp), fault))
			}
		}
	}
	return all
}

func misplaced(s source) string {
	dir, _ := place(s.dir())
	switch {
	case slices.ContainsFunc(strings.Split(s.dir(), "/"), func(p string) bool { return slices.Contains(bannedNames, p) }):
		return s.file + ": the folder's name does not say what is in it"
	case dir == "":
		return s.file + ": the package has no room: give it a line in the table of layers_test.go"
	case slices.Contains(nested, dir) != (s.module != "."):
		return s.file + ": the table of nested modules and its go.mod differ: it belongs to module " + s.module
	}
	return ""
}

func tooLong(s source) string {
	if s.isTest() || s.lines < maxLines {
		return ""
	}
	return fmt.Sprintf("%s has %d lines: one idea per file, under %d lines", s.file, s.lines, maxLines)
}

// misuse says what is wrong when s imports imp.
func misuse(s source, imp string) string {
	from, layer := place(s.dir())
	if rel := under(imp); rel != imp {
		switch to, below := place(rel); {
		case to == "":
			return "it has no room in the table"
		case to == from && strings.HasSuffix(from, "/..."):
			return ""
		case below >= layer:
			return "imports go down only, never sideways"
		}
		return ""
	}
	switch {
	case s.isTest():
		return ""
	case (imp == "net/http" || strings.HasPrefix(imp, "net/http/")) && slices.Contains(arithmetic, from):
		return from + " is arithmetic only"
	case !isStandard(imp) && s.module == "." && from != "examples/*" && packageFor(imp) != from:
		return "the code of others has one room each: see the table foreign in layers_test.go"
	}
	return ""
}

// under returns the folder of a package of ours, and imp itself for all others.
func under(imp string) string {
	if imp == modulePath {
		return "."
	}
	return strings.TrimPrefix(imp, modulePath+"/")
}

// place finds the room of a folder and its layer; the room is "" if there is none.
func place(dir string) (pattern string, layer int) {
	for i, patterns := range layers {
		for _, pattern := range patterns {
			tree, isTree := strings.CutSuffix(pattern, "/...")
			each, isEach := strings.CutSuffix(pattern, "/*")
			switch {
			case dir == pattern,
				isTree && (dir == tree || strings.HasPrefix(dir, tree+"/")),
				isEach && path.Dir(dir) == each:
				return pattern, i
			}
		}
	}
	return "", 0
}

func isStandard(imp string) bool {
	first, _, _ := strings.Cut(imp, "/")
	return !strings.Contains(first, ".")
}

func packageFor(imp string) string {
	for mod, dir := range foreign {
		if imp == mod || strings.HasPrefix(imp, mod+"/") {
			return dir
		}
	}
	return ""
}

// modules returns the folders of all go.mod files of the repository.
func modules(t *testing.T) (dirs []string) {
	walk(t, func(file string) {
		if path.Base(file) == "go.mod" {
			dirs = append(dirs, path.Dir(file))
		}
	})
	return dirs
}

// readRepository parses every Go file of the repository, whatever it is built for.
func readRepository(t *testing.T) (all []source) {
	dirs := modules(t)
	walk(t, func(file string) {
		if path.Ext(file) != ".go" {
			return
		}
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		f, err := parser.ParseFile(token.NewFileSet(), file, text, parser.ImportsOnly)
		require.NoError(t, err)
		s := source{file: file, pkg: f.Name.Name, lines: strings.Count(string(text), "\n")}
		for _, imp := range f.Imports {
			s.imports = append(s.imports, strings.Trim(imp.Path.Value, "\"`"))
		}
		for s.module = s.dir(); !slices.Contains(dirs, s.module); {
			s.module = path.Dir(s.module)
		}
		all = append(all, s)
	})
	require.NotEmpty(t, all)
	return all
}

// walk calls visit for every file that the go command would look at.
func walk(t *testing.T, visit func(file string)) {
	err := filepath.WalkDir(".", func(file string, e fs.DirEntry, err error) error {
		name := e.Name()
		switch {
		case err != nil:
			return err
		case !e.IsDir():
			visit(filepath.ToSlash(file))
		case file != "." && (name[0] == '.' || name[0] == '_' || name == "testdata" || name == "node_modules"):
			return fs.SkipDir
		}
		return nil
	})
	require.NoError(t, err)
}

// run returns what a command prints.
func run(t *testing.T, name string, args ...string) string {
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err, "%v", args)
	return string(out)
}
