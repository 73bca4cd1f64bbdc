package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync/atomic"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
	"github.com/heed-go/heed/throttlehttp"
)

// A client is who sends a request. The zero client is not known: it has no valid token.
type client struct {
	name     string
	mayAllow bool // may ask /allow for decisions
}

// clients are the clients of a file. A line has a name, the SHA-256 of a token in hexadecimal digits,
// and the word allow if the client may ask /allow:
//
//	acme    5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8
//	mailer  ef92b778bafe771e89245b89ecbc08a44a4e166c06659911881f383d4473e94f  allow
//
// Two lines with one name are two tokens of a client, so that one can replace the other. Tokens must
// be random: a hash without a key does not protect a password.
type clients struct {
	path string
	of   atomic.Pointer[map[[sha256.Size]byte]client] // by the hash of the token
}

// loadClients returns the clients of the file at path.
func loadClients(path string) (*clients, error) {
	c := &clients{path: path}
	return c, c.reload()
}

// reload reads the file again. After an error the clients are those of before.
func (c *clients) reload() error {
	f, err := os.Open(c.path)
	if err != nil {
		return fmt.Errorf("gateway: clients: %w", err)
	}
	defer f.Close()
	all := map[[sha256.Size]byte]client{}
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		words := strings.Fields(lines.Text())
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		var hash [sha256.Size]byte
		switch {
		case len(words) > 3 || len(words) == 3 && words[2] != "allow":
			return fmt.Errorf("gateway: %s:%d: after the hash only the word allow is possible", c.path, n)
		case !validName.MatchString(words[0]):
			return fmt.Errorf("gateway: %s:%d: the name %.70q must be 1 to 64 letters, digits, dots, dashes and underscores", c.path, n, words[0])
		case len(words) == 1 || len(words[1]) != 2*len(hash):
			return fmt.Errorf("gateway: %s:%d: the name needs the SHA-256 of a token, 64 hexadecimal digits", c.path, n)
		}
		if _, err := hex.Decode(hash[:], []byte(words[1])); err != nil {
			return fmt.Errorf("gateway: %s:%d: the SHA-256 of a token: %w", c.path, n, err)
		}
		if other, ok := all[hash]; ok {
			return fmt.Errorf("gateway: %s:%d: %s and %s have the same token", c.path, n, other.name, words[0])
		}
		all[hash] = client{name: words[0], mayAllow: len(words) == 3}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("gateway: %s: %w", c.path, err)
	}
	c.of.Store(&all)
	return nil
}

// find returns the client whose token r has.
func (c *clients) find(r *http.Request) (client, bool) {
	v := r.Header["Authorization"]
	if len(v) != 1 {
		return client{}, false
	}
	scheme, token, _ := strings.Cut(v[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return client{}, false
	}
	found, ok := (*c.of.Load())[sha256.Sum256([]byte(token))]
	return found, ok
}

// authenticated passes requests with a valid token to next, and the client in their context. The
// token stays here. A nil c knows no clients, and passes all requests on as they are.
func (c *clients) authenticated(next http.Handler) http.Handler {
	if c == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		found, ok := c.find(r)
		if !ok {
			rejectToken(w, r, "a request needs the bearer token of a client")
			return
		}
		logged(r).client = found.name
		r = r.WithContext(context.WithValue(r.Context(), clientKey{}, found))
		r.Header.Del("Authorization")
		next.ServeHTTP(w, r)
	})
}

// rejectToken responds to a request without a valid token, which counts for limitGuesses.
func rejectToken(w http.ResponseWriter, r *http.Request, detail string) {
	throttlehttp.AddCost(r.Context(), 1)
	w.Header().Set("WWW-Authenticate", `Bearer realm="gateway"`)
	writeProblem(w, http.StatusUnauthorized, detail)
}

// limitGuesses limits how many requests with a wrong token an address may send.
func limitGuesses(address throttlehttp.KeyFunc, next http.Handler) http.Handler {
	guesses := &throttlehttp.Middleware{Rules: []throttlehttp.Rule{{
		Limiter:   keyed.NewBuckets(keyed.BucketsConfig{Limit: throttle.PerMinute(failedLogins)}),
		Key:       address,
		FinalCost: func(_ *http.Request, done throttlehttp.Response) int64 { return done.AddedCost },
		Hidden:    true,
	}}}
	return guesses.Handler(next)
}

// failedLogins is how many requests with a wrong token one address may send per minute, and how many
// with any token at the same time.
const failedLogins = 1000

type clientKey struct{}

// clientOf returns the client that was found for r.
func clientOf(r *http.Request) client {
	c, _ := r.Context().Value(clientKey{}).(client)
	return c
}

// clientOrAddress returns the key of a client: its name, or the address of one that is not known.
func clientOrAddress(address throttlehttp.KeyFunc) throttlehttp.KeyFunc {
	return func(r *http.Request) (string, bool) {
		if name := clientOf(r).name; name != "" {
			return "client=" + name, true
		}
		return address(r)
	}
}
