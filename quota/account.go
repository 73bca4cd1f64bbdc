package quota

import (
	"hash/maphash"
	"net/http"

	"github.com/heed-go/heed/internal/httphost"
	"github.com/heed-go/heed/quota/internal/credentials"
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

// credentials calls found with each credential of req, whose canonical host is host.
func (t *Tracker) credentials(req *http.Request, host string, found func(name, value string)) {
	if t.Account == nil {
		var params []string
		if req.URL.RawQuery != "" {
			params = t.reader.AccountParams(host)
		}
		credentials.Of(req, params, found)
	} else if id := t.Account(req); id != "" {
		found("account", id)
	}
}
