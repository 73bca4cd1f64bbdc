package main

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/heed-go/heed/throttlehttp"
)

// An admin serves the limits of tenants:
//
//	GET    /tenants?limit=100&after=acme   list, in the order of names
//	POST   /tenants                        create; 409 if it exists
//	GET    /tenants/{name}                 404 if there is none; If-None-Match is obeyed
//	PUT    /tenants/{name}                 change; needs If-Match
//	DELETE /tenants/{name}                 remove; needs If-Match
//
// The ETag of a tenant is different after each change. A change without If-Match is rejected
// with 428, and one whose If-Match is not the current ETag with 412, so that no change of
// another administrator is overwritten unseen. "If-Match: *" changes any version.
type admin struct {
	store   *tenantStore
	changed func() // called after each change
}

const (
	maxAdminBody     = 4 << 10 // bytes
	adminBodyTimeout = 10 * time.Second
	defaultListLimit = 100
	maxListLimit     = 1000
)

// newAdmin returns the handler of the admin API of store. Requests must have the bearer token.
// changed is called after each change. It returns an error if the token is too short.
func newAdmin(store *tenantStore, token string, changed func()) (http.Handler, error) {
	if len(token) < 16 {
		return nil, fmt.Errorf("gateway: the token of the admin API has %d characters: it needs at least 16", len(token))
	}
	a := &admin{store: store, changed: changed}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /tenants", a.list)
	mux.HandleFunc("POST /tenants", a.create)
	mux.HandleFunc("GET /tenants/{name}", a.get)
	mux.HandleFunc("PUT /tenants/{name}", a.replace)
	mux.HandleFunc("DELETE /tenants/{name}", a.remove)
	return limitGuesses(throttlehttp.IP{}.Key, withToken(token, mux)), nil
}

// withToken passes requests with the bearer token to next.
func withToken(token string, next http.Handler) http.Handler {
	want := sha256.Sum256([]byte(token))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		scheme, given, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		got := sha256.Sum256([]byte(given))
		if !strings.EqualFold(scheme, "Bearer") || subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
			rejectToken(w, r, "the admin API needs its bearer token")
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (a *admin) get(w http.ResponseWriter, r *http.Request) {
	t, err := a.store.get(r.PathValue("name"))
	if err != nil {
		writeStoreError(w, err)
		return
	}
	if tags := r.Header.Get("If-None-Match"); tags != "" && matches(tags, t.Revision) {
		w.Header().Set("ETag", etag(t.Revision))
		w.WriteHeader(http.StatusNotModified)
		return
	}
	writeTenant(w, http.StatusOK, t)
}

// A listResponse is a page of tenants.
type listResponse struct {
	Tenants []tenant `json:"tenants"`
	Next    string   `json:"next,omitempty"` // the value of after for the next page; empty: this is the last one
}

func (a *admin) list(w http.ResponseWriter, r *http.Request) {
	limit := defaultListLimit
	if s := r.URL.Query().Get("limit"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 || n > maxListLimit {
			writeProblem(w, http.StatusBadRequest, fmt.Sprintf("limit is %.20q: it must be from 1 to %d", s, maxListLimit))
			return
		}
		limit = n
	}
	tenants, more, err := a.store.list(r.URL.Query().Get("after"), limit)
	if err != nil {
		writeStoreError(w, err)
		return
	}
	page := listResponse{Tenants: tenants}
	if page.Tenants == nil {
		page.Tenants = []tenant{}
	}
	if more {
		page.Next = tenants[len(tenants)-1].Name
	}
	writeJSON(w, http.StatusOK, "application/json", page)
}

func (a *admin) create(w http.ResponseWriter, r *http.Request) {
	t, ok := readTenant(w, r, "")
	if !ok {
		return
	}
	t, err := a.store.create(t)
	if err != nil {
		writeStoreError(w, err)
		return
	}
	a.changed()
	w.Header().Set("Location", "/tenants/"+t.Name)
	writeTenant(w, http.StatusCreated, t)
}

func (a *admin) replace(w http.ResponseWriter, r *http.Request) {
	allowed, ok := ifMatch(w, r)
	if !ok {
		return
	}
	t, ok := readTenant(w, r, r.PathValue("name"))
	if !ok {
		return
	}
	t, err := a.store.replace(t, allowed)
	if err != nil {
		writeStoreError(w, err)
		return
	}
	a.changed()
	writeTenant(w, http.StatusOK, t)
}

func (a *admin) remove(w http.ResponseWriter, r *http.Request) {
	allowed, ok := ifMatch(w, r)
	if !ok {
		return
	}
	if err := a.store.remove(r.PathValue("name"), allowed); err != nil {
		writeStoreError(w, err)
		return
	}
	a.changed()
	w.WriteHeader(http.StatusNoContent)
}

// readTenant reads the tenant in the body of r. If name is not empty, the body must be for it,
// or have no name. It writes a response and returns false if the body is invalid.
func readTenant(w http.ResponseWriter, r *http.Request, name string) (tenant, bool) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		writeProblem(w, http.StatusUnsupportedMediaType, "the body must be application/json")
		return tenant{}, false
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(adminBodyTimeout)) // not supported by recorders of tests
	t, err := decodeTenant(http.MaxBytesReader(w, r.Body, maxAdminBody))
	var tooLong *http.MaxBytesError
	switch {
	case errors.As(err, &tooLong):
		writeProblem(w, http.StatusRequestEntityTooLarge, fmt.Sprintf("the body is longer than %d bytes", maxAdminBody))
		return tenant{}, false
	case err != nil:
		writeProblem(w, http.StatusBadRequest, "the body is not a tenant: "+err.Error())
		return tenant{}, false
	case t.Name == "":
		t.Name = name
	}
	if name != "" && t.Name != name {
		writeProblem(w, http.StatusUnprocessableEntity, fmt.Sprintf("name is %.70q: the URL is that of %.70q", t.Name, name))
		return tenant{}, false
	}
	if err := t.validate(); err != nil {
		writeProblem(w, http.StatusUnprocessableEntity, err.Error())
		return tenant{}, false
	}
	return t, true
}

