package heed_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDocs_beginWithCodeAndEndWithLimitations checks that each page of docs begins with
// code and ends with its limitations, and that the index lists it. All programs in Go
// must build; pages about commands begin with a shell script.
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
