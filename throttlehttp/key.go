package throttlehttp

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
)

// A KeyFunc says whose request r is: the key that its limits are counted by. It
// reports false if r does not say; it never makes up a name for who is unidentified.
// What is done then is decided by who asks: see [FirstOf] and [Rule].
//
// It is called by several goroutines at once and must not keep r or change it. Keys go
// to limiters only: no answer ever shows one.
//
// Those of this package begin each key with its kind, so that keys of different kinds
// are never equal, whatever clients send:
//
//	ip:192.0.2.7                      as the client said it, after a colon
//	header.X-Tenant:acme
//	bearer=0f4b2ae1…                  a hash of it, after an equals sign
//	join:12:ip:192.0.2.76:path:/      parts, each after its length
//
// What is a secret, or longer than 128 bytes, is hashed: keys are short and may be
// stored. They may hold any bytes that a client can send. A function of your own should
// be made a [Named] one.
type KeyFunc func(r *http.Request) (key string, ok bool)

const (
	maxPlainBytes = 128 // bytes that a client may put into a key
	maxKeyBytes   = 512 // bytes of a key that has parts, or comes from elsewhere
)

// FirstOf names a client by the first function that can. It panics if there is none.
//
// Who is named by none stays unidentified, and whoever asked for the key decides what
// that means. With [Anonymous] as the last function nobody is: all others then share
// one key, and so one limit.
//
// The order is a decision about trust. A client chooses what it sends, and so which
// function names it, and under how many names it comes: see [Secrets.Validate].
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

// Constant gives every request the same key.
func Constant(*http.Request) (key string, ok bool) { return "constant:", true }

// FromContext names a client by what the context of its request holds, as an
// authentication in front of the limit left it there. An empty string names nobody.
// name says what it is, for instance "user"; it panics if name is not a token of HTTP.
func FromContext(name string, value func(context.Context) (string, bool)) KeyFunc {
	if value == nil {
		panic("throttlehttp: FromContext: no function: give one that reads the context")
	}
	requireToken("FromContext", name)
	return withKind("context."+name, func(r *http.Request) (string, bool) { return value(r.Context()) })
}

// KeyFrom makes a KeyFunc of any other function: it adds a kind, bounds the length, and
// takes an empty string for nobody. name says what it is, for instance "plan"; it
// panics if name is not a token of HTTP.
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

// plainKey returns the key of what may be seen. Nothing names nobody.
func plainKey(kind, value string) (key string, ok bool) {
	switch n := len(value); {
	case n == 0:
		return "", false
	case n > maxPlainBytes:
		return kind + "=" + digest(value), true
	}
	return kind + ":" + value, true
}

// boundedKey returns key, or a short one in its stead.
func boundedKey(kind, key string) string {
	if len(key) > maxKeyBytes {
		return kind + "=" + digest(key)
	}
	return key
}

// digest returns a hash of what is too long. It needs no secret, so that all processes
// agree: who finds two values of one digest has made them share a limit, and no more.
func digest(value string) string {
	sum := sha256.Sum256([]byte(value))
	return hex.EncodeToString(sum[:hashBytes])
}

// hashBytes is how much of a hash is kept: none equals another by chance, and it says
// too little to go on hashing with it.
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
