package rules

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// withCookies returns a request with the given Cookie header lines.
func withCookies(lines ...string) *http.Request {
	return &http.Request{Header: http.Header{"Cookie": lines}, URL: &url.URL{}}
}

func TestCookie_isReadAsByNetHTTP(t *testing.T) {
	for _, lines := range [][]string{
		nil, {""}, {"sid"}, {"sid="}, {"sid=a"}, {"sid=a; x=b"}, {"x=b;sid=a"}, {"x=b ; sid = a "}, {"SID=a"}, {"xsid=a"},
		{"x=b", "sid=a"}, {`sid="a"`}, {`sid=a"b`}, {`sid=a\b`}, {"sid=a\x01"}, {"sid=a\x7f"}, {"sid=\"a; x=b\""}, {"sid=a=b"}, {"sid=a,b"}, {"sid= "},
		{`sid="`}, {`sid=""`}, {"sid=a\"; sid=b"},
	} {
		r := withCookies(lines...)
		want := ""
		if c, err := r.Cookie("sid"); err == nil {
			want = c.Value
		}
		got, ok := cookie("sid")(r)
		require.Equal(t, want, got, "%q", lines)
		require.Equal(t, want != "", ok, "%q", lines)
	}
}

// TestCookie_conflictingValuesShareOneKey checks that a client cannot get a limit of its own by
// sending a second cookie with the same name.
func TestCookie_conflictingValuesShareOneKey(t *testing.T) {
	for _, lines := range [][]string{
		{"sid=fake1; sid=real"}, {"sid=fake2", "sid=real"}, {"sid=real; sid=fake3"}, {"sid=a; sid=b; sid=c"}, {"sid=; sid=real"},
		{"x=" + strings.Repeat("y", maxSearched), "sid=real"}, {strings.Repeat("a=b; ", 200_000) + "sid=real"},
	} {
		got, ok := cookie("sid")(withCookies(lines...))
		require.True(t, ok)
		require.Equal(t, ambiguous, got)
	}
	got, ok := cookie("sid")(withCookies("sid=real; sid=real", "sid=real"))
	require.True(t, ok)
	require.Equal(t, "real", got, "the same value twice is that value")
	line := "sid=" + strings.Repeat("y", maxSearched-4)
	got, _ = cookie("sid")(withCookies(line))
	require.Len(t, got, maxSearched-4, "the most that is searched")
}

func TestQuery_isReadAsByNetURL(t *testing.T) {
	names := []string{"key", "a b", "a+b", "k%", "é"}
	for _, raw := range []string{
		"", "key", "key=", "key=a", "x=b&key=a", "key=a&key=b", "k%65y=a", "%6bey=a", "%6Bey=a", "k%6=a", "k%zzy=a&key=b", "keys=a", "ke=a", "key=%zz&key=b",
		"a+b=1", "a%20b=1", "a%2bb=1", "a%2Bb=1", "k%25=1", "k%=1", "%c3%a9=1", "é=1", "=1", "&=1", "key%00=1", "%6", "%",
	} {
		values, _ := url.ParseQuery(raw)
		for _, name := range names {
			want := values.Get(name)
			got, ok := query(name)(&http.Request{URL: &url.URL{RawQuery: raw}})
			require.Equal(t, want, got, "%q in %q", name, raw)
			require.Equal(t, want != "", ok, "%q in %q", name, raw)
		}
	}
	_, ok := query("key")(&http.Request{})
	require.False(t, ok)
}

// TestValues_ofLargeRequestsAllocateNothing checks that other parameters and cookies of a request
// cost no memory.
func TestValues_ofLargeRequestsAllocateNothing(t *testing.T) {
	for name, size := range map[string]int{"searched": maxSearched - 100, "too large": 1 << 20} {
		r := withCookies(strings.Repeat("a=b; ", size/5) + "sid=c")
		r.URL.RawQuery = strings.Repeat("%61=1&", size/6) + "key=c"
		want := "c"
		if size > maxSearched {
			want = ambiguous
		}
		for i, find := range []func(*http.Request) (string, bool){cookie("sid"), query("key")} {
			require.Zero(t, testing.AllocsPerRun(5, func() {
				if v, ok := find(r); v != want || !ok {
					t.Error(name, v)
				}
			}), "%s %d", name, i)
		}
	}
}

// TestCookie_bounds checks how many bytes of cookies are searched, and values in quotes.
func TestCookie_bounds(t *testing.T) {
	for more, want := range map[int]string{-1: "v", 0: "v", 1: ambiguous} {
		for _, lines := range [][]string{
			{"a=v; b=" + strings.Repeat("x", maxSearched-len("a=v; b=")+more)},
			{"a=v", "b=" + strings.Repeat("x", maxSearched-len("a=vb=")+more)},
		} {
			got, ok := cookie("a")(withCookies(lines...))
			require.True(t, ok)
			require.Equal(t, want, got, more)
		}
	}
	require.EqualValues(t, 65536, maxSearched)
	for value, want := range map[string]string{`""`: "", `"v"`: "v", `v`: "v", ``: ""} {
		got, ok := cookieValue(value)
		require.True(t, ok, value)
		require.Equal(t, want, got, value)
	}
}
