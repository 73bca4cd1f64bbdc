// Package httphost compares hosts of URLs, and identifies the header fields and query
// parameters that contain credentials.
package httphost

import (
	"slices"
	"strings"
)

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
	"Access-Key":           true, "Apca-Api-Key-Id": true, "Apca-Api-Secret-Key": true, "App-Key": true, "Auth-Api-Token": true, "Cb-Access-Key": true,
	"Fastly-Key": true, "Kc-Api-Key": true, "Wm_sec.access_token": true, "X-Bapi-Api-Key": true, "X-Cisco-Meraki-Api-Key": true,
	"X-Cmc_pro_api_key": true, "X-Dnsme-Apikey": true, "X-Els-Apikey": true, "X-Finnhub-Token": true,
	"X-Mailerlite-Apikey": true, "X-Nsone-Key": true, "X-Sentry-Auth": true,
}

// IsCredential reports whether the header field with this name, in canonical form,
// identifies the account of a client. It returns false for cookies, which change.
func IsCredential(name string) bool { return credentials[name] }

// IsSecret reports whether the header field with this name, in canonical form, contains a
// secret.
func IsSecret(name string) bool { return credentials[name] || secrets[name] }

// NamesSecret reports whether the words of a name of a header field or a query parameter state
// that its value is a secret: api_key, accessToken, client-secret, X-Amz-Signature. Words
// begin after a character that is no letter, and at capitals. A token that continues a list,
// such as pageToken, and Idempotency-Key are none.
func NamesSecret(name string) bool {
	words := wordsOf(name)
	for i, word := range words {
		previous := ""
		if i > 0 {
			previous = words[i-1]
		}
		switch {
		case slices.Contains(secretWords, word):
			return true
		case word == "token" && !slices.Contains(positionWords, previous):
			return true
		case word == "key" && (len(words) == 1 || slices.Contains(keyWords, previous)):
			return true
		}
	}
	return false
}

var (
	// secretWords state a secret in every name.
	secretWords = []string{
		"auth", "authorization", "authentication", "bearer", "jwt", "credential", "credentials", "cookie", "otp", "passphrase",
		"passwd", "password", "pwd", "secret", "session", "sessionid", "sid", "sig", "sign", "signature",
		"apikey", "accesskey", "accesstoken", "authtoken", "clientsecret", "phpsessid", "jsessionid", "ak",
	}
	// positionWords before "token" state a position in a list.
	positionWords = []string{"continuation", "cursor", "delta", "next", "page", "resume", "skip", "start", "sync"}
	// keyWords before "key" state a secret. Others do not: idempotency key, sort key.
	keyWords = []string{"access", "account", "api", "app", "auth", "encryption", "functions", "license", "master", "private", "secret", "service", "shared", "signing", "subscription", "user"}
)

// wordsOf returns the words of a name in lower case: those of AWSAccessKeyId are aws, access, key
// and id.
func wordsOf(name string) (words []string) {
	start := 0
	end := func(i int) {
		if i > start {
			words = append(words, strings.ToLower(name[start:i]))
		}
		start = i
	}
	for i := range len(name) {
		switch c := name[i]; {
		case !isLetter(c):
			end(i)
			start = i + 1
		case i > 0 && isCapital(c) && isLetter(name[i-1]) && (!isCapital(name[i-1]) || i+1 < len(name) && isLetter(name[i+1]) && !isCapital(name[i+1])):
			end(i)
		}
	}
	end(len(name))
	return words
}

func isCapital(c byte) bool { return 'A' <= c && c <= 'Z' }
func isLetter(c byte) bool  { return isCapital(c) || 'a' <= c && c <= 'z' }
