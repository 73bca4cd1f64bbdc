package heed_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// maxWords is the maximum number of words of a page, which contain a letter or digit.
const maxWords = 1200

var (
	codeBlock = regexp.MustCompile("(?ms)^```.*?^```$")
	word      = regexp.MustCompile(`\S*[\pL\pN]\S*`)
)

// TestDocs_beginWithCodeAndEndWithLimitations checks that each page of docs begins with
// code and ends with its limitations, and that the index lists it. All programs in Go
// must build; pages about commands begin with a shell script. A page has at most maxWords
// words besides its code.
func TestDocs_beginWithCodeAndEndWithLimitations(t *testing.T) {
	pages, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	require.NotEmpty(t, pages)
	index, err := os.ReadFile("docs/README.md")
	require.NoError(t, err)
	programs := map[string][]string{} // by module
	add := func(program string) {
		module := "."
		for _, m := range []string{"throttleredis", "otelheed", "promheed"} {
			if strings.Contains(program, "heed/"+m) {
				module = m
			}
		}
		programs[module] = append(programs[module], program)
	}
	for _, page := range pages {
		if filepath.Base(page) == "README.md" {
			continue
		}
		require.Contains(t, string(index), "("+filepath.Base(page)+")")
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		_, rest, found := strings.Cut(string(text), "\n```")
		require.True(t, found, page)
		language, rest, _ := strings.Cut(rest, "\n")
		program, rest, found := strings.Cut(rest, "```")
		require.True(t, found, page)
		require.Contains(t, rest[strings.LastIndex(rest, "\n## "):], "\n## Limitations\n", page)
		require.LessOrEqual(t, len(word.FindAll(codeBlock.ReplaceAll(text, nil), -1)), maxWords, page)
		if language == "sh" {
			continue
		}
		require.Equal(t, "go", language, page)
		if page == filepath.Join("docs", "with-sdks.md") {
			continue // a test of module examples/uses builds it
		}
		add(program)
		for _, block := range strings.Split(rest, "```go\n")[1:] {
			if program, _, _ := strings.Cut(block, "```"); strings.HasPrefix(program, "package ") {
				add(program)
			}
		}
	}
	for module, all := range programs {
		vetPrograms(t, module, all)
	}
}

// vetPrograms runs go vet for programs with the dependencies of a module.
func vetPrograms(t *testing.T, module string, programs []string) {
	root, err := filepath.Abs(".")
	require.NoError(t, err)
	mod, err := os.ReadFile(filepath.Join(module, "go.mod"))
	require.NoError(t, err)
	sum, err := os.ReadFile(filepath.Join(module, "go.sum"))
	require.NoError(t, err)
	name, rest, _ := strings.Cut(strings.TrimPrefix(string(mod), "module "), "\n")
	rest = regexp.MustCompile(`(?m)^replace .*$`).ReplaceAllString(rest, "")
	text := "module programs\n" + rest + "\nrequire " + name + " v0.0.0\nreplace " + name + " => " + filepath.Join(root, module) + "\n"
	if module != "." {
		text += "replace github.com/heed-go/heed => " + root + "\n"
	}
	dir := t.TempDir()
	write := func(path, text string) {
		path = filepath.Join(dir, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	write("go.mod", text)
	write("go.sum", string(sum))
	for i, program := range programs {
		write(filepath.Join(strconv.Itoa(i), "main.go"), program)
	}
	vet := exec.CommandContext(t.Context(), "go", "vet", "-mod=mod", "./...")
	vet.Dir, vet.Env = dir, append(os.Environ(), "GOWORK=off", "GOFLAGS=", "GOPROXY=off")
	out, err := vet.CombinedOutput()
	require.NoError(t, err, "%s: %s", module, out)
}

// TestDocs_onCallExplainsEachAlertAndError checks that docs/on-call.md has a row for each alert rule
// and for each reason for which a request is not retried.
func TestDocs_onCallExplainsEachAlertAndError(t *testing.T) {
	page, err := os.ReadFile("docs/on-call.md")
	require.NoError(t, err)
	for file, tt := range map[string]struct {
		name *regexp.Regexp
		row  string
	}{
		"promheed/dashboard/alerts.yaml": {regexp.MustCompile(`(?m)- alert: (\w+)$`), "\n| %s |"},
		"errors.go":                      {regexp.MustCompile(`(?m)^\t(Err\w+) += errors.New`), "\n| `heed.%s` |"},
	} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		names := tt.name.FindAllStringSubmatch(string(text), -1)
		require.NotEmpty(t, names, file)
		for _, name := range names {
			require.Contains(t, string(page), fmt.Sprintf(tt.row, name[1]), file)
		}
	}
}
