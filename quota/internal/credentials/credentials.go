// Package credentials finds the parts of a request that identify its account.
package credentials

import (
	"encoding/binary"
	"net/http"
	"slices"
	"strings"

	"github.com/heed-go/heed/internal/httphost"
)

// Of calls found with each credential of req: the header fields that carry them, the user of the URL, and
// the query parameters api_key, apikey and params. Cookies are ignored, because they change. It copies
// nothing and does not allocate.
func Of(req *http.Request, params []string, found func(name, value string)) {
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
	for query := req.URL.RawQuery; query != ""; {
		var pair string
		pair, query, _ = strings.Cut(query, "&")
		name, value, _ := strings.Cut(pair, "=")
		if value != "" && (isAPIKey(name) || slices.Contains(params, name)) {
			found("query", value)
		}
	}
}

// Join returns the credentials that each passes to found: each after its name and length, in ascending
// order, so that no two sets of credentials are written in the same way. It is empty if there are none.
func Join(each func(found func(name, value string))) string {
	var all []string
	each(func(name, value string) {
		b := append([]byte(name), 0)
		b = binary.AppendUvarint(b, uint64(len(value)))
		all = append(all, string(append(b, value...)))
	})
	slices.Sort(all) // header fields have no order
	return strings.Join(all, "")
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
