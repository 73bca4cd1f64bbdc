package rules

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	onceAnHour = "rate_limit: {unit: hour, requests_per_unit: 1}}"
	onceADay   = "rate_limit: {unit: day, requests_per_unit: 1}"
)

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

// TestLint_findsPartsOfKeysThatClientsChoose lints limits of which a client gets a new one with each
// value of a header, although an address is in the key.
func TestLint_findsPartsOfKeysThatClientsChoose(t *testing.T) {
	const values, both = "domain: d\nvalues: {user: {header: X-User}}\n", "{name: a, key: [remote_address, user], " + onceAnHour
	nested := func(words string) string {
		return "descriptors: [{key: remote_address, " + words + "descriptors: [{key: user, " + onceAnHour + "]}]"
	}
	for text, bad := range map[string]bool{
		"limits: [" + both + "]": true,
		"limits: [" + both + ", {name: b, key: remote_address, " + onceADay + "}]":                         false,
		"limits: [" + both + ", {name: b, key: remote_address, shadow_mode: true, " + onceADay + "}]":      true,
		"limits: [" + both + ", {name: b, match: /other, key: remote_address, " + onceADay + "}]":          true,
		"limits: [" + both + ", {name: b, " + onceADay + "}]":                                              false,
		"limits: [" + both + "]\ndescriptors: [{key: remote_address, " + onceADay + "}]":                   false,
		"limits: [" + both + "]\ndescriptors: [{key: remote_address, value: 192.0.2.1, " + onceADay + "}]": true,
		"limits: [{name: a, key: [remote_address, path], " + onceAnHour + "]":                              false,
		"limits: [{name: a, shadow_mode: true, key: [remote_address, user], " + onceAnHour + "]":           false,
		nested(""):              true,
		nested(onceADay + ", "): false,
	} {
		found, err := Lint([]byte(values+text), Config{})
		require.NoError(t, err, text)
		n := 0
		for _, f := range found {
			if strings.Contains(f.Problem, "a part of its key is chosen by clients (user)") {
				n++
			}
		}
		require.Equal(t, bad, n == 1, "%s: %v", text, found)
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
