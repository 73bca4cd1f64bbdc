package rules

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestParse_rejectsRecursiveAliases reads 116 bytes that would expand to 1 GiB.
func TestParse_rejectsRecursiveAliases(t *testing.T) {
	const limit = "rate_limit: {unit: hour, requests_per_unit: 1}"
	for text, want := range map[string]string{
		"domain: d\ndescriptors: &d\n  - {key: x, descriptors: *d}\n  - {key: y, descriptors: *d}\n  - {key: z, descriptors: *d}\n":          "rules: 3:27: the alias *d contains itself",
		"domain: d\ndescriptors:\n- &x {key: x, " + limit + ", descriptors: [*x]}":                                                           "rules: 3:77: the alias *x contains itself",
		"domain: d\ndescriptors:\n- &x\n  key: x\n  descriptors:\n  - {key: y, " + limit + "}\n  - &y {key: z, descriptors: [*x]}\n  - *y\n": "rules: 7:31: the alias *x contains itself",
		"&f {domain: d, values: *f}": "rules: 1:24: the alias *f contains itself",
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Parse([]byte(text), Config{})
		runtime.ReadMemStats(&after)
		require.ErrorContains(t, err, want)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20))
		_, err = Lint([]byte(text), Config{})
		require.ErrorContains(t, err, want)
	}
}

// TestParse_boundsAliasExpansion checks that aliases may expand to 100,000 nodes, however they are
// nested. An item of its file has 11 nodes, and each alias expands to a list of ten of them.
func TestParse_boundsAliasExpansion(t *testing.T) {
	file := func(items int) string {
		var b strings.Builder
		b.WriteString("domain: d\ndescriptors:\n- {key: a, descriptors: &ten [")
		for i := range 10 {
			fmt.Fprintf(&b, "{key: k%d, rate_limit: {unit: hour, requests_per_unit: 1}}, ", i)
		}
		b.WriteString("]}\n")
		for i := range items {
			fmt.Fprintf(&b, "- {key: b%d, descriptors: *ten}\n", i)
		}
		return b.String()
	}
	const each = 1 + 10*9 // nodes of the list: the list itself, and nine for each item
	set, err := Parse([]byte(file(maxAliased/each)), Config{})
	require.NoError(t, err)
	require.Len(t, set.All(), 10*(1+maxAliased/each))
	_, err = Parse([]byte(file(maxAliased/each+15)), Config{})
	require.EqualError(t, err, "rules: 1:1: aliases make this file too large: write out less with them")
}

// TestParse_stopsAfterMaxErrors checks that a file with a million errors is read only as far as
// errors are reported.
func TestParse_stopsAfterMaxErrors(t *testing.T) {
	errors := 30_000
	if testing.Short() {
		errors = 12_000
	}
	for name, text := range map[string]string{
		"limits":      "domain: d\nlimits: [" + strings.Repeat("{},", errors) + "]",
		"words":       "domain: d\n" + strings.Repeat("domain: e\n", errors),
		"values":      "domain: d\nvalues:\n" + strings.Repeat("  x: 1\n", errors),
		"descriptors": "domain: d\ndescriptors: [" + strings.Repeat("{x: 1},", errors) + "]",
	} {
		p := &parser{reader: reader{config: &Config{}}, parsedFile: parsedFile{root: &node{}, byName: map[string]*valueSource{}}, names: map[string]bool{}}
		doc := p.document([]byte(text))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		p.file(doc)
		runtime.ReadMemStats(&after)
		require.Len(t, p.faults, maxErrors, name)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1<<20), name)
	}
}
