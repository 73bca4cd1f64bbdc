package heed_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestReadme_programsBuild checks that the programs of README.md, a client and a server, are whole.
func TestReadme_programsBuild(t *testing.T) {
	vetPrograms(t, ".", []string{readmeBlock(t, "## Client\n", "```go\n"), readmeBlock(t, "## Server\n", "```go\n")})
}

// TestReadme_coversTheModules checks that the way to try heed before a release covers each published
// module, and that README.md has at most 150 lines.
func TestReadme_coversTheModules(t *testing.T) {
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	require.LessOrEqual(t, strings.Count(string(text), "\n"), 150)
	makefile, err := os.ReadFile("Makefile")
	require.NoError(t, err)
	_, rest, _ := strings.Cut(string(makefile), "PUBLISHED := . ")
	modules, _, _ := strings.Cut(rest, "\n")
	require.NotEmpty(t, modules)
	require.Contains(t, string(text), `for m in "" /`+strings.ReplaceAll(modules, " ", " /")+"; do")
}

// TestReadme_listsEveryPackage checks that the list of packages matches importOrder. All
// examples are one line, and so are all internal packages, which users cannot import. Those in the
// internal folder of a package belong to that package.
func TestReadme_listsEveryPackage(t *testing.T) {
	var shown, built []string
	for line := range strings.Lines(readmeBlock(t, "## Packages\n", "```\n")) {
		dir, _, _ := strings.Cut(line, " ")
		shown = append(shown, strings.TrimSuffix(dir, "/"))
	}
	for _, s := range readRepository(t) {
		pkg, _ := entryOf(s.dir())
		pkg = strings.TrimSuffix(strings.TrimSuffix(pkg, "/..."), "/*")
		pkg, _, _ = strings.Cut(pkg, "/internal/") // parts of a package
		for _, one := range []string{"internal", "examples"} {
			if strings.HasPrefix(pkg, one+"/") {
				pkg = one
			}
		}
		if pkg != "" && !s.isTest() && !slices.Contains(built, pkg) {
			built = append(built, pkg)
		}
	}
	require.ElementsMatch(t, built, shown)
}

// readmeBlock returns the first code block after heading that begins with fence.
func readmeBlock(t *testing.T, heading, fence string) string {
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(text), heading)
	require.True(t, found, heading)
	_, rest, found = strings.Cut(rest, fence)
	require.True(t, found, fence)
	block, _, found := strings.Cut(rest, "```")
	require.True(t, found, "the block has no end")
	return block
}
