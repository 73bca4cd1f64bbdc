package headers

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// TestParse_hasTheBoundsOfItsDocs checks the numbers that the docs of Reader.Parse, ReadBody, Read
// and Limit.PartitionKey state.
func TestParse_hasTheBoundsOfItsDocs(t *testing.T) {
	require.Equal(t, []int{512, 32, 4096, 8192, 96}, []int{maxCandidates, maxGroups, maxValueLen, maxPeek, maxNameLen})
	require.Equal(t, 100*time.Millisecond, peekTimeout)
	require.Equal(t, 366*24*time.Hour, MaxDelay)
}

// TestParseHTTPDate_alone checks the parser of the usual format without the general one, which
// reads the same dates.
func TestParseHTTPDate_alone(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	for range 1000 {
		at := time.Unix(random.Int64N(253402300800), 0).UTC() // until 9999
		s := at.Format(http.TimeFormat)
		got, ok := parseHTTPDate(s)
		require.True(t, ok, s)
		require.Equal(t, at, got)
		for i := 3; i < len(s); i++ {
			_, ok := parseHTTPDate(s[:i] + "?" + s[i+1:])
			require.False(t, ok, "%s, at %d", s, i)
		}
		for _, other := range []string{s + " ", " " + s, s[:len(s)-1], strings.Replace(s, "GMT", "UTC", 1)} {
			_, ok := parseHTTPDate(other)
			require.False(t, ok, other)
		}
	}
	for s, want := range map[string]bool{
		"Tue, 00 Nov 2023 22:13:20 GMT": false, "Tue, 32 Nov 2023 22:13:20 GMT": false, "Tue, 14 Nop 2023 22:13:20 GMT": false, "Tue, 14 Nov 2023 25:13:20 GMT": false,
		"Tue, 14 Nov 2023 22:60:20 GMT": false, "Tue, 14 Nov 2023 22:13:61 GMT": false, "Tue, 14 Nov 2023 22:13:60 GMT": true, "xxx, 14 NOV 2023 22:13:20 GMT": true,
	} {
		_, ok := parseHTTPDate(s)
		require.Equal(t, want, ok, s)
	}
}

// TestReader_obeysRulesOfHeadersThatAreNotAboutLimits checks rules for headers that are otherwise
// not read, and for those of the Retry-After family.
func TestReader_obeysRulesOfHeadersThatAreNotAboutLimits(t *testing.T) {
	r := Reader{Hosts: map[string]Provider{"api.test": {Headers: map[string]Rule{
		"X-Runtime":        {Kind: KindRemaining, Name: "run"},
		"Retry-After":      {},
		"X-Acme-Pause":     {Kind: KindRetryAfter},
		"X-Acme-Pause-Two": {Kind: KindRetryAfter, Scale: time.Minute},
		"Age":              {},
	}}}}
	for _, c := range []struct{ header, want, others string }{
		{"X-Runtime: 3", "run 3/?", ""},
		{"X-Acme-Pause: 2\nRetry-After-Ms: 1500", "retry 2s", "retry 1.5s"},
		{"X-Runtime: 3\nX-Powered-By: x", "run 3/?", ""},
		{"Retry-After: 3", "", "retry 3s"},
		{"Retry-After: 3\nX-Runtime: 4", "run 4/?", "retry 3s"},
		{"X-Acme-Pause: 5", "retry 5s", ""},
		{"X-Acme-Pause-Two: 5", "retry 5m0s", ""},
		{"Age: 9\nX-RateLimit-Remaining: 1", "1/?", ""},
	} {
		require.Equal(t, c.want, formatReport(r.Parse("api.test", 200, parseHeader(c.header), time.Time{})), c.header)
		require.Equal(t, c.others, formatReport(r.Parse("other.test", 200, parseHeader(c.header), time.Time{})), c.header)
	}
}

