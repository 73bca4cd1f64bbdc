package rules

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// invalidFiles are files with errors. The golden file contains the errors of each.
var invalidFiles = []string{
	"",
	"# nothing but a remark",
	"domain: [",
	"domain: d\n\tx: y",
	"just text",
	"- a list",
	"domain: d\n---\ndomain: e",
	"descriptors: []",
	"domain: d\ndomains: e",
	"domain: d\ndomain: e",
	"domain: d\n? {a: b}\n: c",
	"domain: {a: b}",
	"domain: d\nrate_limits: []",
	"domain: d\ndescriptors: {key: a}",
	"domain: d\ndescriptors: [a]",
	"domain: d\ndescriptors: [{value: a}]",
	"domain: d\ndescriptors: [{key: a}, {key: a}]",
	"domain: d\ndescriptors: [{key: a, value: b}, {key: a, value: b}]",
	"domain: d\ndescriptors: [{key: a, quota_mode: true}]",
	"domain: d\ndescriptors: [{key: a, metadata: {x: y}}]",
	"domain: d\ndescriptors: [{key: a, shadow_mode: true}]",
	"domain: d\ndescriptors: [{key: a, shadow_mode: 7, rate_limit: {unlimited: true}}]",
	"domain: d\ndescriptors: [{key: a, value: b, share_threshold: true, rate_limit: {unlimited: true}}]",
	"domain: d\nbase: &b {unlimited: true}\ndescriptors: [{key: a, rate_limit: {<<: *b}}]",
	limitWith("unit: fortnight, requests_per_unit: 1"),
	limitWith("unit: minute"),
	limitWith("requests_per_unit: 1"),
	limitWith("unit: minute, requests_per_unit: -1"),
	limitWith("unit: minute, requests_per_unit: 1.5"),
	limitWith("unit: minute, requests_per_unit: 99999999999999999999"),
	limitWith("unit: minute, per: 90s, requests_per_unit: 1"),
	limitWith("per: 90, requests_per_unit: 1"),
	limitWith("per: -1s, requests_per_unit: 1"),
	limitWith("per: 999999999999d, requests_per_unit: 1"),
	limitWith("unlimited: true, unit: minute"),
	limitWith("unlimited: true, requests_per_unit: 3"),
	limitWith("unit: minute, requests_per_unit: 1, algorithm: magic"),
	limitWith("unit: minute, requests_per_unit: 1, algorithm: tick_queue"),
	limitWith("unit: minute, requests_per_unit: 1, algorithm: fixed_window, burst: 3"),
	limitWith("unit: minute, requests_per_unit: 1, granularity: 7s"),
	limitWith("unit: day, requests_per_unit: 1, granularity: 1ms"),
	limitWith("unit: minute, requests_per_unit: 1, algorithm: sub_windows"),
	limitWith("unit: minute, requests_per_unit: 1, granularity: 6s, active: {unit: hour}"),
	limitWith("unit: minute, requests_per_unit: 1, calendar: day"),
	limitWith("requests_per_unit: 1, calendar: decade"),
	limitWith("requests_per_unit: 1, calendar: day, zone: Europe/Atlantis"),
	limitWith("requests_per_unit: 1, calendar: day, active: {unit: hour}"),
	limitWith("unit: minute, requests_per_unit: 1, zone: UTC"),
	limitWith("unit: minute, requests_per_unit: 1, align: lunch"),
	limitWith("concurrency: 3, unit: minute"),
	limitWith("algorithm: concurrency"),
	limitWith("concurrency: 3, active: {from: 09:00}"),
	limitWith("unit: minute, requests_per_unit: 1, name: x, replaces: [{name: x}]"),
	limitWith("unit: minute, requests_per_unit: 1, replaces: [{name: ''}]"),
	limitWith("unit: minute, requests_per_unit: 1, replaces: x"),
	limitWith("unit: minute, requests_per_unit: 1, soft: a lot"),
	limitWith("unit: minute, requests_per_unit: 1, soft: 10%, warm_up: {period: 1s}"),
	limitWith("unit: minute, requests_per_unit: 1, warm_up: {period: 1s, cold_factor: -1}"),
	limitWith("unit: minute, requests_per_unit: 1, borrow: nobody"),
	limitWith("unit: minute, requests_per_unit: 1, ban: {rejections: 3, within: 1m}"),
	limitWith("unit: minute, requests_per_unit: 1, cost: 0"),
	limitWith("unit: minute, requests_per_unit: 1, burst: 9223372036854775807"),
	limitWith("unit: minute, requests_per_unit: 1, min_gap: 1h"),
	limitWith("unit: minute, requests_per_unit: 1, active: {from: noon}"),
	limitWith("unit: minute, requests_per_unit: 1, active: {from: 25:00}"),
	limitWith("unit: minute, requests_per_unit: 1, active: {from: 09:00, days: someday}"),
	limitWith("unit: minute, requests_per_unit: 1, active: {from: 09:00, when: often}"),
	limitWith("unit: minute, requests_per_unit: 1, compact: true, active: {from: 09:00}"),
	limitWith("unit: minute, requests_per_unit: 1, compact: true, algorithm: sliding_log"),
	"domain: d\nlimits: [{name: a, rate_limit: {unit: hour, requests_per_unit: 5, compact: true}}]",
	limitWith("unit: minute, requests_per_unit: 1, max_keys: 1000000000"),
	"domain: d\nlimits: [{rate_limit: {unlimited: true}}]",
	"domain: d\nlimits: [{name: a}]",
	"domain: d\nlimits: [{name: a, rate_limit: {unlimited: true}}, {name: a, rate_limit: {unlimited: true}}]",
	"domain: d\nlimits: [{name: a, rate_limit: {unlimited: true, name: b}}]",
	"domain: d\nlimits: [{name: a, unidentified: reject, rate_limit: {unlimited: true}}]",
	"domain: d\nlimits: [{name: a, key: user, rate_limit: {unlimited: true}}]",
	"domain: d\nlimits: [{name: a, key: '{id}', match: /a, rate_limit: {unlimited: true}}]",
	matching("nothing"), matching("get /a"), matching("GET  a"), matching("host:80/a"), matching("a.*.b/a"),
	matching("/a//b"), matching("/a/../b"), matching("/a/*"), matching("'/a/{}'"), matching("'/a/x{id}'"), matching("'/{x...}/a'"),
	matching("'/{$}/a'"), matching("'/{x}/{x}'"), matching("{path: a}"), matching("{port: 80}"), matching("{header: [X-A]}"),
	matching("{header: {X-A: ''}}"), matching("{header: {x-a: b, X-A: c}}"), matching("{header: {host: b}}"),
	"domain: \"d\\n\"",
	matching("'G(T /a'"), matching("\"/a\\n\""), matching("{header: {'X A': b}}"),
	"domain: d\nvalues: {user: {header: 'X A'}}",
	"domain: d\nvalues: {\"a\\n\": {header: X}}",
	"domain: d\nvalues: [user]",
	"domain: d\nvalues: {user: X-User}",
	"domain: d\nvalues: {user: {}}",
	"domain: d\nvalues: {user: {header: a, query: b}}",
	"domain: d\nvalues: {user: {header: ''}}",
	"domain: d\nvalues: {user: {request: mood}}",
	"domain: d\nvalues: {user: {header: a}, user: {header: b}}",
}

