package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/constant"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/heed-go/heed/bench/internal/source"
)

// A number is a numeric constant of the tracker.
type number struct {
	Name  string `json:"name"`
	File  string `json:"file"` // relative to the root of the repository, with slashes
	Line  int    `json:"line"`
	Value string `json:"value"`

	path       string
	value      constant.Value
	typ        types.Type
	start, end int // offsets of the expression
}

// String returns a line with the position and the value.
func (n number) String() string {
	return fmt.Sprintf("%s:%d: %s = %s", n.File, n.Line, n.Name, n.Value)
}

// find returns the numeric constants of the tracker in a repository, in the order of the files. Those that are
// elements of enumerations are left out.
func find(root string) (all []number, err error) {
	root, err = filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	known := standardOnly{importer.ForCompiler(token.NewFileSet(), "source", nil)}
	err = filepath.WalkDir(filepath.Join(root, "quota"), func(dir string, e fs.DirEntry, err error) error {
		if err != nil || !e.IsDir() {
			return err
		}
		name, err := filepath.Rel(root, dir)
		if err != nil || !source.IsTracker(filepath.ToSlash(name)) {
			return err
		}
		some, err := ofPackage(dir, filepath.ToSlash(name), known)
		all = append(all, some...)
		return err
	})
	return all, err
}

// ofPackage returns the constants of the package in dir, whose name relative to the root is rel.
func ofPackage(dir, rel string, imports types.Importer) (all []number, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	set, files := token.NewFileSet(), []*ast.File{}
	for _, e := range entries {
		if name := e.Name(); strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") {
			f, err := parser.ParseFile(set, filepath.Join(dir, name), nil, 0)
			if err != nil {
				return nil, err
			}
			files = append(files, f)
		}
	}
	if len(files) == 0 {
		return nil, nil
	}
	info := types.Info{Defs: map[*ast.Ident]types.Object{}}
	// Errors are expected: only packages of the standard library are imported.
	check := types.Config{Importer: imports, Error: func(error) {}}
	_, _ = check.Check(rel, set, files, &info)
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			if d, ok := n.(*ast.GenDecl); ok && d.Tok == token.CONST {
				all = append(all, ofDecl(d, set, info.Defs, rel)...)
			}
			return true
		})
	}
	return all, nil
}

func ofDecl(d *ast.GenDecl, set *token.FileSet, defs map[*ast.Ident]types.Object, rel string) (all []number) {
	for _, s := range d.Specs {
		spec := s.(*ast.ValueSpec)
		for i, e := range spec.Values {
			c, ok := defs[spec.Names[i]].(*types.Const)
			if !ok || !isNumber(c) || usesIota(e) {
				continue
			}
			at, end := set.Position(e.Pos()), set.Position(e.End())
			all = append(all, number{Name: c.Name(), File: rel + "/" + filepath.Base(at.Filename), Line: at.Line, Value: format(c.Val(), c.Type()),
				path: at.Filename, value: c.Val(), typ: c.Type(), start: at.Offset, end: end.Offset})
		}
	}
	return all
}

// isNumber reports whether c is a number or a time. Constants of other named types are elements
// of enumerations.
func isNumber(c *types.Const) bool {
	if kind := c.Val().Kind(); kind != constant.Int && kind != constant.Float {
		return false
	}
	_, basic := c.Type().(*types.Basic)
	return basic || isDuration(c.Type())
}

func isInteger(t types.Type) bool {
	basic, ok := t.Underlying().(*types.Basic)
	return ok && basic.Info()&types.IsInteger != 0
}

// fits reports whether an integer is an int64.
func fits(v constant.Value) bool {
	_, exact := constant.Int64Val(v)
	return exact
}

func isDuration(t types.Type) bool { return t.String() == "time.Duration" }

func usesIota(e ast.Expr) (uses bool) {
	ast.Inspect(e, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		uses = uses || ok && id.Name == "iota"
		return !uses
	})
	return uses
}

func format(v constant.Value, t types.Type) string {
	if n := constant.ToInt(v); isDuration(t) && fits(n) {
		d, _ := constant.Int64Val(n)
		return time.Duration(d).String()
	}
	return v.String()
}

// A change halves or doubles a number.
type change struct {
	number
	Factor string `json:"factor"` // "/ 2" or "* 2"
	Now    string `json:"now"`
}

// changes returns the changes of n. One that does not change the value, or makes it zero or too
// large, is left out.
func (n number) changes() (all []change) {
	two := constant.MakeInt64(2)
	for factor, op := range map[string]token.Token{"/ 2": token.QUO, "* 2": token.MUL} {
		if isInteger(n.typ) && op == token.QUO {
			op = token.QUO_ASSIGN // division of integers
		}
		v := constant.BinaryOp(n.value, op, two)
		if constant.Sign(v) == 0 || isInteger(n.typ) && !fits(v) || constant.Compare(v, token.EQL, n.value) {
			continue
		}
		all = append(all, change{n, factor, format(v, n.typ)})
	}
	if len(all) == 2 && all[0].Factor == "* 2" {
		all[0], all[1] = all[1], all[0]
	}
	return all
}

// apply returns the text of the file with the change.
func (c change) apply(text []byte) []byte {
	changed := append([]byte{}, text[:c.start]...)
	changed = fmt.Appendf(changed, "(%s) %s", text[c.start:c.end], c.Factor)
	return append(changed, text[c.end:]...)
}

// String returns a line with the position and the effect of the change.
func (c change) String() string { return fmt.Sprintf("%v becomes %s", c.number, c.Now) }

// standardOnly imports packages of the standard library: no constant depends on others.
type standardOnly struct{ types.Importer }

// Import implements types.Importer.
func (s standardOnly) Import(path string) (*types.Package, error) {
	if first, _, _ := strings.Cut(path, "/"); strings.Contains(first, ".") {
		return nil, errors.New("constants: not a package of the standard library: " + path)
	}
	return s.Importer.Import(path)
}