// TestReader_prefersMillisecondsToARuleForRetryAfter checks that a rule for Retry-After leaves it the
// delay in whole seconds, which one in milliseconds precedes.
func TestReader_prefersMillisecondsToARuleForRetryAfter(t *testing.T) {
	r := Reader{Hosts: map[string]Provider{"api.test": {Headers: map[string]Rule{"Retry-After": {Kind: KindRetryAfter}}}}}
	for header, want := range map[string]time.Duration{
		"Retry-After: 2": 2 * time.Second, "Retry-After: 2\nRetry-After-Ms: 1500": 1500 * time.Millisecond, "Retry-After: 2\nRetry-After-Ms: 0": 2 * time.Second,
	} {
		require.Equal(t, want, r.Parse("api.test", 429, parseHeader(header), time.Time{}).RetryAfter, header)
	}
}

// TestParse_acceptsHeadersWithoutValues checks names with no value at all, which a program may set.
func TestParse_acceptsHeadersWithoutValues(t *testing.T) {
	for _, values := range [][]string{nil, {}, {""}} {
		for _, name := range []string{"Age", "Retry-After", "X-Retry-In", "X-Ratelimit-Limit", "X-Ratelimit", "X-App-Usage", "Ratelimit", "X-Acme-Limit", "Retry-After-Ms"} {
			r := Parse(200, http.Header{name: values, "X-Other": {"1"}}, time.Time{})
			require.Equal(t, Report{}, r, name)
		}
	}
}

// TestReader_readsOwnHeadersInTheOrderOfTheirNames checks that the order of a map has no effect.
func TestReader_readsOwnHeadersInTheOrderOfTheirNames(t *testing.T) {
	p, h, want := Provider{Headers: map[string]Rule{}}, http.Header{}, ""
	for i := range 8 {
		name := fmt.Sprintf("X-Acme-%c", 'A'+i)
		p.Headers[name] = Rule{Read: func(v string, r *Report) { r.Limits = append(r.Limits, Limit{Name: v}) }}
		h[name] = []string{name}
		want += name + " "
	}
	r := Reader{Hosts: map[string]Provider{"api.test": p}}
	for range 20 {
		got := ""
		for _, l := range r.Parse("api.test", 200, h, time.Time{}).Limits {
			got += l.Name + " "
		}
		require.Equal(t, want, got)
	}
}

// TestParse_namesOfAnyLength checks the longest name that is read completely. Of a longer one the
// first 16 bytes of each word are read.
func TestParse_namesOfAnyLength(t *testing.T) {
	const begin = "X-Ratelimit-Limit-"
	for length, want := range map[int]int{maxNameLen: maxNameLen - len(begin), maxNameLen + 1: 16, 1000: 16} {
		r := Parse(200, http.Header{begin + strings.Repeat("q", length-len(begin)): {"5"}}, time.Time{})
		require.Len(t, r.Limits, 1, length)
		require.Equal(t, strings.Repeat("q", want), r.Limits[0].Name, length)
	}
	long := strings.Repeat("q", 30) + "-" + strings.Repeat("r", 16) + "-" + strings.Repeat("s", 17) + "-t-" + strings.Repeat("u", 40)
	r := Parse(200, http.Header{begin + long: {"5"}}, time.Time{})
	require.Equal(t, strings.Repeat("q", 16)+"-"+strings.Repeat("r", 16)+"-"+strings.Repeat("s", 16)+"-t-"+strings.Repeat("u", 16), r.Limits[0].Name)
	r = Parse(200, http.Header{"X-Ratelimit--Limit": {"5"}, "-X-Ratelimit-Remaining-": {"3"}}, time.Time{})
	require.Equal(t, "3/5", formatReport(r), "separators without a word between them")
}

func TestParseWindowWord(t *testing.T) {
	window := func(d time.Duration) dictWord { return dictWord{class: classWindow, duration: d} }
	for s, want := range map[string]dictWord{
		"1s": window(time.Second), "1m": window(time.Minute), "10s": window(10 * time.Second), "15min": window(15 * time.Minute), "2w": window(14 * day),
		"0d": window(0), "9999h": window(9999 * time.Hour), "m": {}, "xm": {}, "10": {}, "1": {}, "": {}, "1ms": {}, "12345m": {}, "1x": {}, "1m5": {},
	} {
		require.Equal(t, want, parseWindowWord([]byte(s)), s)
	}
}