func limitWith(words string) string {
	return "domain: d\ndescriptors: [{key: a, rate_limit: {" + words + "}}]"
}

func matching(m string) string {
	return "domain: d\nlimits: [{name: a, match: " + m + ", rate_limit: {unlimited: true}}]"
}

// TestParse_errorsNamePositionAndCause compares all errors with a golden file.
func TestParse_errorsNamePositionAndCause(t *testing.T) {
	var b strings.Builder
	for _, text := range invalidFiles {
		_, err := Parse([]byte(text), Config{})
		require.Error(t, err, text)
		var fault *Error
		require.ErrorAs(t, err, &fault, text)
		fmt.Fprintf(&b, "%s\n", strings.ReplaceAll("  | "+text, "\n", "\n  | "))
		fmt.Fprintf(&b, "%v\n\n", err)
	}
	golden(t, "broken.txt", b.String())
}

// TestParse_reportsAllErrors checks that two errors are reported, and at most twenty.
func TestParse_reportsAllErrors(t *testing.T) {
	_, err := Parse([]byte("domain: d\nfoo: 1\nbar: 2\n"), Config{})
	require.ErrorContains(t, err, `rules: 2:1: the file has no word "foo"`)
	require.ErrorContains(t, err, `rules: 3:1: the file has no word "bar"`)
	_, err = Parse([]byte("domain: d\ndescriptors:"+strings.Repeat("\n- {value: a}", 1000)), Config{})
	require.Len(t, err.(interface{ Unwrap() []error }).Unwrap(), maxErrors)
}

