package rules

import (
	"testing"

	"github.com/stretchr/testify/require"
)

const onceAnHour = "rate_limit: {unit: hour, requests_per_unit: 1}}"

// TestLint_findsMisspelledValues lints limits that never apply to a request.
func TestLint_findsMisspelledValues(t *testing.T) {
	for text, want := range map[string]string{
		"limits: [{name: a, match: GTE /x, " + onceAnHour + "]":                                  `"GTE" is no registered method of HTTP`,
		"limits: [{name: a, match: {method: [GET, PSOT]}, " + onceAnHour + "]":                   `"PSOT" is no registered method of HTTP`,
		"descriptors: [{key: method, value: GTE, " + onceAnHour + "]":                            `"GTE" is no registered method of HTTP`,
		"descriptors: [{key: ':method', value: get, " + onceAnHour + "]":                         `"get" is no registered method of HTTP`,
		"values: {m: {request: method}}\ndescriptors: [{key: m, value: GTE, " + onceAnHour + "]": `"GTE" is no registered method of HTTP`,
		"descriptors: [{key: host, value: API.example.com, " + onceAnHour + "]":                  `no request has the host "API.example.com": write "api.example.com"`,
		"descriptors: [{key: ':authority', value: 'a.example.com:443', " + onceAnHour + "]":      `no request has the host "a.example.com:443": write "a.example.com"`,
		"descriptors: [{key: path, value: login, " + onceAnHour + "]":                            `no request has the path "login"`,
		"descriptors: [{key: remote_address, value: 2001:db8::/32, " + onceAnHour + "]":          `no request has the remote_address "2001:db8::/32"`,
		"descriptors: [{key: remote_adress, " + onceAnHour + "]":                                 `requests have no "remote_adress"`, //nolint:misspell // it is what is tested
	} {
		found, err := Lint([]byte("domain: d\n"+text), Config{})
		require.NoError(t, err, text)
		require.NotEmpty(t, found, text)
		require.Contains(t, found[0].String(), want)
	}
	for _, text := range []string{
		"limits: [{name: a, match: {method: [GET, PURGE, PROPFIND, VERSION-CONTROL]}, " + onceAnHour + "]",
		"descriptors: [{key: method, value: POST, " + onceAnHour + "]",
		"descriptors: [{key: host, value: '[2001:db8::1]', " + onceAnHour + "]",
		"descriptors: [{key: path, value: /login, " + onceAnHour + "]",
		"descriptors: [{key: path, value: '/a*', " + onceAnHour + "]",
		"values: {method: {header: X-Method}}\ndescriptors: [{key: method, value: slow, " + onceAnHour + "]",
		"values: {x: {query: method}}\ndescriptors: [{key: x, value: slow, " + onceAnHour + "]",
	} {
		found, err := Lint([]byte("domain: d\n"+text), Config{})
		require.NoError(t, err, text)
		require.Empty(t, found, text)
	}
}

// TestParse_rejectsHostAsHeaderValue checks that the header Host is rejected: http.Request.Header
// does not contain it, so the value would never be found.
func TestParse_rejectsHostAsHeaderValue(t *testing.T) {
	_, err := Parse([]byte("domain: d\nvalues: {h: {header: host}}"), Config{})
	require.EqualError(t, err, "rules: 2:22: header Host is not among the headers of a request: write request: host")
	_, err = Parse([]byte("domain: d\nvalues: {h: {query: host}}"), Config{})
	require.NoError(t, err)
}
