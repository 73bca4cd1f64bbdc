package quota

import (
	"encoding/binary"
	"hash/maphash"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"

	"github.com/heed-go/heed/internal/httphost"
)

// An account is what a quota belongs to. Two requests have one account if scheme, canonical host
// and credentials are the same: header fields that carry credentials, the user of the URL, and
// the query parameters api_key, apikey, and those that the host's headers.Provider names. Cookies
// do not count, because they change.
type account struct {
	plain bool // http, not https
	host  string

	// credential is all of the credentials, each behind its name and length; "" means none.
	credential string
}

// open reports whether a has no credentials.
func (a account) open() bool { return a.credential == "" }

// accountOf returns the account of req.
func (t *Tracker) accountOf(req *http.Request) account {
	a := account{plain: req.URL.Scheme == "http", host: httphost.Canonical(req.URL.Scheme, req.URL.Host)}
	var all []string
	t.credentials(req, a.host, func(name, value string) {
		b := append([]byte(name), 0)
		b = binary.AppendUvarint(b, uint64(len(value)))
		all = append(all, string(append(b, value...)))
	})
	slices.Sort(all) // header fields have no order
	a.credential = strings.Join(all, "")
	return a
}

// keyOf returns a keyed hash of the account of req, by which it is found without a copy of the
// credentials.
func (t *Tracker) keyOf(req *http.Request) uint64 {
	h := t.hostOf(req)
	sum := h.sum
	if len(req.Header) == 0 && req.URL.User == nil && req.URL.RawQuery == "" && t.Account == nil {
		return sum // it has no credentials
	}
	t.credentials(req, h.canonical, func(name, value string) { // a sum, since header fields have no order
		sum += maphash.Comparable(t.seed, [2]string{name, value})
	})
	return sum
}

// A knownHost is a host as a URL spells it, in its canonical form, and the hash of that. Most
// requests go to the host that the one before them went to.
type knownHost struct {
	scheme, raw, canonical string
	sum                    uint64
}

func (t *Tracker) hostOf(req *http.Request) knownHost {
	known := t.host.Load()
	if known != nil && known.raw == req.URL.Host && known.scheme == req.URL.Scheme {
		return *known
	}
	h := knownHost{scheme: req.URL.Scheme, raw: req.URL.Host, canonical: httphost.Canonical(req.URL.Scheme, req.URL.Host)}
	h.sum = maphash.String(t.seed, h.canonical)
	if h.scheme == "http" {
		h.sum++
	}
	if known == nil || rand.Uint32()%64 == 0 { // requests to hosts by turns would allocate each time
		kept := h
		t.host.Store(&kept)
	}
	return h
}

// credentials calls found with each credential of req. It does not keep found.
func (t *Tracker) credentials(req *http.Request, host string, found func(name, value string)) {
	if t.Account != nil {
		if id := t.Account(req); id != "" {
			found("account", id)
		}
		return
	}
	authorized := false
	for name, values := range req.Header {
		if len(values) == 0 || values[0] == "" || !httphost.IsCredential(name) {
			continue
		}
		value := values[0]
		if name == "Authorization" {
			authorized, value = true, signingKey(value)
		}
		found(name, value)
	}
	if u := req.URL.User; u != nil && !authorized { // net/http makes an Authorization of it
		password, _ := u.Password()
		found("user", u.Username())
		found("password", password)
	}
	if req.URL.RawQuery != "" {
		t.parameters(req.URL.RawQuery, host, found)
	}
}

// parameters calls found with the parameters of a query that name an account.
func (t *Tracker) parameters(query, host string, found func(name, value string)) {
	names := t.reader().AccountParams(host)
	for query != "" {
		var pair string
		pair, query, _ = strings.Cut(query, "&")
		name, value, _ := strings.Cut(pair, "=")
		if value != "" && (isAPIKey(name) || slices.Contains(names, name)) {
			found("query", value)
		}
	}
}

// isAPIKey reports whether name is api_key or apikey, in any case. The length excludes letters
// outside ASCII that strings.EqualFold takes for an ASCII letter: they are longer.
func isAPIKey(name string) bool {
	return len(name) == len("api_key") && strings.EqualFold(name, "api_key") || len(name) == len("apikey") && strings.EqualFold(name, "apikey")
}

// signingKey returns the part of an Authorization that stays the same from request to request.
// Of a scheme that signs requests, that is the name of the key.
func signingKey(authorization string) string {
	scheme, rest, _ := strings.Cut(authorization, " ")
	switch {
	case strings.HasPrefix(scheme, "AWS4-"):
		if _, id, ok := strings.Cut(rest, "Credential="); ok {
			id, _, _ = strings.Cut(id, "/") // a date follows
			return id
		}
	case scheme == "Digest":
		return parameterOf(rest, "username=", authorization)
	case scheme == "Hawk":
		return parameterOf(rest, "id=", authorization)
	case scheme == "OAuth":
		return parameterOf(rest, "oauth_token=", parameterOf(rest, "oauth_consumer_key=", authorization))
	}
	return authorization
}

// parameterOf returns the value of a parameter of an Authorization, otherwise if there is none.
func parameterOf(s, name, otherwise string) string {
	_, value, ok := strings.Cut(s, name)
	if !ok {
		return otherwise
	}
	value, _, _ = strings.Cut(value, ",")
	return value
}