// TestParse_isBounded exceeds each bound of a file. Reading the alias bomb would not end; it is
// rejected because of its aliases, before its content is read.
func TestParse_isBounded(t *testing.T) {
	deep := "domain: d\ndescriptors: " + strings.Repeat("[{key: a, descriptors: ", 20) + "[]" + strings.Repeat("}]", 20)
	bomb := "domain: &a1 d\nvalues:\n  x: &a {header: h}\ndescriptors:\n- &d0 {key: k0, rate_limit: {unlimited: true}}\n"
	for i := 1; i < 12; i++ {
		bomb += fmt.Sprintf("- &d%d {key: k%d, descriptors: [", i, i)
		for range 9 {
			bomb += fmt.Sprintf("*d%d, ", i-1)
		}
		bomb += "]}\n"
	}
	many := "domain: d\ndescriptors:" + strings.Repeat("\n- {key: a, rate_limit: {unlimited: true}}", 10)
	for name, tt := range map[string]struct {
		text, want string
		setting    Config
	}{
		"deep":  {deep, "rules: 2:382: descriptors are more than 16 deep", Config{}},
		"bomb":  {bomb, "aliases make this file too large", Config{}},
		"long":  {"domain: d\n# " + strings.Repeat("x", 100), "more than 20 bytes", Config{MaxBytes: 20}},
		"limit": {strings.Replace(many, "key: a", "key: b", 1), "is there twice", Config{MaxLimits: 5}},
	} {
		_, err := Parse([]byte(tt.text), tt.setting)
		require.ErrorContains(t, err, tt.want, name)
	}
	distinct := "domain: d\ndescriptors:"
	for i := range 10 {
		distinct += fmt.Sprintf("\n- {key: a%d, rate_limit: {unlimited: true}}", i)
	}
	_, err := Parse([]byte(distinct), Config{MaxLimits: 9})
	require.ErrorContains(t, err, "rules: 12:25: more than 9 limits")
	_, err = Parse([]byte(distinct), Config{MaxLimits: 10})
	require.NoError(t, err)
}

// TestParse_resolvesAliases uses one amount twice.
func TestParse_resolvesAliases(t *testing.T) {
	set, err := Parse([]byte("domain: d\ndescriptors:\n- {key: a, rate_limit: &x {unit: hour, requests_per_unit: 3}}\n- {key: b, rate_limit: *x}\n"), Config{})
	require.NoError(t, err)
	require.Equal(t, describe(set.All()[0].Spec), describe(set.All()[1].Spec))
}

// TestError_includesPosition checks the text of an Error.
func TestError_includesPosition(t *testing.T) {
	require.Equal(t, "rules: 3:4: what", (&Error{3, 4, "what"}).Error())
	require.Equal(t, "rules: what", (&Error{Message: "what"}).Error())
	require.NotErrorIs(t, &Error{}, errors.ErrUnsupported)
}

// FuzzParse looks for a file for which Parse panics, returns an error that is not an *Error, or
// returns an invalid Spec.
func FuzzParse(f *testing.F) {
	for _, text := range invalidFiles {
		f.Add(text)
	}
	f.Add(fileWithLimits("GET a.b/{x}/{y...}", "{host: '*.a', header: {A: b*c}}"))
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 1<<14 {
			return
		}
		set, err := Parse([]byte(text), Config{})
		if err != nil {
			var fault *Error
			require.ErrorAs(t, err, &fault)
			return
		}
		require.NotEmpty(t, set.String())
		for _, l := range set.All() {
			if l.Spec != nil {
				require.NoError(t, l.Spec.Validate())
			}
			_ = l.Metric("1:a1:b")
		}
		matchedLimits(set, readRequest(t, "GET /a/b?q=x\nX-User: ann"))
	})
}

func TestParseClock_rejectsWhatNoClockShows(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0:00": 0, "07:30": 7*time.Hour + 30*time.Minute, "7:5": 7*time.Hour + 5*time.Minute,
		"23:59:59": 24*time.Hour - time.Second, "24:00": 24 * time.Hour,
	} {
		d, ok := parseClock(text)
		require.True(t, ok, text)
		require.Equal(t, want, d, text)
	}
	for _, text := range []string{"", "7", "007:30", "07:030", "07:60", "07:00:60", "24:01", "a:00", "07:x", "1:2:3:4", "-1:00", "+7:00"} {
		_, ok := parseClock(text)
		require.False(t, ok, text)
	}
}

// A node of the wrong kind is reported once.
func TestParse_reportsANodeOfTheWrongKindOnce(t *testing.T) {
	_, err := Parse([]byte("domain: d\ndescriptors: [{key: a, rate_limit: {unit: {x: 1}, requests_per_unit: 1}}]\n"), Config{})
	require.Error(t, err)
	require.Equal(t, 1, strings.Count(err.Error(), "unit"), err)
}
