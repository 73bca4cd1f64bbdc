// Package lint checks the words of the repository: comments, error strings, exported
// identifiers and pages do not contain the words of words.txt, except where exceptions.txt
// gives a reason.
package lint

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// root is the folder of the repository.
const root = ".."

// A finding is a word of words.txt in a file.
type finding struct {
	file string // relative to root, with slashes
	line int
	word string
	text string // the line of text, or the identifier
}

func (f finding) String() string {
	return fmt.Sprintf("%s:%d: %q: %s", f.file, f.line, f.word, strings.TrimSpace(f.text))
}

// An exception permits a word, or all words if word is "*", in the files that match pattern.
type exception struct{ pattern, word string }

func (e exception) permits(f finding) bool {
	match, _ := path.Match(e.pattern, f.file)
	return match && (e.word == "*" || e.word == f.word)
}

func TestWords_areNotUsed(t *testing.T) {
	if testing.Short() {
		t.Skip("only make lint and make test-long run it")
	}
	words, exceptions := readWords(t), readExceptions(t)
	used := map[exception]bool{}
	checkFiles(t, words, func(f finding) {
		i := slices.IndexFunc(exceptions, func(e exception) bool { return e.permits(f) })
		if i < 0 {
			t.Error(f)
			return
		}
		used[exceptions[i]] = true
	})
	for _, e := range exceptions {
		if !used[e] {
			t.Errorf("lint/exceptions.txt: nothing needs the exception of %q in %s", e.word, e.pattern)
		}
	}
}

func TestWords_violationsAreFound(t *testing.T) {
	words := compile([]string{"at once", "told", "room"})
	for name, tt := range map[string]struct {
		file, text string
		want       []string // line and word
	}{
		"comment":             {"a.go", "package a // as it was Told", []string{"1 told"}},
		"phrase on two lines": {"a.go", "package a\n\n// f returns at\n// once.\nfunc f() {}", []string{"3 at once"}},
		"block comment":       {"a.go", "package a\n/* one\ntwo told */", []string{"3 told"}},
		"part of a word":      {"a.go", "package a // bedrooms, toldyou", nil},
		"error string":        {"a.go", "package a\nvar err = errors.New(`a: not told`)", []string{"2 told"}},
		"formatted error":     {"a.go", "package a\nvar err = fmt.Errorf(\"a: told %d\", 1)", []string{"2 told"}},
		"error method":        {"a.go", "package a\nfunc (e) Error() string {\n\treturn \"told\"\n}", []string{"3 told"}},
		"panic":               {"a.go", "package a\nfunc f() {\n\tpanic(\"told\")\n}", []string{"3 told"}},
		"another string":      {"a.go", "package a\nvar s = \"told\"", nil},
		"function":            {"a.go", "package a\nfunc SendAtOnce() {}", []string{"2 at once"}},
		"method and field":    {"a.go", "package a\ntype T struct {\n\tHTTPRoom int\n}\nfunc (T) Told() {}", []string{"3 room", "5 told"}},
		"interface method":    {"a.go", "package a\ntype T interface {\n\tTold()\n}", []string{"3 told"}},
		"test":                {"a.go", "package a\nfunc F_isTold() {}", []string{"2 told"}},
		"unexported":          {"a.go", "package a\nvar told, x = 1, 2", nil},
		"page":                {"a.md", "# A\n\nOne is\ntold.", []string{"4 told"}},
		"code of a page":      {"a.md", "`told`\n```go\ntold\n```\nend", nil},
	} {
		var got []string
		for _, f := range check(words, tt.file, tt.text) {
			got = append(got, fmt.Sprint(f.line, " ", f.word))
		}
		require.Equal(t, tt.want, got, name)
	}
}

// readLines returns the lines of a file without comments.
func readLines(t *testing.T, name string) (lines []string) {
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			lines = append(lines, line)
		}
	}
	return lines
}

func readWords(t *testing.T) *regexp.Regexp { return compile(readLines(t, "words.txt")) }

// readExceptions reads lines of the form "pattern | word | reason".
func readExceptions(t *testing.T) (all []exception) {
	for _, line := range readLines(t, "exceptions.txt") {
		parts := strings.Split(line, " | ")
		require.Len(t, parts, 3, "exceptions.txt: %q is not of the form: pattern | word | reason", line)
		all = append(all, exception{parts[0], parts[1]})
	}
	return all
}

// compile returns an expression that matches each word in any case, also across lines.
func compile(words []string) *regexp.Regexp {
	words = slices.Clone(words)
	slices.SortFunc(words, func(a, b string) int { return len(b) - len(a) })
	for i, w := range words {
		words[i] = strings.ReplaceAll(regexp.QuoteMeta(w), " ", `\s+`)
	}
	return regexp.MustCompile(`(?i)\b(?:` + strings.Join(words, "|") + `)\b`)
}

