package headers

import (
	"math/rand/v2"
	"net/textproto"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestClassify_agreesWithTheGrammar checks that the names that are not parsed have the meaning
// that the grammar gives them.
func TestClassify_agreesWithTheGrammar(t *testing.T) {
	names := strings.Fields("Retry-After-Ms X-Retry-After X-Ms-Retry-After-Ms X-Retry-In")
	for _, keyword := range []string{"Ratelimit", "X-Ratelimit", "Rate-Limit", "X-Rate-Limit"} {
		for _, rest := range strings.Fields("|-Limit|-Remaining|-Reset|-Used|-Resource|-Bucket|-Policy|-Reset-After|-Retry-After|" +
			"-Limit-Requests|-Remaining-Requests|-Reset-Requests|-Limit-Tokens|-Remaining-Tokens|-Reset-Tokens") {
			for suffix := range strings.SplitSeq(rest, "|") {
				names = append(names, keyword+suffix)
			}
		}
	}
	seen := make(map[nameClass]bool)
	for _, name := range names {
		class, spelling := classify(name)
		require.GreaterOrEqual(t, class, nameDelay, name)
		require.Less(t, int(class), len(knownNames), name)
		known := knownNames[class]
		known.spelling = spelling
		parsed, _ := parseName(name)
		parsed.weakSignal = false          // of no meaning if the name mentions rate limits
		if parsed.kind == KindRetryAfter { // only kind and scale are used
			parsed.spelling, parsed.qualifierHash, parsed.singleQualifier = known.spelling, known.qualifierHash, known.singleQualifier
		}
		require.Equal(t, parsed, known, name)
		seen[class] = true
	}
	require.Len(t, seen, len(knownNames)-int(nameDelay))
	for _, name := range []string{"Retry-After", "Age", "Date", "Vary", "X-Ratelimit-Foo", "X-Acme", ""} {
		class, _ := classify(name)
		require.Less(t, class, nameDelay, name)
	}
}

// TestClassify_ignoresOnlyNamesWithoutMeaning checks names that are skipped, in the source of
// classify.
func TestClassify_ignoresOnlyNamesWithoutMeaning(t *testing.T) {
	n := 0
	for _, name := range sourceStrings(t, "name.go", "func classify(", "\n}\n") {
		if class, _ := classify(name); class != nameIgnored {
			continue
		}
		n++
		m, ok := parseName(name)
		require.False(t, ok || m.kind == KindLimit, name)
		require.Equal(t, textproto.CanonicalMIMEHeaderKey(name), name)
	}
	require.Greater(t, n, 30)
}

// TestClassify_knowsTheUniqueRules checks that the names of the Unique rules of the table are
// found, and no others.
func TestClassify_knowsTheUniqueRules(t *testing.T) {
	for name := range uniqueRules() {
		class, _ := classify(name)
		require.Equal(t, nameOfRule, class, name)
	}
	for _, name := range sourceStrings(t, "name.go", "func classify(", "\n}\n") {
		if class, _ := classify(name); class == nameOfRule {
			require.NotNil(t, uniqueRules()[name], name)
		}
	}
}

// TestMayStateLimit_neverHidesALimit checks that the filter accepts all names that the grammar
// accepts: of two words of the dictionary, with and without a separator, and of random words.
func TestMayStateLimit_neverHidesALimit(t *testing.T) {
	check := func(name string) {
		if m, ok := parseName(name); ok || m.kind == KindLimit {
			require.True(t, mayStateLimit(name), name)
			require.True(t, mayStateLimit(strings.ToUpper(name)), name)
		}
	}
	words := []string{"x", "foo", "app", "api", "1m", "10s", "15min", "2hours", "3days", "4w", "9"}
	for word := range dictionary {
		words = append(words, word)
	}
	slices.Sort(words)
	for _, a := range words {
		check(a)
		for _, b := range words {
			for _, sep := range []string{"-", "_", ".", ""} {
				check(a + sep + b)
			}
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 200_000 {
		var b strings.Builder
		for i := range 2 + random.IntN(5) {
			if i > 0 && random.IntN(4) > 0 {
				b.WriteString([]string{"-", "-", "_", "."}[random.IntN(4)])
			}
			b.WriteString(words[random.IntN(len(words))])
		}
		check(b.String())
	}
}

// TestMayStateLimit_rejectsNamesAboutOtherThings checks that usual names need not be parsed.
func TestMayStateLimit_rejectsNamesAboutOtherThings(t *testing.T) {
	for _, name := range strings.Fields(`X-Acme-Region X-Amz-Cf-Id X-Amz-Cf-Pop X-Cache X-Timer X-Served-By Nel Cf-Ray
		X-Amz-Request-Id X-Amzn-Trace-Id X-Envoy-Upstream-Service-Time Content-Disposition X-Foo-7 X-Dns-Prefetch-Control`) {
		require.False(t, mayStateLimit(name), name)
	}
}

func FuzzMayStateLimit(f *testing.F) {
	f.Add("X-RateLimit-Limit")
	f.Add("10s-calls_left")
	f.Fuzz(func(t *testing.T, name string) {
		if m, ok := parseName(name); ok || m.kind == KindLimit {
			require.True(t, mayStateLimit(name), name)
		}
	})
}

// sourceStrings returns the string literals of a file between two marks.
func sourceStrings(t *testing.T, file, from, to string) (list []string) {
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(text), from)
	require.True(t, ok)
	rest, _, ok = strings.Cut(rest, to)
	require.True(t, ok)
	for i, s := range strings.Split(rest, `"`) {
		if i%2 == 1 {
			list = append(list, s)
		}
	}
	return list
}
