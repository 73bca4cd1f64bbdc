package heed_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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
		vetProgram(t, page, program)
		for _, block := range strings.Split(rest, "```go\n")[1:] {
			if program, _, _ := strings.Cut(block, "```"); strings.HasPrefix(program, "package ") {
				vetProgram(t, page, program)
			}
		}
	}
}

func vetProgram(t *testing.T, page, program string) {
	file := filepath.Join(t.TempDir(), "main.go")
	require.NoError(t, os.WriteFile(file, []byte(program), 0o600))
	vet := exec.CommandContext(t.Context(), "go", "vet", file)
	for _, module := range []string{"throttleredis", "otelheed", "promheed"} {
		if strings.Contains(program, "heed/"+module) {
			vet.Dir = module
		}
	}
	out, err := vet.CombinedOutput()
	require.NoError(t, err, "%s: %s", page, out)
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
