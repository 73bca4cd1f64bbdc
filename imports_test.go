package heed_test

import (
	"bytes"
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
	"unicode"

	"github.com/stretchr/testify/require"
)

// modulePath is the path of the root module.
const modulePath = "github.com/heed-go/heed"

// importOrder lists all packages. A package may import only packages of earlier lines.
// External test packages may import all.
//
// An entry that ends in "/*" stands for each folder in it. One that ends in "/..." stands
// for a whole tree, whose packages may import each other.
var importOrder = [][]string{
	{"internal/ticks", "internal/explain", "internal/closenotify", "internal/networks"},
	{"backoff", "internal/gcra", "internal/indexheap", "internal/sfv", "internal/httphost", "internal/h2error", "internal/httpbody", "internal/memhttp", "internal/journal", "internal/turns", "internal/scorecard"},
	{"throttle", "backoff/cenkalti"},
	{"throttle/adaptive", "internal/limitertest", "internal/queuelink"},
	{"throttle/keyed"},
	{"throttle/queue", "throttle/throttletest", "internal/inventedkeys", "warmup", "sketch", "quota/headers", "internal/serverrules", "quota/internal/inflight", "quota/internal/routes"},
	{"quota/internal/hold", "quota/internal/concurrency", "quota/internal/credentials", "internal/quotalink"},
	{"quota/internal/statedlimit"},
	{"quota/internal/learnedlimit", "quota/internal/peers"},
	{"quota/internal/model"},
	{"quota", "rate", "rate/xtime", "bandwidth"},
	{"quota/fleet", ".", "throttlehttp", "rules", "internal/replay"},
	{"heedtest"},
	{"internal/outagetest", "batch"},
	{"throttleredis/...", "poll", "rules/monitor", "rules/source", "retryable", "debugpage", "internal/headercases", "internal/metrics", "internal/metricstest"},
	{"otelheed", "promheed"},
	{"examples/gateway", "examples/herd", "examples/redis/...", "examples/uses/...", "examples/*", "bench/...", "debugpage/browsertest", "lint"},
}

// nestedModules are the folders with a go.mod of their own. Their dependencies are not
// dependencies of the root module.
var nestedModules = []string{"debugpage/browsertest", "examples/gateway", "examples/herd", "examples/redis/...", "examples/uses/...", "throttleredis/...", "otelheed", "promheed", "bench/..."}

// noHTTP are the packages that must not import net/http, neither directly nor indirectly.
var noHTTP = []string{"backoff", "throttle", "warmup", "sketch"}

// forbidden lists packages that the files of a package must not import although the order
// allows it. Its tests may.
var forbidden = map[string][]string{"quota": {"throttle/queue", "throttle/keyed"}}

// allowedModules maps each external module to the package of the root module that may
// import it. Tests, examples and nested modules may import all.
var allowedModules = map[string]string{
	"github.com/cenkalti/backoff/v4":        "backoff/cenkalti",
	"golang.org/x/time":                     "rate/xtime",
	"github.com/zeebo/xxh3":                 "sketch",
	"golang.org/x/net/http/httpguts":        ".",
	"golang.org/x/net/http2/hpack":          "heedtest",
	"github.com/hashicorp/go-retryablehttp": "retryable",
	"github.com/fsnotify/fsnotify":          "rules",
	"go.yaml.in/yaml/v3":                    "rules",
}

// source holds the properties of one file that the checks need.
type source struct {
	file    string // slash-separated path, relative to the root of the repository
	pkg     string
	imports []string
	module  string // folder of its go.mod
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
		"later":              {source{file: "throttle/a.go", imports: []string{modulePath + "/quota"}}, "throttle/a.go imports quota: "},
		"the root":           {source{file: "quota/a.go", imports: []string{modulePath}}, "quota/a.go imports .: "},
		"same line":          {source{file: "sketch/a.go", imports: []string{modulePath + "/warmup"}}, "sketch/a.go imports warmup: "},
		"in-package test":    {source{file: "sketch/a_test.go", pkg: "sketch", imports: []string{modulePath + "/warmup"}}, "sketch/a_test.go imports warmup: "},
		"another example":    {source{file: "examples/a/main.go", imports: []string{modulePath + "/examples/b"}}, "examples/a/main.go imports examples/b: "},
		"not listed":         {source{file: "other/a.go"}, "other/a.go: "},
		"imports unlisted":   {source{file: "heedtest/a.go", imports: []string{modulePath + "/other"}}, "heedtest/a.go imports other: "},
		"not a module":       {source{file: "throttleredis/a.go"}, "throttleredis/a.go: "},
		"a module":           {source{file: "quota/a.go", module: "quota"}, "quota/a.go: "},
		"net/http":           {source{file: "warmup/a.go", imports: []string{"net/http"}}, "warmup/a.go imports net/http: "},
		"below net/http":     {source{file: "sketch/a.go", imports: []string{"net/http/httptrace"}}, "sketch/a.go imports net/http/httptrace: "},
		"forbidden":          {source{file: "quota/a.go", imports: []string{modulePath + "/throttle/queue"}}, "quota/a.go imports throttle/queue: "},
		"foreign module":     {source{file: "quota/a.go", imports: []string{"example.org/x"}}, "quota/a.go imports example.org/x: "},
		"in another package": {source{file: "quota/a.go", imports: []string{"golang.org/x/time/rate"}}, "quota/a.go imports golang.org/x/time/rate: "},
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
		{file: "quota/a.go", module: ".", imports: []string{"net/http", modulePath + "/throttle"}},
		{file: "rate/xtime/a.go", module: ".", imports: []string{"golang.org/x/time/rate", modulePath + "/throttle"}},
		{file: "throttle/a_test.go", pkg: "throttle_test", module: ".", imports: []string{modulePath, "net/http"}},
		{file: "throttle/b_test.go", pkg: "throttle", module: ".", imports: []string{"github.com/stretchr/testify/require"}},
		{file: "examples/a/main.go", module: ".", imports: []string{modulePath, "github.com/benbjohnson/clock"}},
		{file: "bench/ratio/main.go", module: "bench", imports: []string{modulePath + "/bench", "golang.org/x/time/rate"}},
		{file: "transport.go", module: ".", imports: []string{modulePath + "/quota", "golang.org/x/net/http/httpguts"}},
	}))
}

