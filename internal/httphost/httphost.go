// Package httphost compares hosts of URLs, and identifies the header fields that contain
// credentials.
package httphost

import "strings"

// Canonical returns the host of a URL in canonical form: in lower case, without a dot at
// the end, and without the default port of scheme (80 for http, 443 for any other). It does
// not allocate if host is canonical.
func Canonical(scheme, host string) string {
	name, port := splitPort(host)
	if port == "" || port == "80" && scheme == "http" || port == "443" && scheme != "http" {
		return normalize(name)
	}
	if c := normalize(name); len(c) != len(name) || c != name {
		return c + ":" + port
	}
	return host
}

// Name returns the name or address of a host in canonical form: in lower case, without port
// and without a dot at the end. An IPv6 address keeps its brackets. Name does not allocate
// if host is canonical.
func Name(host string) string {
	name, _ := splitPort(host)
	return normalize(name)
}

// splitPort removes the port. An IPv6 address without brackets has no port.
func splitPort(host string) (name, port string) {
	i := strings.LastIndexByte(host, ':')
	if i < 0 || strings.IndexByte(host[i:], ']') >= 0 || host[0] != '[' && strings.IndexByte(host[:i], ':') >= 0 {
		return host, ""
	}
	return host[:i], host[i+1:]
}

func normalize(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }

// credentials are the header fields, in canonical form, that identify the account of a
// client.
var credentials = nameSet(`Authorization X-Api-Key Api-Key Apikey X-Apikey X-Auth-Token X-Auth-Key X-Access-Token X-Api-Token Api-Token
	Private-Token Job-Token Circle-Token X-Vault-Token X-Goog-Api-Key Ocp-Apim-Subscription-Key X-Functions-Key
	X-Subscription-Token X-Rapidapi-Key X-Mbx-Apikey X-Riot-Token X-Figma-Token X-Shopify-Access-Token
	X-Algolia-Api-Key X-Typesense-Api-Key X-Postmark-Server-Token Xi-Api-Key Dd-Api-Key X-N8n-Api-Key X-Redmine-Api-Key`)

// secrets are header fields with secrets that do not identify an account: they belong to
// another party, or differ between sessions.
var secrets = nameSet("Cookie Proxy-Authorization X-Csrf-Token X-Amz-Security-Token")

func nameSet(names string) map[string]bool {
	m := make(map[string]bool)
	for name := range strings.FieldsSeq(names) {
		m[name] = true
	}
	return m
}

// IsCredential reports whether the header field with this name, in canonical form,
// identifies the account of a client. It returns false for cookies, which change.
func IsCredential(name string) bool { return credentials[name] }

// IsSecret reports whether the header field with this name, in canonical form, contains a
// secret.
func IsSecret(name string) bool { return credentials[name] || secrets[name] }
