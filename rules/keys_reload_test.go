package rules

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
)

// TestKeys_ofOtherFormsHaveNoParts checks keys that the package did not make.
func TestKeys_ofOtherFormsHaveNoParts(t *testing.T) {
	for key, want := range map[string][3]any{
		"3:abc2:de": {"abc", "2:de", true}, "0:": {"", "", true}, "3:abc": {"abc", "", true}, "0:x": {"", "x", true},
		"": {"", "", false}, "abc": {"", "", false}, "3": {"", "", false}, "x:abc": {"", "", false}, "-1:abc": {"", "", false}, "4:abc": {"", "", false}, ":abc": {"", "", false},
	} {
		part, after, ok := cutPart(key)
		require.Equal(t, want, [3]any{part, after, ok}, "%q", key)
	}
}

// TestParse_defaultMaxBytes checks the longest file that is read by default.
func TestParse_defaultMaxBytes(t *testing.T) {
	const text = "domain: d\ndescriptors: []\n#"
	for n, ok := range map[int]bool{4 << 20: true, 4<<20 + 1: false} {
		padding := strings.Repeat("\U00010000", (n-len(text))/4) // characters of four bytes, which are parsed faster than as many spaces
		padding += strings.Repeat(" ", n-len(text)-len(padding))
		_, err := Parse([]byte(text+padding), Config{})
		require.Equal(t, ok, err == nil, "%d: %v", n, err)
	}
}

// TestParse_positionOfSyntaxErrors checks errors of the YAML library with a line and without
// one.
func TestParse_positionOfSyntaxErrors(t *testing.T) {
	for text, want := range map[string]string{
		"domain: d\n\tx: y":           "rules: 2:1: not YAML: found a tab character",
		"domain: d\n\xff":             "rules: 1:1: not YAML: invalid leading UTF-8 octet",
		"domain: d\n---\n- [":         "rules: 3:1: not YAML: did not find expected node content",
		"domain: d\nx: *y\n":          "rules: 1:1: not YAML: unknown anchor 'y' referenced",
		"domain: d\n---\nx: *y\n":     "rules: 1:1: not YAML: unknown anchor 'y' referenced",
		"domain: d\nline 3: {a: b}\n": `rules: 2:1: the file has no word "line 3"`,
	} {
		_, err := Parse([]byte(text), Config{})
		require.ErrorContains(t, err, want, "%q", text)
	}
}

// TestParse_namesOfValues checks which names each source of values accepts.
func TestParse_namesOfValues(t *testing.T) {
	for _, c := range []struct {
		value string
		ok    bool
	}{
		{"header: X-A", true}, {"header: 'X A'", false}, {"header: ''", false}, {"cookie: a", true}, {"cookie: 'a b'", false}, {"query: 'a b'", true}, {"query: ''", false},
		{`query: "a\n"`, false}, {"fixed: 'a b'", true}, {"fixed: ''", false}, {"request: path", true}, {"request: ':path'", true}, {"request: 'a b'", false}, {"header: host", false}, {"cookie: host", true},
	} {
		_, err := Parse([]byte("domain: d\nvalues: {user: {"+c.value+"}}\nlimits: [{name: a, key: user, rate_limit: {unlimited: true}}]"), Config{})
		require.Equal(t, c.ok, err == nil, "%s: %v", c.value, err)
	}
}

// TestLint_addressesOfRequests checks which values of remote_address requests can have.
func TestLint_addressesOfRequests(t *testing.T) {
	for value, ok := range map[string]bool{
		"1.2.3.4": true, "2001:db8::/64": true, "2001:db8::": false, "2001:db8::/63": false, "2001:db8::1/64": false, "1.2.3.0/24": false, "x": false, "::ffff:1.2.3.4": false, "1.2.3.4/64": false,
	} {
		found, err := Lint([]byte("domain: d\ndescriptors: [{key: remote_address, value: '"+value+"', rate_limit: {unit: hour, requests_per_unit: 5, algorithm: token_bucket}}]"), Config{})
		require.NoError(t, err)
		require.Equal(t, ok, len(found) == 0, "%s: %v", value, found)
	}
}

