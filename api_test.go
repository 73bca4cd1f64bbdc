package heed_test

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var updateAPI = flag.Bool("api.update", false, "write the files of the folder api")

// stable are the packages of which README.md says that their API will not change after version 1.
// They are a part of those of clients.
var stable = []string{".", "throttle", "backoff", "rate", "retryable"}

// ofClients are the packages of which a program that sends requests may need the API.
var ofClients = append(slices.Clone(stable),
	"throttle/queue", "throttle/keyed", "throttle/adaptive", "throttle/throttletest", "warmup", "backoff/cenkalti", "rate/xtime", "poll", "sketch", "heedtest")

// TestAPI_isListed checks that api has the exported API of each published package, so that each change of it is
// seen. go test -run TestAPI . -api.update writes it.
func TestAPI_isListed(t *testing.T) {
	api := exportedAPI(t)
	files, err := filepath.Glob("api/*.txt")
	require.NoError(t, err)
	if *updateAPI {
		for _, f := range files {
			require.NoError(t, os.Remove(f))
		}
		for pkg, lines := range api {
			require.NoError(t, os.WriteFile(apiFile(pkg), []byte(strings.Join(lines, "\n")+"\n"), 0o644)) //nolint:gosec // a file of the repository
		}
		return
	}
	want := slices.Collect(maps.Keys(api))
	for i, pkg := range want {
		want[i] = apiFile(pkg)
	}
	require.ElementsMatch(t, want, files)
	for pkg, lines := range api {
		text, err := os.ReadFile(apiFile(pkg))
		require.NoError(t, err)
		require.Equal(t, strings.Split(strings.TrimSuffix(string(text), "\n"), "\n"), lines, pkg)
	}
	count := func(pkgs []string) (n int) {
		for _, pkg := range pkgs {
			require.Contains(t, api, pkg)
			n += len(api[pkg])
		}
		return n
	}
	require.LessOrEqual(t, count(ofClients), 800, "names that programs that send requests may need: each new one needs the removal of another")
	require.LessOrEqual(t, count(stable), 450, "names that are promised for version 1: each new one needs the removal of another")
	t.Logf("exported names: %d of clients, %d of them in stable packages, %d in all", count(ofClients), count(stable), count(slices.Collect(maps.Keys(api))))
}

// TestAPI_isUsed checks that another package, an example or a test uses each exported name of the packages of
// clients. Names are compared without their types, so one that has the name of another may be missed.
func TestAPI_isUsed(t *testing.T) {
	used := map[string]map[string]bool{} // by name, the folders that use it; "" stands for all
	for _, s := range readRepository(t) {
		f, err := parser.ParseFile(token.NewFileSet(), s.file, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		dir := s.dir()
		if s.isTest() {
			dir = ""
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if name, ok := n.(*ast.Ident); ok && name.IsExported() {
				if used[name.Name] == nil {
					used[name.Name] = map[string]bool{}
				}
				used[name.Name][dir] = true
			}
			return true
		})
	}
	api := exportedAPI(t)
	for _, pkg := range ofClients {
		for _, line := range api[pkg] {
			name := nameOf(line)
			dirs, word := used[name], regexp.MustCompile(`[ *\[\].,(]`+name+`\b`)
			if isType := strings.HasPrefix(line, "type "); isType && slices.ContainsFunc(api[pkg], func(other string) bool {
				_, signature, _ := strings.Cut(other, nameOf(other))
				return other != line && word.MatchString(signature)
			}) {
				continue // it is the type of a result, a parameter or a field
			}
			require.True(t, dirs[""] || len(dirs) > 1, "%s: nothing uses %s", pkg, line)
		}
	}
}

// nameOf returns the name that a line of the API lists, without its type.
func nameOf(line string) string {
	_, rest, _ := strings.Cut(line, " ")
	if strings.HasPrefix(rest, "(") { // the receiver
		_, rest, _ = strings.Cut(rest, ") ")
	} else if member := strings.IndexByte(rest, '.'); member >= 0 && !strings.ContainsAny(rest[:member], " (") {
		rest = rest[member+1:]
	}
	name := rest[:len(rest)-len(strings.TrimLeftFunc(rest, func(r rune) bool { return r != ' ' && r != '(' && r != '[' }))]
	return strings.TrimPrefix(name[strings.LastIndexByte(name, '.')+1:], "*")
}

// TestReadme_namesTheStablePackages checks the list of README.md.
func TestReadme_namesTheStablePackages(t *testing.T) {
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	names := []string{"`heed`"}
	for _, pkg := range stable[1:] {
		names = append(names, "`"+pkg+"`")
	}
	last := len(names) - 1
	require.Contains(t, strings.Join(strings.Fields(string(text)), " "), strings.Join(names[:last], ", ")+" and "+names[last]+" are meant to be stable")
}

// apiFile returns the file with the API of a package.
func apiFile(pkg string) string {
	if pkg == "." {
		pkg = "heed"
	}
	return "api/" + strings.ReplaceAll(pkg, "/", "_") + ".txt"
}

