package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strconv"
	"strings"
)

// A change replaces bytes of a file.
type change struct {
	File string `json:"file"` // relative to the root of the repository, with slashes
	Line int    `json:"line"`
	Kind string `json:"kind"`
	Was  string `json:"was"`
	Now  string `json:"now"`

	pkg        *pkg
	path       string
	column     int // of the start
	start, end int // offsets
}

// String returns a line with the position and the effect of the change.
func (c change) String() string {
	return fmt.Sprintf("%s: %s: %q becomes %q", c.at(), c.Kind, short(c.Was), short(c.Now))
}

// at returns the position of the change.
func (c change) at() string { return fmt.Sprintf("%s:%d", c.File, c.Line) }

func short(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if r := []rune(s); len(r) > 60 {
		return string(r[:60]) + "…"
	}
	return s
}

// apply returns the content of the file with the change.
func (c change) apply(text []byte) []byte {
	return []byte(string(text[:c.start]) + c.Now + string(text[c.end:]))
}

// swaps maps operators to their replacements.
var swaps = map[token.Token]token.Token{
	token.ADD: token.SUB, token.SUB: token.ADD, token.MUL: token.QUO, token.QUO: token.MUL, token.REM: token.MUL,
	token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR,
	token.EQL: token.NEQ, token.NEQ: token.EQL, token.LAND: token.LOR, token.LOR: token.LAND,
	token.SHL: token.SHR, token.SHR: token.SHL, token.AND: token.OR, token.OR: token.AND,
	token.ADD_ASSIGN: token.SUB_ASSIGN, token.SUB_ASSIGN: token.ADD_ASSIGN, token.MUL_ASSIGN: token.QUO_ASSIGN,
	token.QUO_ASSIGN: token.MUL_ASSIGN, token.OR_ASSIGN: token.AND_ASSIGN, token.AND_ASSIGN: token.OR_ASSIGN,
	token.INC: token.DEC, token.DEC: token.INC,
}

// A finder collects the changes that can be made to a file.
type finder struct {
	fset  *token.FileSet
	text  []byte
	found []change
	skip  map[ast.Node]bool // nodes whose changes cannot be observed
}

// changesOf returns the changes that can be made to the file at a path.
func changesOf(path string) ([]change, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	f := finder{fset: token.NewFileSet(), text: text, skip: map[ast.Node]bool{}}
	file, err := parser.ParseFile(f.fset, path, text, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	if ast.IsGenerated(file) {
		return nil, nil
	}
	ast.Inspect(file, f.visit)
	return f.found, nil
}

// visit adds the changes of one node. It reports whether to visit its children.
func (f *finder) visit(n ast.Node) bool {
	if n == nil || f.skip[n] {
		return false
	}
	switch n := n.(type) {
	case *ast.ImportSpec:
		return false
	case *ast.Field:
		return !isBlank(n.Names...) // padding
	case *ast.CallExpr:
		f.skipCapacity(n)
	case *ast.IfStmt:
		f.negate(n.Cond)
	case *ast.ForStmt:
		f.negate(n.Cond)
	case *ast.BinaryExpr:
		f.swap(n.Op, n.OpPos)
	case *ast.IncDecStmt:
		f.swap(n.Tok, n.TokPos)
	case *ast.BasicLit:
		f.offByOne(n)
	case *ast.AssignStmt:
		f.swap(n.Tok, n.TokPos)
	case *ast.BlockStmt:
		f.deleteFrom(n.List)
	case *ast.CaseClause:
		f.deleteFrom(n.Body)
	case *ast.CommClause:
		f.deleteFrom(n.Body)
	}
	return true
}

func (f *finder) add(kind string, start, end token.Pos, now string) {
	at := f.fset.Position(start)
	to := f.fset.Position(end).Offset
	f.found = append(f.found, change{Kind: kind, Line: at.Line, Was: string(f.text[at.Offset:to]), Now: now, column: at.Column, start: at.Offset, end: to})
}

func (f *finder) source(n ast.Node) string {
	return string(f.text[f.fset.Position(n.Pos()).Offset:f.fset.Position(n.End()).Offset])
}

// negate negates the condition of an if or a for. It skips comparisons, which swap changes.
func (f *finder) negate(cond ast.Expr) {
	if cond == nil {
		return
	}
	if b, ok := cond.(*ast.BinaryExpr); ok && (b.Op == token.EQL || b.Op == token.NEQ) {
		return
	}
	f.add("negated condition", cond.Pos(), cond.End(), "!("+f.source(cond)+")")
}

func (f *finder) swap(op token.Token, at token.Pos) {
	if other, ok := swaps[op]; ok {
		f.add("swapped operator", at, at+token.Pos(len(op.String())), other.String())
	}
}

// offByOne increments an integer literal.
func (f *finder) offByOne(n *ast.BasicLit) {
	if n.Kind != token.INT {
		return
	}
	if v, err := strconv.ParseUint(n.Value, 0, 63); err == nil {
		f.add("constant off by one", n.Pos(), n.End(), strconv.FormatUint(v+1, 10))
	}
}

// deleteFrom deletes each statement that is not required to compile.
func (f *finder) deleteFrom(list []ast.Stmt) {
	for _, s := range list {
		switch s := s.(type) {
		case *ast.AssignStmt:
			if s.Tok == token.DEFINE {
				continue
			}
			if blank(s.Lhs) {
				f.skip[s] = true
				continue
			}
		case *ast.ExprStmt:
			if hasNoEffect(s.X) {
				continue
			}
		case *ast.BranchStmt, *ast.DeferStmt, *ast.GoStmt, *ast.IncDecStmt, *ast.SendStmt:
		case *ast.ReturnStmt:
			if len(s.Results) > 0 {
				continue
			}
		default:
			continue
		}
		f.add("deleted statement", s.Pos(), s.End(), "")
	}
}

// skipCapacity skips the capacity in a call of make: the second argument for a map and the
// third for a slice.
func (f *finder) skipCapacity(c *ast.CallExpr) {
	if name, ok := c.Fun.(*ast.Ident); !ok || name.Name != "make" || len(c.Args) < 2 {
		return
	}
	if _, isMap := c.Args[0].(*ast.MapType); isMap {
		f.skip[c.Args[1]] = true
	}
	if len(c.Args) == 3 {
		f.skip[c.Args[2]] = true
	}
}

// hasNoEffect reports whether e returns a value to a sync.Pool or marks a test helper,
// which have no observable effect.
func hasNoEffect(e ast.Expr) bool {
	c, ok := e.(*ast.CallExpr)
	if !ok {
		return false
	}
	method, ok := c.Fun.(*ast.SelectorExpr)
	return ok && (method.Sel.Name == "Put" && len(c.Args) == 1 || method.Sel.Name == "Helper" && len(c.Args) == 0)
}

func blank(all []ast.Expr) bool {
	for _, e := range all {
		if name, ok := e.(*ast.Ident); !ok || name.Name != "_" {
			return false
		}
	}
	return true
}

func isBlank(names ...*ast.Ident) bool {
	for _, n := range names {
		if n.Name != "_" {
			return false
		}
	}
	return len(names) > 0
}
