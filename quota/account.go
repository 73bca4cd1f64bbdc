package quota

import (
	"encoding/binary"
	"hash/maphash"
	"net/http"
	"slices"
	"strings"

	"github.com/heed-go/heed/internal/httphost"
)

// identify returns the canonical host of req and a keyed hash of its account. Requests have the same
// account if their scheme, canonical host and credentials are equal. Credentials are the header
// fields that carry them, the user of the URL, and the query parameters api_key, apikey and those of
// headers.Provider.AccountParams. Cookies are ignored, because they change. recent is any endpoint
// or nil: if req has the same host, that is not computed again.
//
// identify does not copy the credentials, and does not allocate if the host is canonical.
func (t *Tracker) identify(req *http.Request, recent *endpoint) (key uint64, host string) {
	u := req.URL
	if recent != nil && recent.urlHost == u.Host && recent.scheme == u.Scheme {
		key, host = recent.hostKey, recent.host
	} else {
		host = httphost.Canonical(u.Scheme, u.Host)
		key = maphash.String(t.seed, host)
		if u.Scheme == "http" {
			key++
		}
	}
	if len(req.Header) == 0 && u.User == nil && u.RawQuery == "" && t.Account == nil {
		return key, host // there are no credentials
	}
	t.credentials(req, host, func(name, value string) { // a sum, because header fields have no order
		key += maphash.Comparable(t.seed, [2]string{name, value})
	})
	return key, host
}

// allCredentials returns the credentials of req, whose canonical host is host: each after its name
// and length, in ascending order. It is empty if there are none.
func (t *Tracker) allCredentials(req *http.Request, host string) string {
	var all []string
	t.credentials(req, host, func(name, value string) {
		b := append([]byte(name), 0)
		b = binary.AppendUvarint(b, uint64(len(value)))
		all = append(all, string(append(b, value...)))
	})
	slices.Sort(all) // header fields have no order
	return strings.Join(all, "")
}

// credentials calls found with each credential of req, whose canonical host is host.
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
	if u := req.URL.User; u != nil && !authorized { // net/http sends it as Authorization
		password, _ := u.Password()
		found("user", u.Username())
		found("password", password)
	}
	if req.URL.RawQuery != "" {
		t.parameters(req.URL.RawQuery, host, found)
	}
}

// parameters calls found with the parameters of a query to host that identify an account.
func (t *Tracker) parameters(query, host string, found func(name, value string)) {
	names := t.reader.AccountParams(host)
	for query != "" {
		var pair string
		pair, query, _ = strings.Cut(query, "&")
		name, value, _ := strings.Cut(pair, "=")
		if value != "" && (isAPIKey(name) || slices.Contains(names, name)) {
			found("query", value)
		}
	}
}

// isAPIKey reports whether name is api_key or apikey, in any case. Comparing the lengths excludes
// letters outside ASCII that strings.EqualFold equates with an ASCII letter: they are longer.
func isAPIKey(name string) bool {
	return len(name) == len("api_key") && strings.EqualFold(name, "api_key") || len(name) == len("apikey") && strings.EqualFold(name, "apikey")
}

// signingKey returns the part of an Authorization header field that identifies the account. It is
// the identifier of the key for schemes that sign requests, and the whole field for all others.
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

// parameterOf returns the value of the parameter name of an Authorization header field, or
// otherwise if there is none.
func parameterOf(s, name, otherwise string) string {
	_, value, ok := strings.Cut(s, name)
	if !ok {
		return otherwise
	}
	value, _, _ = strings.Cut(value, ",")
	return value
}
