package throttlehttp

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
)

// A KeyFunc returns the key of r. Requests with the same key share a limit: all requests of
// a client, for example. A KeyFunc returns false if r has no key, and never returns a
// substitute key. The caller decides how such a request is treated: see [FirstOf] and
// [Rule].
//
// A KeyFunc may be called by several goroutines at the same time, and must not keep r or
// change it. Keys are passed to limiters only; responses never contain them.
//
// The functions of this package begin each key with its kind, so that keys of different
// kinds are never equal, whatever clients send:
//
//	ip:192.0.2.7                      the value, after a colon
//	header.X-Tenant:acme
//	bearer=0f4b2ae1…                  a hash of the value, after an equals sign
//	join:12:ip:192.0.2.76:path:/      parts, each after its length
//
// Secrets and values longer than 128 bytes are hashed, so keys are short and may be
// stored. Keys may contain any bytes that a client can send. Use [KeyFrom] to give the
// keys of a custom function a kind.
type KeyFunc func(r *http.Request) (key string, ok bool)

const (
	maxPlainBytes = 128 // maximum length of a value that is not hashed, in bytes
	maxKeyBytes   = 512 // maximum length of a key that has parts or comes from a custom function, in bytes
)

// FirstOf returns a KeyFunc that returns the key of the first function that finds one. It
// panics if there are no functions.
//
// If no function finds a key, the caller of the KeyFunc decides how the request is
// treated. With [Constant] as the last function every request has a key: all other requests
// share one key, and so one limit.
//
// The order of the functions is a decision about trust. A client chooses what it sends, and
// so which function finds its key, and how many different keys it has: see
// [Secrets.Validate].
func FirstOf(of ...KeyFunc) KeyFunc {
	requireFuncs("FirstOf", of)
	return func(r *http.Request) (string, bool) {
		for _, keyFunc := range of {
			if key, ok := keyFunc(r); ok {
				return key, true
			}
		}
		return "", false
	}
}

// Constant returns the same key for every request.
func Constant(*http.Request) (key string, ok bool) { return "constant:", true }

// FromContext returns a KeyFunc that reads the key from the context of the request, where an
// authentication outside of the limit stored it. An empty string means that there is no key.
// name is the kind of the value, for instance "user". FromContext panics if name is not a
// token (RFC 9110, section 5.6.2).
func FromContext(name string, value func(context.Context) (string, bool)) KeyFunc {
	if value == nil {
		panic("throttlehttp: FromContext: no function: give one that reads the context")
	}
	requireToken("FromContext", name)
	return withKind("context."+name, func(r *http.Request) (string, bool) { return value(r.Context()) })
}

// KeyFrom returns a KeyFunc that calls fn, adds a kind to its key, and limits its length. An
// empty string means that there is no key. name is the kind of the value, for instance
// "plan". KeyFrom panics if name is not a token (RFC 9110, section 5.6.2).
func KeyFrom(name string, fn func(*http.Request) (string, bool)) KeyFunc {
	requireToken("KeyFrom", name)
	requireFuncs("KeyFrom", []KeyFunc{fn})
	return withKind("named."+name, fn)
}

func withKind(kind string, fn func(*http.Request) (string, bool)) KeyFunc {
	return func(r *http.Request) (string, bool) {
		if v, ok := fn(r); ok {
			return plainKey(kind, v)
		}
		return "", false
	}
}

// plainKey returns the key of a value that is not secret. It returns false if value is empty.
func plainKey(kind, value string) (key string, ok bool) {
	switch n := len(value); {
	case n == 0:
		return "", false
	case n > maxPlainBytes:
		return kind + "=" + digest(value), true
	}
	return kind + ":" + value, true
}

// boundedKey returns key, or a hash of it if it is longer than maxKeyBytes.
func boundedKey(kind, key string) string {
	if len(key) > maxKeyBytes {
		return kind + "=" + digest(key)
	}
	return key
}

// digest returns a hash of value. It is not keyed, so that all processes compute the same. A
// client that finds a collision only makes two values share a limit.
func digest(value string) string {
	sum := sha256.Sum256([]byte(value))
	return hex.EncodeToString(sum[:hashBytes])
}

// hashBytes is the length to which hashes are truncated, in bytes. Accidental collisions are
// negligible at this length, and the full hash, from which hashing could be continued
// (length extension), is not revealed.
const hashBytes = 16

func requireFuncs(caller string, of []KeyFunc) {
	if len(of) == 0 {
		panic("throttlehttp: " + caller + ": no functions: give one or more")
	}
	for _, keyFunc := range of {
		if keyFunc == nil {
			panic("throttlehttp: " + caller + ": a function is nil: leave it out")
		}
	}
}

func requireToken(caller, name string) {
	if n := tokenLen(name); n == 0 || n < len(name) {
		panic("throttlehttp: " + caller + ": the name is not a token of HTTP: use letters, digits, - and _")
	}
}