// ifMatch returns the precondition of r. It writes a response and returns false if there is
// none.
func ifMatch(w http.ResponseWriter, r *http.Request) (precondition, bool) {
	tags := strings.Join(r.Header.Values("If-Match"), ",")
	if tags == "" {
		writeProblem(w, http.StatusPreconditionRequired, "a change needs If-Match with the ETag of the version that it changes")
		return nil, false
	}
	return func(revision uint64) bool { return matches(tags, revision) }, true
}

func etag(revision uint64) string { return `"` + strconv.FormatUint(revision, 10) + `"` }

// matches reports whether a list of entity tags contains that of revision. Weak tags do not
// match.
func matches(tags string, revision uint64) bool {
	for tag := range strings.SplitSeq(tags, ",") {
		if tag = strings.TrimSpace(tag); tag == "*" || tag == etag(revision) {
			return true
		}
	}
	return false
}

// writeStoreError writes the response for an error of the store. The message of an unexpected
// one, which can contain paths, is only logged.
func writeStoreError(w http.ResponseWriter, err error) {
	switch {
	case errors.Is(err, errNotFound):
		writeProblem(w, http.StatusNotFound, err.Error())
	case errors.Is(err, errExists):
		writeProblem(w, http.StatusConflict, err.Error()+": change it with PUT")
	case errors.Is(err, errChanged):
		writeProblem(w, http.StatusPreconditionFailed, err.Error()+": get it again")
	case errors.Is(err, errFull):
		writeProblem(w, http.StatusInsufficientStorage, err.Error())
	default:
		log.Print("gateway: the database of tenants: ", err)
		writeProblem(w, http.StatusInternalServerError, "the database failed, and nothing was changed")
	}
}

func writeTenant(w http.ResponseWriter, status int, t tenant) {
	w.Header().Set("ETag", etag(t.Revision))
	writeJSON(w, status, "application/json", t)
}

// writeProblem writes problem details (RFC 9457).
func writeProblem(w http.ResponseWriter, status int, detail string) {
	writeJSON(w, status, "application/problem+json", map[string]any{"title": http.StatusText(status), "status": status, "detail": detail})
}

func writeJSON(w http.ResponseWriter, status int, kind string, v any) {
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client may have disconnected
}