// TestLint_namesTheFirstLimitBelow checks the position of a finding about a descriptor
// without a limit of its own.
func TestLint_namesTheFirstLimitBelow(t *testing.T) {
	const limit = "rate_limit: {unit: hour, requests_per_unit: 5, algorithm: token_bucket}"
	text := "domain: d\ndescriptors:\n- key: nope\n  descriptors:\n"
	for i := range 8 {
		text += fmt.Sprintf("  - {key: k%d, descriptors: [{key: b, %s}]}\n", i, limit)
	}
	found, err := Lint([]byte(text), Config{})
	require.NoError(t, err)
	line := 0
	for _, f := range found {
		if strings.Contains(f.String(), `requests have no "nope"`) {
			line = f.Line
		}
	}
	require.Equal(t, 5, line, "%v", found)
}

// TestSet_addsTheDeepestDescriptors checks the longest descriptor that leads to a limit.
func TestSet_addsTheDeepestDescriptors(t *testing.T) {
	text, d := "domain: d\n", Descriptor{}
	for i := range maxDepth {
		text += "descriptors: [{key: k, "
		d = append(d, Entry{"k", fmt.Sprint(i)})
	}
	text += "rate_limit: {unit: hour, requests_per_unit: 5}" + strings.Repeat("}]", maxDepth)
	set, err := Parse([]byte(text), Config{})
	require.NoError(t, err)
	for _, c := range []struct {
		d    Descriptor
		want bool
	}{{d, true}, {d[:maxDepth-1], false}, {append(d[:maxDepth:maxDepth], Entry{"k", "x"}), false}, {nil, false}} {
		var ticket queue.Ticket
		set.Add(&ticket, c.d)
		require.Equal(t, c.want, len(ticket.Demands) > 0, "%d entries", len(c.d))
	}
}

// TestPatterns_matchTheirParts checks values with stars, and which of several patterns wins.
func TestPatterns_matchTheirParts(t *testing.T) {
	const limit = ", rate_limit: {unit: hour, requests_per_unit: 5}}\n"
	set, err := Parse([]byte("domain: d\ndescriptors:\n- {key: a, value: 'ab*bc'"+limit+"- {key: a, value: 'x*'"+limit+"- {key: a, value: 'xy*'"+limit+
		"- {key: a, value: '*z*z'"+limit+"- {key: a, value: 'xyz'"+limit+"- {key: a, value: 'q*r*s*t'"+limit+"- {key: a, value: 'ab*'"+limit), Config{})
	require.NoError(t, err)
	for value, want := range map[string]string{
		"abbc": "ab*bc", "abc": "ab*", "ab": "ab*", "abxbc": "ab*bc", "xy": "x*", "x": "x*", "xyz": "xyz", "xyzz": "x*", "zz": "*z*z", "z": "", "azbz": "*z*z",
		"qrst": "q*r*s*t", "qrsst": "q*r*s*t", "qsrt": "", "qt": "", "qrt": "", "": "",
	} {
		var ticket queue.Ticket
		set.Add(&ticket, Descriptor{{"a", value}})
		got := ""
		if len(ticket.Demands) > 0 {
			_, got, _ = strings.Cut(ticket.Demands[0].Limiter.(*activeLimit).limit().ID, "=")
		}
		require.Equal(t, want, strings.Trim(got, `"`), "%q", value)
	}
}

// TestFile_limitsRequests checks that File finds the limits of a request.
func TestFile_limitsRequests(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.yaml")
	require.NoError(t, os.WriteFile(path, []byte("domain: d\nlimits: [{name: a, match: /x, rate_limit: {unit: hour, requests_per_unit: 5}}]"), 0o600))
	f := &File{Path: path}
	require.NoError(t, f.Open())
	defer f.Close()
	for path, want := range map[string]bool{"/x": true, "/y": false} {
		var ticket queue.Ticket
		f.Limits(&http.Request{Method: "GET", URL: &url.URL{Path: path}}, &ticket)
		require.Equal(t, want, len(ticket.Demands) > 0, path)
	}
}