// TestImports_limitersDoNotReachHTTP uses the go command, which also lists the imports of
// dependencies.
func TestImports_limitersDoNotReachHTTP(t *testing.T) {
	for _, dir := range noHTTP {
		for dep := range strings.Lines(run(t, "go", "list", "-deps", "./"+dir)) {
			require.NotEqual(t, "net/http", strings.TrimSpace(dep), dir)
		}
	}
}

// TestModules_areInTheWorkspace checks that a clone can be built in the workspace and
// with GOWORK=off. In the second case a nested module finds the root module by its
// replace directive.
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

// TestDocs_nameTestsThatExist checks that the tests that comments and pages name exist.
func TestDocs_nameTestsThatExist(t *testing.T) {
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark|Example)\w*)\(`)
	named := regexp.MustCompile(`^(?:Test|Fuzz|Benchmark|Example)(?:[A-Z]\w*)?_\w+$`)
	isNoWord := func(r rune) bool { return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) }
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
		for name := range bytes.FieldsFuncSeq(text, isNoWord) { // a regular expression takes ten times as long
			if bytes.IndexByte(name, '_') > 3 && named.Match(name) {
				claims[string(name)] = file
			}
		}
	})
	for name, file := range claims {
		if !exists[name] {
			t.Errorf("%s names %s, which does not exist", file, name)
		}
	}
}

// faults returns a line for each violation.
func faults(sources []source) (all []string) {
	for _, s := range sources {
		pattern, _ := entryOf(s.dir())
		switch {
		case pattern == "":
			all = append(all, s.file+": the package is not listed in importOrder of imports_test.go")
			continue
		case slices.Contains(nestedModules, pattern) != (s.module != "."):
			all = append(all, s.file+": nestedModules of imports_test.go and its go.mod differ: it belongs to module "+s.module)
		}
		if s.external() {
			continue
		}
		for _, imp := range s.imports {
			if fault := faultOf(s, imp); fault != "" {
				all = append(all, fmt.Sprintf("%s imports %s: %s", s.file, under(imp), fault))
			}
		}
	}
	return all
}

// faultOf describes what is wrong with the import of imp by s. It returns "" for a valid
// import.
func faultOf(s source, imp string) string {
	from, line := entryOf(s.dir())
	if rel := under(imp); rel != imp {
		switch to, earlier := entryOf(rel); {
		case to == "":
			return "it is not listed in importOrder"
		case to == from && strings.HasSuffix(from, "/..."):
			return ""
		case earlier >= line:
			return "it is not listed before the importing package"
		case !s.isTest() && slices.Contains(forbidden[from], to):
			return "forbidden of imports_test.go lists it"
		}
		return ""
	}
	switch {
	case s.isTest():
		return ""
	case (imp == "net/http" || strings.HasPrefix(imp, "net/http/")) && slices.Contains(noHTTP, from):
		return from + " must not use net/http"
	case !isStandard(imp) && s.module == "." && from != "examples/*" && packageFor(imp) != from:
		return "allowedModules of imports_test.go names another package for it"
	}
	return ""
}

// under returns the folder of a package of this repository, and imp itself for all
// others.
func under(imp string) string {
	if imp == modulePath {
		return "."
	}
	return strings.TrimPrefix(imp, modulePath+"/")
}

// entryOf returns the entry of importOrder for a folder, and its line. It returns "" if
// there is none.
func entryOf(dir string) (pattern string, line int) {
	for i, patterns := range importOrder {
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
	for mod, dir := range allowedModules {
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

// readRepository parses every Go file of the repository, regardless of build constraints.
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
		s := source{file: file, pkg: f.Name.Name}
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

// walk calls visit for every file that the go command would read.
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

// run returns the output of a command.
func run(t *testing.T, name string, args ...string) string {
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err, "%v", args)
	return string(out)
}