// exportedAPI returns a line for each exported name of the packages that programs can import, for all systems.
func exportedAPI(t *testing.T) map[string][]string {
	t.Helper()
	lines := map[string]map[string]bool{}
	for _, s := range readRepository(t) {
		dir := s.dir()
		if s.isTest() || s.pkg == "main" || slices.ContainsFunc([]string{"internal", "bench", "examples", "lint"}, func(name string) bool {
			return slices.Contains(strings.Split(dir, "/"), name)
		}) {
			continue
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, s.file, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		if lines[dir] == nil {
			lines[dir] = map[string]bool{}
		}
		for _, d := range f.Decls {
			for _, line := range declared(fset, d) {
				lines[dir][line] = true
			}
		}
	}
	api := map[string][]string{}
	for pkg, all := range lines {
		if len(all) > 0 {
			api[pkg] = slices.Sorted(maps.Keys(all))
		}
	}
	return api
}

// declared returns the lines of a declaration.
func declared(fset *token.FileSet, d ast.Decl) (lines []string) {
	if f, ok := d.(*ast.FuncDecl); ok {
		signature := strings.TrimPrefix(text(fset, f.Type), "func")
		switch {
		case !f.Name.IsExported():
		case f.Recv == nil:
			lines = append(lines, "func "+f.Name.Name+signature)
		case ast.IsExported(typeName(f.Recv.List[0].Type)):
			lines = append(lines, fmt.Sprintf("method (%s) %s%s", text(fset, f.Recv.List[0].Type), f.Name.Name, signature))
		}
		return lines
	}
	for _, spec := range d.(*ast.GenDecl).Specs {
		switch spec := spec.(type) {
		case *ast.ValueSpec:
			for _, name := range spec.Names {
				if name.IsExported() {
					lines = append(lines, d.(*ast.GenDecl).Tok.String()+" "+name.Name)
				}
			}
		case *ast.TypeSpec:
			if spec.Name.IsExported() {
				lines = append(lines, typeLines(fset, spec)...)
			}
		}
	}
	return lines
}

// typeLines returns the lines of a type: itself, its fields or its methods.
func typeLines(fset *token.FileSet, spec *ast.TypeSpec) (lines []string) {
	var members *ast.FieldList
	kind, name := "field", spec.Name.Name
	switch u := spec.Type.(type) {
	case *ast.StructType:
		members = u.Fields
		lines = append(lines, "type "+name+" struct")
	case *ast.InterfaceType:
		kind, members = "method", u.Methods
		lines = append(lines, "type "+name+" interface")
	default:
		equal := " "
		if spec.Assign.IsValid() {
			equal = " = "
		}
		return []string{"type " + name + equal + text(fset, spec.Type)}
	}
	for _, m := range members.List {
		if len(m.Names) == 0 && ast.IsExported(typeName(m.Type)) {
			lines = append(lines, fmt.Sprintf("%s %s.%s", kind, name, text(fset, m.Type)))
		}
		for _, n := range m.Names {
			if n.IsExported() {
				lines = append(lines, fmt.Sprintf("%s %s.%s %s", kind, name, n.Name, text(fset, m.Type)))
			}
		}
	}
	return lines
}

// text returns the source of a node in one line.
func text(fset *token.FileSet, n ast.Node) string {
	var b bytes.Buffer
	if err := format.Node(&b, fset, n); err != nil {
		panic(err)
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

// Every kind of exported name is listed, and no other.
func TestAPI_linesOfDeclarations(t *testing.T) {
	const source = `package p
const A, b = 1, 2
var C, d int
func E[T any](x T, y ...int) error { return nil }
func f() {}
type (
	G struct {
		H, i int
		*J
		k
		http.L
		M func(a int) (b struct{ N int })
	}
	J interface { Do(x int); fmt.Stringer; no() }
	O = G
	P uint8
	q struct { R int }
)
func (g *G) S() {}
func (P) T(x struct {
	U int
}) {}
func (q) V() {}
func (g *G) w() {}
type X[K comparable] struct { Y K }
func (x *X[K]) Z() K { panic(0) }
`
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "p.go", source, 0)
	require.NoError(t, err)
	var lines []string
	for _, d := range f.Decls {
		lines = append(lines, declared(fset, d)...)
	}
	require.Equal(t, []string{
		"const A", "var C", "func E[T any](x T, y ...int) error",
		"type G struct", "field G.H int", "field G.*J", "field G.http.L", "field G.M func(a int) (b struct{ N int })",
		"type J interface", "method J.Do func(x int)", "method J.fmt.Stringer",
		"type O = G", "type P uint8",
		"method (*G) S()", "method (P) T(x struct { U int })",
		"type X struct", "field X.Y K", "method (*X[K]) Z() K",
	}, lines)
	names := []string{"A", "C", "E", "G", "H", "J", "L", "M", "J", "Do", "Stringer", "O", "P", "S", "T", "X", "Y", "Z"}
	for i, line := range lines {
		require.Equal(t, names[i], nameOf(line), line)
	}
	require.Equal(t, "api/throttle_queue.txt", apiFile(path.Join("throttle", "queue")))
}
