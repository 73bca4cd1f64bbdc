package heed_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDocs_nameSymbolsThatExist checks that every pkg.Symbol and pkg.Type.Member in
// README.md, in docs, and in the pages of examples and bench is declared by the package.
func TestDocs_nameSymbolsThatExist(t *testing.T) {
	declared := exportedSymbols(t)
	qualified := regexp.MustCompile(`(?:^|[^\w./-])([a-z]+)\.([A-Z]\w*)(?:\.([A-Z]\w*))?`)
	walk(t, func(file string) {
		if path.Ext(file) != ".md" || file == "CHANGELOG.md" { // it also names removed symbols
			return
		}
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for i, line := range strings.Split(string(text), "\n") {
			for _, m := range qualified.FindAllStringSubmatch(line, -1) {
				symbols := declared[m[1]]
				switch name := m[2] + "." + m[3]; {
				case symbols == nil: // not a package of this repository
				case !symbols[m[2]]:
					t.Errorf("%s:%d: %s.%s does not exist", file, i+1, m[1], m[2])
				case m[3] != "" && !symbols[name]:
					t.Errorf("%s:%d: %s.%s does not exist", file, i+1, m[1], name)
				}
			}
		}
	})
}

// exportedSymbols returns the exported names of each package, by package name: functions,
// types, variables, constants, and Type.Member for fields and methods.
func exportedSymbols(t *testing.T) map[string]map[string]bool {
	all := map[string]map[string]bool{}
	walk(t, func(file string) {
		if path.Ext(file) != ".go" || strings.HasSuffix(file, "_test.go") || strings.HasPrefix(file, "internal/") || strings.HasPrefix(file, "examples/") || strings.HasPrefix(file, "bench/") {
			return
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		if f.Name.Name == "main" {
			return
		}
		names := all[f.Name.Name]
		if names == nil {
			names = map[string]bool{}
			all[f.Name.Name] = names
		}
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					names[d.Name.Name] = true
				} else {
					names[typeName(d.Recv.List[0].Type)+"."+d.Name.Name] = true
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					addSpec(names, s)
				}
			}
		}
	})
	require.NotEmpty(t, all)
	return all
}

func addSpec(names map[string]bool, s ast.Spec) {
	switch s := s.(type) {
	case *ast.ValueSpec:
		for _, n := range s.Names {
			names[n.Name] = true
		}
	case *ast.TypeSpec:
		names[s.Name.Name] = true
		var fields *ast.FieldList
		switch u := s.Type.(type) {
		case *ast.StructType:
			fields = u.Fields
		case *ast.InterfaceType:
			fields = u.Methods
		default:
			return
		}
		for _, f := range fields.List {
			for _, n := range f.Names {
				names[s.Name.Name+"."+n.Name] = true
			}
			if len(f.Names) == 0 {
				names[s.Name.Name+"."+typeName(f.Type)] = true
			}
		}
	}
}

// typeName returns the name of a type without pointers, packages and type parameters.
func typeName(e ast.Expr) string {
	for {
		switch x := e.(type) {
		case *ast.StarExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.IndexListExpr:
			e = x.X
		case *ast.SelectorExpr:
			return x.Sel.Name
		case *ast.Ident:
			return x.Name
		default:
			return ""
		}
	}
}
