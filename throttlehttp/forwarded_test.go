package throttlehttp_test

import (
	"math/rand/v2"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/heed-go/heed/throttlehttp"
	"github.com/stretchr/testify/require"
)

// forwardedIP trusts the Forwarded header of a balancer at 10.0.0.2.
var forwardedIP = throttlehttp.IP{Trusted: proxied, Header: "Forwarded", IPv6Bits: 128}

func forwardedRequest(lines ...string) *http.Request {
	return via("10.0.0.2:99", "Forwarded", lines...)
}

func TestForwarded_asInRFC7239(t *testing.T) {
	const peer = "10.0.0.2" // the result for malformed lines
	for _, tt := range []struct {
		want  string
		lines []string
	}{
		// sections 4, 6 and 7.4
		{"192.0.2.43", []string{`for=192.0.2.43`}},
		{"2001:db8:cafe::17", []string{`For="[2001:db8:cafe::17]:4711"`}},
		{"192.0.2.60", []string{`for=192.0.2.60;proto=http;by=203.0.113.43`}},
		{"198.51.100.17", []string{`for=192.0.2.43, for=198.51.100.17`}},
		{"198.51.100.17", []string{`for=192.0.2.43`, `for=198.51.100.17;by=203.0.113.60;proto=http;host=example.com`}},
		{"192.0.2.43", []string{`for="192.0.2.43:47011"`}},
		{peer, []string{`for="_gazonk"`}},
		{peer, []string{`for=_hidden, for=_SEVKISEK`}},
		{peer, []string{`for=unknown`}},
		{peer, []string{`for=192.0.2.43,for="_mdn:_port"`}},
		{"192.0.2.43", []string{`for="192.0.2.43:_port"`}},
		{"2001:db8:cafe::17", []string{`for=192.0.2.43, for="[2001:db8:cafe::17]"`}},
		// several trusted proxies
		{"192.0.2.43", []string{`for=6.6.6.6, for=192.0.2.43, for="203.0.113.1:443";proto=https;by="_a,b;c=d"`}},
		{"192.0.2.43", []string{`for=6.6.6.6`, `for=192.0.2.43`, `for=203.0.113.1`}},
		{"203.0.113.1", []string{`for=192.0.2.43, for=unknown, for=203.0.113.1`}},
		{"203.0.113.1", []string{`for=192.0.2.43, proto=http, for=203.0.113.1`}},
		{"203.0.113.1", []string{`for=192.0.2.43, , for=203.0.113.1`}},
		// quoted text is not parsed
		{"192.0.2.43", []string{`by=", for=6.6.6.6;x=\", for=6.6.6.6";for=192.0.2.43`}},
		{"192.0.2.43", []string{`for="192.0.\2.43"`}},
		{"192.0.2.43", []string{"host=\"\t caf\xc3\xa9\" ; FOR=192.0.2.43;"}},
		{peer, []string{`for="192.0.2.43, for=192.0.2.44"`}},
		// not in the RFC, but sent by some proxies
		{"192.0.2.43", []string{`for=192.0.2.43:80; proto=https`}},
		{"2001:db8::7", []string{`for=[2001:db8::7]:80`}},
		{"2001:db8::7", []string{`for=2001:db8::7`}},
		// malformed
		{peer, []string{`for=192.0.2.43;for=192.0.2.44`}},
		{peer, []string{`for="192.0.2.43`}},
		{peer, []string{`for="192.0.2.43"x`}},
		{peer, []string{`for="192.0.2.43\`}},
		{peer, []string{`for=`}},
		{peer, []string{`for=""`}},
		{peer, []string{`for = 192.0.2.43`}},
		{peer, []string{`for`}},
		{peer, []string{`=192.0.2.43`}},
		{peer, []string{`192.0.2.43`}},
		{peer, []string{`"for"=192.0.2.43`}},
		{peer, []string{`for='192.0.2.43'`}},
		{peer, []string{"for=\"192.0.2.43\x00\""}},
		{peer, []string{"for=\"192.0.2.43\\\n\""}},
		{peer, []string{""}},
		{peer, []string{`for=192.0.2.43`, ``}},
		{peer, nil},
	} {
		require.Equal(t, "ip:"+tt.want, key(forwardedIP.Key, forwardedRequest(tt.lines...)), "%q", tt.lines)
	}
}

// TestForwarded_clientsCannotHideProxies checks that a client cannot hide the elements
// that proxies append to its own.
func TestForwarded_clientsCannotHideProxies(t *testing.T) {
	added := []string{
		`for=192.0.2.7`, `for="192.0.2.7:80"`, `for=192.0.2.7;host="x";proto=https`, `for=192.0.2.7;host="";by="[2001:db8::1]"`,
		`by="_a\"b";for=192.0.2.7`, `proto=https;for=192.0.2.7;by="_a\\"`, `for=192.0.2.7;host=",for=6.6.6.6;y=1"`, `for=192.0.2.7;host=";y="`,
	}
	for _, forged := range []string{
		``, `for=6.6.6.6`, `for=6.6.6.6;by="`, `for=6.6.6.6;by="\`, `for=6.6.6.6;by="\"`, `for=6.6.6.6;by="a"b"`, `for="6.6.6.6`, `for=6.6.6.6,`,
		`for=6.6.6.6;`, `;`, `"`, `\`, `for=6.6.6.6;by=`, `,for=6.6.6.6;by="a\\`, strings.Repeat(`for=6.6.6.6,`, 1000), `for=6.6.6.6;x="` + strings.Repeat(`a`, 9000),
	} {
		for _, real := range added {
			got := key(forwardedIP.Key, forwardedRequest(forged+", "+real))
			require.Contains(t, []string{"ip:192.0.2.7", "ip:10.0.0.2"}, got, "%.80s and %s", forged, real)
			require.Equal(t, "ip:192.0.2.7", key(forwardedIP.Key, forwardedRequest(forged, real)), "a line of its own cannot be touched")
		}
	}
}

// forwardedGrammar is the grammar of RFC 7239, with the deviations that are accepted, as one
// regular expression. It does not reject two for parameters in one element.
var forwardedGrammar = func() *regexp.Regexp {
	token := "[-!#$%&'*+.^_`|~0-9A-Za-z]+"
	quoted := `"(?:[\t !\x23-\x5b\x5d-\x7e\x80-\xff]|\\[\t \x21-\x7e\x80-\xff])*"`
	pair := token + `=(?:[-!#$%&'*+.^_` + "`" + `|~0-9A-Za-z:\[\]]+|` + quoted + `)`
	blank := `[ \t]*`
	element := blank + `(?:` + pair + `)?` + blank + `(?:;` + blank + `(?:` + pair + `)?` + blank + `)*`
	return regexp.MustCompile(`^` + element + `(?:,` + element + `)*$`)
}()

func TestForwarded_agreesWithTheGrammar(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 239))
	pieces := []string{`for`, `=`, `"`, `\`, `,`, `;`, ` `, "\t", `a`, `[::1]:80`, `x=y`, "\x00", "\x7f", `host="a,b"`, `by="\"`, `(`}
	wellFormed := 0
	lines := 15_000
	if testing.Short() {
		lines = 5000
	}
	for range lines {
		var b strings.Builder
		for range rnd.IntN(9) {
			b.WriteString(pieces[rnd.IntN(len(pieces))])
		}
		line := b.String()
		got := key(forwardedIP.Key, forwardedRequest(line+`,for=192.0.2.7`))
		want := "ip:10.0.0.2"
		if forwardedGrammar.MatchString(line) && !strings.Contains(line, "for=") {
			want = "ip:192.0.2.7"
			wellFormed++
		} else if forwardedGrammar.MatchString(line) {
			continue
		}
		require.Equal(t, want, got, "%q", line)
	}
	require.Greater(t, wellFormed, lines/50)
}

func FuzzForwarded(f *testing.F) {
	f.Add(`for=6.6.6.6;by="`, `for=192.0.2.7`)
	f.Add(`for=6.6.6.6;by="\`, `for="_x";host="a\"b"`)
	f.Fuzz(func(t *testing.T, forged, more string) {
		for _, last := range []string{`for=192.0.2.7`, `host="a,b";for="192.0.2.7:80";by="_\"x"`} {
			got := key(forwardedIP.Key, forwardedRequest(forged+", "+last))
			require.Contains(t, []string{"ip:192.0.2.7", "ip:10.0.0.2"}, got)
		}
		require.NotEqual(t, "?", key(forwardedIP.Key, forwardedRequest(forged, more)))
	})
}

func FuzzXForwardedFor(f *testing.F) {
	f.Add("6.6.6.6, ", "10.0.0.9")
	f.Add("[::ffff:6.6.6.6%a]:1,\x00", "\"")
	ip := throttlehttp.IP{Trusted: proxied}
	f.Fuzz(func(t *testing.T, forged, peer string) {
		require.Equal(t, "ip:192.0.2.7", key(ip.Key, via("10.0.0.2:99", "X-Forwarded-For", forged+", 192.0.2.7, 203.0.113.1")))
		require.Equal(t, "ip:192.0.2.7", key(ip.Key, via("10.0.0.2:99", "X-Forwarded-For", forged, "192.0.2.7")))
		got, ok := throttlehttp.IP{}.Key(via(peer, "X-Forwarded-For", forged))
		again, _ := throttlehttp.IP{}.Key(via(strings.TrimSuffix(strings.TrimPrefix(got, "ip:"), "/64"), ""))
		require.Equal(t, got, again, "a key reads as the address it stands for")
		require.Equal(t, ok, got != "")
	})
}