// checkFiles calls report for each finding in the Go files of the repository and in its
// pages. CHANGELOG.md is not checked, as it quotes former names.
func checkFiles(t *testing.T, words *regexp.Regexp, report func(finding)) {
	pages := regexp.MustCompile(`^(README|CONTRIBUTING|SECURITY|docs/[^/]*)\.md$`)
	err := filepath.WalkDir(root, func(file string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := e.Name()
		if e.IsDir() {
			if file != root && (name[0] == '.' || name[0] == '_' || name == "testdata" || name == "node_modules" || name == "lint") {
				return fs.SkipDir
			}
			return nil
		}
		rel, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		if rel = filepath.ToSlash(rel); path.Ext(rel) != ".go" && !pages.MatchString(rel) {
			return nil
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for _, f := range check(words, rel, string(text)) {
			report(f)
		}
		return nil
	})
	require.NoError(t, err)
}

// check returns the findings of one file in the order of lines.
func check(words *regexp.Regexp, file, text string) (all []finding) {
	c := &checker{words: words, file: file}
	if path.Ext(file) == ".md" {
		c.page(text)
	} else {
		c.source(text)
	}
	slices.SortStableFunc(c.found, func(a, b finding) int { return a.line - b.line })
	return c.found
}

type checker struct {
	words *regexp.Regexp
	file  string
	fset  *token.FileSet
	found []finding
}

// prose reports the words in text, which begins at a line.
func (c *checker) prose(line int, text string) {
	for _, at := range c.words.FindAllStringIndex(text, -1) {
		before := strings.Count(text[:at[0]], "\n")
		c.found = append(c.found, finding{c.file, line + before,
			strings.Join(strings.Fields(strings.ToLower(text[at[0]:at[1]])), " "),
			strings.Split(text, "\n")[before]})
	}
}

var (
	codeBlock  = regexp.MustCompile("(?ms)^ *```.*?^ *```")
	inlineCode = regexp.MustCompile("`[^`\n]*`")
	notNewline = regexp.MustCompile(`[^\n]`)
)

// page checks a page without its code.
func (c *checker) page(text string) {
	blank := func(s string) string { return notNewline.ReplaceAllString(s, "-") }
	text = codeBlock.ReplaceAllStringFunc(text, blank)
	c.prose(1, inlineCode.ReplaceAllStringFunc(text, blank))
}

// source checks a Go file.
func (c *checker) source(text string) {
	c.fset = token.NewFileSet()
	f, err := parser.ParseFile(c.fset, c.file, text, parser.ParseComments)
	if err != nil {
		c.found = append(c.found, finding{c.file, 1, "", err.Error()})
		return
	}
	for _, group := range f.Comments {
		c.comments(group.List)
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			c.identifier(n.Name)
			if n.Name.Name == "Error" && n.Body != nil {
				c.strings(n.Body)
			}
		case *ast.TypeSpec:
			c.identifier(n.Name)
		case *ast.ValueSpec:
			c.identifier(n.Names...)
		case *ast.Field:
			c.identifier(n.Names...)
		case *ast.CallExpr:
			c.errorString(n)
		}
		return true
	})
}

// comments checks the comments of a group together, because a phrase may begin in one line
// and end in the next.
func (c *checker) comments(group []*ast.Comment) {
	line := c.line(group[0])
	var text strings.Builder
	for _, comment := range group {
		for at := line + strings.Count(text.String(), "\n"); at < c.line(comment); at++ {
			text.WriteByte('\n')
		}
		text.WriteString(strings.TrimSuffix(comment.Text[2:], "*/"))
	}
	c.prose(line, text.String())
}

func (c *checker) line(n ast.Node) int { return c.fset.Position(n.Pos()).Line }

// errorString checks the first argument of errors.New, fmt.Errorf and panic.
func (c *checker) errorString(call *ast.CallExpr) {
	if len(call.Args) == 0 {
		return
	}
	name := ""
	switch f := call.Fun.(type) {
	case *ast.Ident:
		name = f.Name
	case *ast.SelectorExpr:
		if pkg, ok := f.X.(*ast.Ident); ok {
			name = pkg.Name + "." + f.Sel.Name
		}
	}
	if name == "panic" || name == "errors.New" || name == "fmt.Errorf" {
		c.strings(call.Args[0])
	}
}

// strings checks the string literals of n.
func (c *checker) strings(n ast.Node) {
	ast.Inspect(n, func(n ast.Node) bool {
		if s, ok := n.(*ast.BasicLit); ok && s.Kind == token.STRING {
			text, _ := strconv.Unquote(s.Value)
			c.prose(c.line(s), text)
		}
		return true
	})
}

// wordStart matches where a word begins within an identifier.
var wordStart = regexp.MustCompile(`([a-z0-9])([A-Z])|([A-Z])([A-Z][a-z])`)

// identifier checks the words of exported names.
func (c *checker) identifier(names ...*ast.Ident) {
	for _, name := range names {
		if !name.IsExported() {
			continue
		}
		text := strings.ReplaceAll(name.Name, "_", " ")
		c.prose(c.line(name), wordStart.ReplaceAllString(text, "$1$3 $2$4"))
	}
}
