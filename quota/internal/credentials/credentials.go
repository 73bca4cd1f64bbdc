// Package credentials finds the parts of a request that identify its account.
package credentials

import (
	"encoding/binary"
	"net/http"
	"slices"
	"strings"

	"github.com/heed-go/heed/internal/httphost"
	"github.com/heed-go/heed/quota/headers"
)

// Of calls found with each credential of req: the header fields that carry them, the user of the URL,
// the query parameters api_key and apikey, the keys of query-signed URLs, and what p, which may be nil,
// lists. Cookies are ignored, because they change. It copies nothing and does not allocate.
func Of(req *http.Request, p *headers.Provider, found func(name, value string)) {
	if p == nil {
		p = &unknown
	}
	authorized := false
	for name, values := range req.Header {
		if len(values) == 0 || values[0] == "" || !httphost.IsCredential(name) && !slices.Contains(p.AccountHeaders, name) {
			continue
		}
		value := values[0]
		if name == authorization || name == "X-Sentry-Auth" {
			authorized, value = authorized || name == authorization, signingKey(value)
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
		switch {
		case value == "":
		case containsFold(apiKeys, name) || containsFold(p.AccountParams, name):
			found("query", value)
		case isSigningKey(name):
			found(authorization, keyID(value)) // the account of requests that the key signs in the header
		}
	}
	if p.AccountSegment != "" {
		segment, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(req.URL.Path, "/file"), "/"), "/")
		if id, ok := strings.CutPrefix(segment, p.AccountSegment); ok && id != "" {
			found("path", id)
		}
	}
}

const (
	authorization = "Authorization"
	cosmosKey     = "type%3Dmaster%26" // begins the field of Azure Cosmos DB, which is escaped
)

var unknown headers.Provider // of which nothing is known

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

// apiKeys are the query parameters that identify the account on all hosts.
var apiKeys = []string{"api_key", "apikey"}

// containsFold reports whether names contains name in any case. Comparing the lengths excludes letters
// outside ASCII that strings.EqualFold equates with an ASCII letter: they are longer.
func containsFold(names []string, name string) bool {
	return slices.ContainsFunc(names, func(s string) bool { return len(s) == len(name) && strings.EqualFold(s, name) })
}

// isSigningKey reports whether name is the query parameter with the key of a query-signed URL.
func isSigningKey(name string) bool {
	switch name {
	case "X-Amz-Credential", "X-Goog-Credential", "X-Tos-Credential", "X-Credential", "x-oss-credential",
		"AWSAccessKeyId", "GoogleAccessId", "OSSAccessKeyId", "AccessKeyId", "Key-Pair-Id", "q-ak", "skn":
		return true
	}
	return false
}

// keyID returns the identifier of a key, which may be followed by a date, a region and a service:
// AKID/20260101/us-east-1/s3/aws4_request, also with escaped slashes.
func keyID(credential string) string {
	if i := strings.IndexByte(credential, '/'); i >= 0 {
		credential = credential[:i]
	}
	for i := 0; i+2 < len(credential); i++ {
		if credential[i] == '%' && credential[i+1] == '2' && credential[i+2]|0x20 == 'f' {
			return credential[:i]
		}
	}
	return credential
}

// signingKey returns the part of an Authorization header field that identifies the account. For schemes that
// sign each request it is the identifier of the key, or the scheme if the host is the account. It is the whole field
// for all others, and if no identifier is found, so that two accounts are never taken for one.
func signingKey(value string) string {
	scheme, rest, _ := strings.Cut(value, " ")
	switch scheme {
	case "AWS", "GOOG1", "OSS", "SharedKey", "SharedKeyLite", "LOG", "MNS", "ODPS", "acs", "Qiniu", "QBox", "UCloud", "UPYUN", "VWS",
		"OBS", "NOS", "KSS", "APIAuth": // id:signature
		id, _, _ := strings.Cut(rest, ":")
		return id
	case "Digest":
		return parameterOf(rest, "username", value)
	case "Hawk", "MAC", "acquia-http-hmac":
		return parameterOf(rest, "id", value)
	case "OAuth":
		return parameterOf(rest, "oauth_token", parameterOf(rest, "oauth_consumer_key", value))
	case "Sentry":
		return parameterOf(rest, "sentry_key", value)
	case "Signature": // HTTP signatures
		return parameterOf(rest, "keyId", value)
	case "SharedAccessSignature": // without a name the key is one of the resource
		return parameterOf(rest, "skn", parameterOf(rest, "sr", value))
	case "OSS2":
		id, _, _ := strings.Cut(strings.TrimPrefix(rest, "AccessKeyId:"), ",")
		return id
	case "AWS3-HTTPS":
		return parameterOf(rest, "AWSAccessKeyId", value)
	}
	switch {
	case strings.HasPrefix(scheme, "AWS4-"), strings.HasPrefix(scheme, "GOOG4-"), strings.HasPrefix(scheme, "ACS3-"), strings.Contains(scheme, "HMAC-"), strings.EqualFold(scheme, "hmac"):
		for _, name := range [...]string{"Credential", "Access", "client_token", "username", "keyId", "id"} {
			id := parameterOf(rest, name, "")
			switch {
			case id == "":
			case name == "Credential":
				return keyID(id)
			default:
				return id
			}
		}
		if strings.HasPrefix(rest, "SignedHeaders=") { // Azure Communication Services: the host is the account
			return scheme
		}
		if id, _, ok := strings.Cut(rest, ":"); ok && !strings.ContainsAny(id, "=, ") { // id:signature
			return id
		}
	case len(value) > len(cosmosKey) && strings.EqualFold(value[:len(cosmosKey)], cosmosKey): // the host is the account
		return cosmosKey
	case strings.HasPrefix(value, "q-sign-algorithm="): // Tencent Cloud Object Storage
		return parameterOf(value, "q-ak", value)
	case strings.HasPrefix(value, "bce-auth-v1/"): // Baidu
		return keyID(value[len("bce-auth-v1/"):])
	}
	return value
}

// parameterOf returns the value of the parameter name of an Authorization header field, or
// otherwise if there is none. Parameters are separated by a comma, a semicolon, an ampersand or a blank.
func parameterOf(s, name, otherwise string) string {
	for s != "" {
		end := strings.IndexAny(s, ",;& ")
		if end < 0 {
			end = len(s)
		}
		if value, ok := strings.CutPrefix(s[:end], name); ok && strings.HasPrefix(value, `="`) { // it may contain separators
			value, _, _ = strings.Cut(s[len(name)+2:], `"`)
			return value
		} else if ok && strings.HasPrefix(value, "=") {
			return value[1:]
		}
		s = s[min(end+1, len(s)):]
	}
	return otherwise
}
