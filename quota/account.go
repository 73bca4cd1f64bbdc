package quota

import (
	"hash/maphash"
	"net/http"

	"github.com/heed-go/heed/internal/httphost"
	"github.com/heed-go/heed/quota/headers"
	"github.com/heed-go/heed/quota/internal/credentials"
)

// identify returns the canonical host of req and a keyed hash of its account. Requests have the same
// account if their scheme, canonical host and credentials are equal. Credentials are the header
// fields that carry them, the user of the URL, the query parameters api_key and apikey, and those of
// headers.Provider.AccountHeaders, AccountParams and AccountSegment. Of a scheme that signs each request
// only the identifier of the key counts. Cookies are ignored, because they change. recent is any endpoint
// or nil: if req has the same host, that is not computed again.
//
// identify does not copy the credentials, and does not allocate if the host is canonical.
func (t *Tracker) identify(req *http.Request, recent *endpoint) (key uint64, host string) {
	u := req.URL
	var provider *headers.Provider
	if recent != nil && recent.urlHost == u.Host && recent.scheme == u.Scheme {
		key, host, provider = recent.hostKey, recent.host, recent.provider
	} else {
		host = httphost.Canonical(u.Scheme, u.Host)
		key = maphash.String(t.seed, host)
		if u.Scheme == "http" {
			key++
		}
		provider = t.provider(host)
	}
	if len(req.Header) == 0 && u.User == nil && u.RawQuery == "" && t.Account == nil && (provider == nil || provider.AccountSegment == "") {
		return key, host // there are no credentials
	}
	t.credentials(req, provider, func(name, value string) { // a sum, because header fields have no order
		key += maphash.Comparable(t.seed, [2]string{name, value})
	})
	return key, host
}

// credentials calls found with each credential of req, whose host provider describes.
func (t *Tracker) credentials(req *http.Request, provider *headers.Provider, found func(name, value string)) {
	if t.Account == nil {
		credentials.Of(req, provider, found)
	} else if id := t.Account(req); id != "" {
		found("account", id)
	}
}

// provider returns the properties of a canonical host, or nil if none are known. Unlike Reader.Provider, it does
// not allocate a copy of an entry of Reader.Hosts.
func (t *Tracker) provider(host string) *headers.Provider {
	if p := t.providers[httphost.Name(host)]; p != nil {
		return p
	}
	return t.reader.Provider(host)
}

// copyOf returns pointers to copies of the entries of all.
func copyOf(all map[string]headers.Provider) map[string]*headers.Provider {
	m := make(map[string]*headers.Provider, len(all))
	for host, p := range all {
		m[host] = &p
	}
	return m
}