// TestReload_retiredLimitPassesOnEverything checks a limiter that a change of the file has
// replaced.
func TestReload_retiredLimitPassesOnEverything(t *testing.T) {
	file := func(algorithm string) string {
		return "domain: d\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 10, algorithm: " + algorithm + "}}]"
	}
	s := Config{Clock: fixedClock(friday)}
	old := reload(t, nil, file("token_bucket"), s)
	retired := old.rules[0].limiter
	set := reload(t, old, file("sliding_log"), s)
	require.NotSame(t, retired, set.rules[0].limiter)
	c := throttle.Claim{Key: "x", Now: friday, Cost: 2}
	d, err := retired.Reserve(t.Context(), c)
	require.NoError(t, err)
	require.EqualValues(t, 8, remaining(t, set, 0))
	retired.Report(t.Context(), c, d, throttle.Feedback{Now: friday, Cost: 5})
	require.EqualValues(t, 5, remaining(t, set, 0))
	d, err = retired.Reserve(t.Context(), c)
	require.NoError(t, err)
	require.EqualValues(t, 3, remaining(t, set, 0))
	retired.Report(t.Context(), c, d, throttle.Feedback{Now: c.Now, State: throttle.Unused})
	require.EqualValues(t, 5, remaining(t, set, 0))

	remote := Config{Clock: fixedClock(friday), Build: func(*Limit) (throttle.Limiter, error) { return remoteLimiter{throttle.AllowAll}, nil }}
	blocking := reload(t, nil, file("token_bucket"), remote)
	l := blocking.rules[0].limiter
	require.False(t, l.Traits().NonBlocking)
	require.False(t, l.Traits().CountsRejected)
	reload(t, blocking, "domain: d\ndescriptors: []", remote)
	require.True(t, l.Traits().NonBlocking, "as AllowAll")
	d, err = l.Reserve(t.Context(), throttle.Claim{Key: "x"})
	require.NoError(t, err)
	require.True(t, d.OK)
}

// A remoteLimiter may block.
type remoteLimiter struct{ throttle.Limiter }

// Traits implements throttle.Limiter.
func (remoteLimiter) Traits() throttle.Traits { return throttle.Traits{EndsAtResponse: true} }

// TestReload_keepsWhatCanChange checks which changes of a limit keep its limiter.
func TestReload_keepsWhatCanChange(t *testing.T) {
	const rate = "unit: day, requests_per_unit: 10"
	for _, c := range []struct {
		from, to string
		same     bool
	}{
		{rate, "unit: hour, requests_per_unit: 20", true},
		{rate, rate + ", soft: 10%", false},
		{rate + ", soft: 10%", rate + ", soft: 20%", true},
		{rate, "unit: day, requests_per_unit: 0", false},
		{"unit: day, requests_per_unit: 0, active: {from: '09:00', requests_per_unit: 3}", "unit: day, requests_per_unit: 0, active: {from: '10:00', requests_per_unit: 3}", true},
		{"unit: day, requests_per_unit: 0, active: {from: '09:00', requests_per_unit: 3}", "unit: day, requests_per_unit: 0", false},
		{rate, rate + ", cost: 2", true},
		{rate, rate + ", align: first", false},
		{rate, rate + ", max_keys: 7", false},
		{rate, rate + ", ban: {rejections: 1, within: 1m, duration: 1m}", false},
		{rate, "unlimited: true", false},
		{rate, rate + ", active: {from: '09:00', requests_per_unit: 3}", true},
		{rate + ", algorithm: sliding_log", rate + ", algorithm: sliding_log, count_rejected: true", false},
		{rate + ", algorithm: leaky_bucket, queue: 1", rate + ", algorithm: leaky_bucket, queue: 2", false},
		{rate + ", granularity: 1h", rate + ", granularity: 2h", false},
	} {
		s := Config{Clock: fixedClock(friday)}
		file := func(words string) string { return "domain: d\ndescriptors: [{key: a, rate_limit: {" + words + "}}]" }
		old := reload(t, nil, file(c.from), s)
		set := reload(t, old, file(c.to), s)
		require.Equal(t, c.same, old.rules[0].limiter == set.rules[0].limiter, "%s to %s", c.from, c.to)
		_, err := set.rules[0].limiter.Reserve(t.Context(), throttle.Claim{Key: "x", Now: friday.Add(time.Hour)})
		require.NoError(t, err)
	}
}