// TestBytes_areThoseOfASCII compares the functions on bytes with package strings.
func TestBytes_areThoseOfASCII(t *testing.T) {
	for i := range 128 {
		c := byte(i)
		s := string([]byte{c})
		lower, upper := strings.ToLower(s), strings.ToUpper(s)
		require.Equal(t, lower != upper, isLetter(c), "%q", s)
		require.Equal(t, strings.Contains("0123456789", s), isDigit(c), "%q", s)
		require.Equal(t, lower, string(toLower(make([]byte, 4), s)))
		for j := range 128 {
			other := string([]byte{byte(j)})
			require.Equal(t, lower == strings.ToLower(other), equalFold(s, other), "%q, %q", s, other)
		}
	}
	for i := 128; i < 256; i++ {
		require.False(t, isLetter(byte(i)) || isDigit(byte(i)), i)
	}
	for s, want := range map[string]int{"": 0, "0": 0, "7": 7, "42": 42, "4x": 0, "x4": 0, "9999": 9999} {
		require.Equal(t, want, smallInt([]byte(s)), s)
	}
	for s, want := range map[string][2]string{
		"": {"", ""}, "a": {"a", ""}, "a,b": {"a", "b"}, ",b": {"", "b"}, "a,": {"a", ""}, `"a,b",c`: {`"a,b"`, "c"},
		`"a\",b",c`: {`"a\",b"`, "c"}, `a\,b`: {`a\`, "b"}, `"a,b`: {`"a,b`, ""}, `"a\\",b`: {`"a\\"`, "b"},
	} {
		before, after := cutOutsideQuotes(s, ',')
		require.Equal(t, want, [2]string{before, after}, s)
	}
}

// TestLimitHint_selectsAndCompletes checks each field of a hint on limits that it matches and on
// others.
func TestLimitHint_selectsAndCompletes(t *testing.T) {
	stated := Limit{Name: "n", Unit: "u", Limit: 7, HasLimit: true}
	for _, c := range []struct {
		hint        LimitHint
		limit, want Limit
	}{
		{LimitHint{Window: time.Hour}, stated, Limit{Name: "n", Unit: "u", Limit: 7, HasLimit: true, Window: time.Hour}},
		{LimitHint{Name: "n", Rename: "m"}, stated, Limit{Name: "m", Unit: "u", Limit: 7, HasLimit: true}},
		{LimitHint{Name: "x", Rename: "m"}, stated, stated},
		{LimitHint{Name: "-", Rename: "m"}, stated, stated},
		{LimitHint{Name: "-", Rename: "m"}, Limit{}, Limit{Name: "m"}},
		{LimitHint{StatedUnit: "u", Unit: "v"}, stated, Limit{Name: "n", Unit: "v", Limit: 7, HasLimit: true}},
		{LimitHint{StatedUnit: "x", Unit: "v"}, stated, stated},
		{LimitHint{StatedUnit: "x", Unit: "v"}, Limit{}, Limit{}},
		{LimitHint{Limit: 7, Unit: "v"}, stated, Limit{Name: "n", Unit: "v", Limit: 7, HasLimit: true}},
		{LimitHint{Limit: 8, Unit: "v"}, stated, stated},
		{LimitHint{Limit: 1, Unit: "v"}, Limit{}, Limit{}},
		{LimitHint{WithoutLimit: true, Unit: "v"}, stated, stated},
		{LimitHint{WithoutLimit: true, Unit: "v"}, Limit{}, Limit{Unit: "v"}},
		{LimitHint{Max: 1}, Limit{}, Limit{Limit: 1, HasLimit: true}},
		{LimitHint{Max: 9}, stated, stated},
		{LimitHint{Window: time.Minute}, Limit{Window: time.Second}, Limit{Window: time.Second}},
		{LimitHint{Window: time.Minute}, Limit{ResetAfter: 2 * time.Minute}, Limit{ResetAfter: 2 * time.Minute, Window: time.Minute}},
		{LimitHint{Window: time.Minute}, Limit{ResetAfter: 2*time.Minute + 1}, Limit{ResetAfter: 2*time.Minute + 1}},
	} {
		l := c.limit
		(&Provider{LimitHints: []LimitHint{c.hint, {}}}).applyHints(&l)
		require.Equal(t, c.want, l, "%+v of %+v", c.hint, c.limit)
	}
	l := Limit{}
	(&Provider{LimitHints: []LimitHint{{Name: "x", Unit: "x"}, {Unit: "first"}, {Unit: "second"}}}).applyHints(&l)
	require.Equal(t, Limit{Unit: "first"}, l, "only the first hint that matches")
}

// TestLimit_RemoteLimitOfARate checks slow rates, and limits of one unit.
func TestLimit_RemoteLimitOfARate(t *testing.T) {
	for _, c := range []struct {
		limit Limit
		want  throttle.RemoteLimit
	}{
		{Limit{Limit: 1, HasLimit: true, HasRemaining: true, Rate: 0.5}, throttle.RemoteLimit{Limit: 1, ResetAfter: 2 * time.Second, Per: 2 * time.Second}},
		{Limit{Limit: 10, HasLimit: true, HasRemaining: true, Rate: 0.5}, throttle.RemoteLimit{Limit: 10, ResetAfter: 2 * time.Second, Per: 20 * time.Second}},
		{Limit{Limit: 10, HasLimit: true, HasRemaining: true, Remaining: 1, Rate: 0.5}, throttle.RemoteLimit{Limit: 10, Remaining: 1, Per: 20 * time.Second}},
		{Limit{HasRemaining: true, Rate: 0.5, Window: time.Hour}, throttle.RemoteLimit{ResetAfter: 2 * time.Second, Per: time.Hour}},
	} {
		require.Equal(t, c.want, c.limit.RemoteLimit(), "%+v", c.limit)
	}
	for f := FormatNone; f <= FormatEpochMicros; f++ {
		require.NotEqual(t, "unknown format", f.String())
	}
	require.Equal(t, "unknown format", (FormatEpochMicros + 1).String())
	require.Equal(t, "unknown statement", (StatedWait + 1).String())
}

// TestParse_usedUnitsBeyondTheLimit checks that more units used than the limit has leave none.
func TestParse_usedUnitsBeyondTheLimit(t *testing.T) {
	for header, want := range map[string]string{
		"X-RateLimit-Limit: 10\nX-RateLimit-Used: 12":        "0/10, rejected",
		"X-RateLimit-Limit: 10\nX-RateLimit-Used: 10":        "0/10, rejected",
		"X-RateLimit-Limit: 10\nX-RateLimit-Used: 9.5":       "0/10, rejected",
		"X-RateLimit-Limit: 10\nX-RateLimit-Used: 9":         "1/10",
		"X-RateLimit-Remaining: 2.9999999999":                "3/?",
		"X-RateLimit-Remaining: 2.9999999990":                "2/?",
		"X-RateLimit-Remaining: 0\nX-RateLimit-Reset: \t30 ": "0/? in 30s, rejected",
	} {
		require.Equal(t, want, formatReport(Parse(403, parseHeader(header), time.Unix(1700000000, 0))), header)
	}
	r := Parse(200, http.Header{"X-Ratelimit-Remaining": {"1"}, "X-Ratelimit-Reset": {" 30\t"}}, time.Unix(1700000000, 0))
	require.Equal(t, "1/? in 30s", formatReport(r), "blanks around a value")
}

// TestParse_fractionsAreNoCounts checks that the counts of a limit in fractions are zero, also those
// whose Has field is false: a RemoteLimit has no such field for its size.
func TestParse_fractionsAreNoCounts(t *testing.T) {
	for _, h := range []string{
		"X-RateLimit-Limit-Utilization: 5\nX-RateLimit-Remaining-Utilization: 3\nX-RateLimit-Reset-Utilization: 9",
		"X-RateLimit-Used-Utilization: 4\nX-RateLimit-Reset-Utilization: 9",
	} {
		limits := Parse(200, parseHeader(h), time.Unix(1700000000, 0)).Limits
		require.Len(t, limits, 1, h)
		l := limits[0]
		require.False(t, l.HasLimit || l.HasRemaining || l.HasUsed, h)
		require.Equal(t, []int64{0, 0, 0}, []int64{l.Limit, l.Remaining, l.Used}, h)
	}
}

// TestReader_bodyMayRevokeARejection checks that a Reader.Body that finds no rejection leaves none
// of what the headers alone had stated.
func TestReader_bodyMayRevokeARejection(t *testing.T) {
	r := Reader{Body: func(_ int, _ http.Header, _ []byte, rep *Report) { rep.Throttled = false }}
	h := parseHeader("Retry-After: 7")
	rep := r.Parse("", 429, h, time.Time{})
	require.Equal(t, StatedWait, rep.Stated)
	require.Equal(t, 7*time.Second, rep.Wait)
	r.ReadBody(429, h, []byte("x"), &rep)
	require.Equal(t, NotStated, rep.Stated)
	require.Zero(t, rep.Wait)
}

// TestReadBody_providerCodesPrecedePermanentOnes checks a code that a Provider declares to be that
// of a limit, although it is one of a permanent rejection elsewhere.
func TestReadBody_providerCodesPrecedePermanentOnes(t *testing.T) {
	r := &Reader{Hosts: map[string]Provider{"api.test": {ErrorCodes: []string{"insufficient_quota"}}}}
	for host, permanent := range map[string]bool{"api.test": false, "other.test": true} {
		rep := readBody(r, host, 429, "", `{"error":{"code":"insufficient_quota"}}`)
		require.Equal(t, permanent, rep.Permanent, host)
		require.Equal(t, !permanent, rep.Throttled, host)
	}
}

// TestPeek_waitsForNoMoreThanItNeeds checks when peek returns, and that the caller of a slow body
// gets each piece when it arrives.
func TestPeek_waitsForNoMoreThanItNeeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, size := range []int{0, 1, maxPeek - 1, maxPeek, maxPeek + 1, 3 * maxPeek} { // no wait for a body that is there
			start, text := time.Now(), strings.Repeat("x", size)
			resp := &http.Response{Body: io.NopCloser(iotest.HalfReader(strings.NewReader(text)))}
			require.Len(t, peek(resp, false), min(size, maxPeek))
			require.Zero(t, time.Since(start), size)
			all, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.Len(t, all, size)
		}
		for _, pieces := range [][]string{{"", "x"}, {"x"}, {"", "", "xyz"}} { // a reader may return no bytes
			start := time.Now()
			resp := &http.Response{Body: &pieceReader{pieces: pieces, then: make(chan struct{})}}
			require.Equal(t, pieces[len(pieces)-1], string(peek(resp, true)))
			require.Zero(t, time.Since(start))
			require.NoError(t, resp.Body.Close())
		}
		r, w := io.Pipe()
		start := time.Now()
		go func() {
			for _, piece := range []string{"one ", "two ", "three"} {
				time.Sleep(70 * time.Millisecond)
				io.WriteString(w, piece)
			}
		}()
		resp := &http.Response{Body: r}
		require.Equal(t, "one ", string(peek(resp, false)))
		b := make([]byte, 100)
		for i, want := range []string{"one ", "two ", "three"} {
			n, err := resp.Body.Read(b)
			require.NoError(t, err)
			require.Equal(t, want, string(b[:n]))
			require.Equal(t, max(peekTimeout, time.Duration(i+1)*70*time.Millisecond), time.Since(start), want)
		}
		require.NoError(t, resp.Body.Close())
	})
}

// A pieceReader returns its pieces, of which some are empty, and then blocks until it is closed.
type pieceReader struct {
	pieces []string
	then   chan struct{}
}

func (r *pieceReader) Read(p []byte) (int, error) {
	if len(r.pieces) == 0 {
		<-r.then
		return 0, io.ErrClosedPipe
	}
	n := copy(p, r.pieces[0])
	r.pieces = r.pieces[1:]
	return n, nil
}

func (r *pieceReader) Close() error { close(r.then); return nil }
