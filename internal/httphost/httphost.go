// Package httphost compares hosts of URLs, and identifies the header fields that contain
// credentials.
package httphost

import "strings"

// Canonical returns the host of a URL in canonical form: in lower case, without a dot at
// the end, and without the default port of scheme (80 for http, 443 for any other). It does
// not allocate if host is canonical.
func Canonical(scheme, host string) string {
	name, port := split(host)
	switch {
	case port == "", port == "80" && scheme == "http", port == "443" && scheme != "http":
		return name
	case strings.HasPrefix(host, name) && len(host) == len(name)+len(":")+len(port):
		return host
	}
	return name + ":" + port
}

// Name returns the name or address of a host in canonical form: in lower case, without port
// and without a dot at the end. An IPv6 address keeps its brackets. Name does not allocate
// if host is canonical.
func Name(host string) string {
	name, _ := split(host)
	return name
}

// split returns the name of a host in canonical form, and its port. An IPv6 address without
// brackets has no port.
func split(host string) (name, port string) {
	name = host
	i := strings.LastIndexByte(host, ':')
	if i >= 0 && !strings.Contains(host[i:], "]") && (host[0] == '[' || !strings.Contains(host[:i], ":")) {
		name, port = host[:i], host[i+1:]
	}
	return strings.ToLower(strings.TrimSuffix(name, ".")), port
}

// credentials are the header fields, in canonical form, that identify the account of a
// client.
var credentials = map[string]bool{
	"Authorization": true, "X-Api-Key": true, "Api-Key": true, "Apikey": true, "X-Apikey": true,
	"X-Auth-Token": true, "X-Auth-Key": true, "X-Access-Token": true, "X-Api-Token": true,
	"Api-Token": true, "Private-Token": true, "Job-Token": true, "Circle-Token": true,
	"X-Vault-Token": true, "X-Goog-Api-Key": true, "Ocp-Apim-Subscription-Key": true,
	"X-Functions-Key": true, "X-Subscription-Token": true, "X-Rapidapi-Key": true,
	"X-Mbx-Apikey": true, "X-Riot-Token": true, "X-Figma-Token": true,
	"X-Shopify-Access-Token": true, "X-Algolia-Api-Key": true, "X-Typesense-Api-Key": true,
	"X-Postmark-Server-Token": true, "Xi-Api-Key": true, "Dd-Api-Key": true,
	"X-N8n-Api-Key": true, "X-Redmine-Api-Key": true,
}

// secrets are header fields with secrets that do not identify an account at any host: they
// belong to another party, differ between sessions, or are the API keys of one API, which the
// table of providers lists.
var secrets = map[string]bool{
	"Cookie": true, "Proxy-Authorization": true, "X-Csrf-Token": true,
	"X-Amz-Security-Token": true,
	"Access-Key":           true, "Apca-Api-Key-Id": true, "Apca-Api-Secret-Key": true, "Auth-Api-Token": true, "Cb-Access-Key": true,
	"Fastly-Key": true, "Kc-Api-Key": true, "Wm_sec.access_token": true, "X-Bapi-Api-Key": true, "X-Cisco-Meraki-Api-Key": true,
	"X-Cmc_pro_api_key": true, "X-Dnsme-Apikey": true, "X-Els-Apikey": true, "X-Finnhub-Token": true,
	"X-Mailerlite-Apikey": true, "X-Nsone-Key": true,
}

// IsCredential reports whether the header field with this name, in canonical form,
// identifies the account of a client. It returns false for cookies, which change.
func IsCredential(name string) bool { return credentials[name] }

// IsSecret reports whether the header field with this name, in canonical form, contains a
// secret.
func IsSecret(name string) bool { return credentials[name] || secrets[name] }
