package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/heed-go/heed/rules/source"
	"github.com/heed-go/heed/throttle"
)

// A tenantStore keeps the limits of tenants in a bbolt database. A change is on the disk when
// its method returns.
type tenantStore struct {
	db    *bbolt.DB
	count int // of tenants; used by one transaction that writes at a time
}

var (
	errNotFound = errors.New("there is no such tenant")
	errExists   = errors.New("the tenant exists already")
	errChanged  = errors.New("the tenant was changed meanwhile")
	errFull     = fmt.Errorf("there are %d tenants, which is the maximum", maxTenants)
)

const (
	maxTenants  = 100_000
	lockTimeout = time.Second // how long another process may still be closing the database
)

var tenantsBucket = []byte("tenants")

// A record is what the database holds of a tenant.
type record struct {
	Revision uint64 `json:"revision"`
	Tenant   tenant `json:"tenant"`
}

// openTenantStore opens the database at path, and creates it if there is none. It reads the
// whole database, so that a corrupt one is found now and not with the first request.
func openTenantStore(path string) (_ *tenantStore, err error) {
	var db *bbolt.DB
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true)) // a truncated file makes reading its memory map fault
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("it is corrupt: %v", v)
		}
		if err != nil {
			err = fmt.Errorf("gateway: the database %s: %w", path, err)
			if db != nil {
				_ = db.Close()
			}
		}
	}()
	switch db, err = bbolt.Open(path, 0o600, &bbolt.Options{Timeout: lockTimeout}); {
	case errors.Is(err, berrors.ErrTimeout):
		return nil, errors.New("it is in use by another process")
	case errors.Is(err, berrors.ErrInvalid), errors.Is(err, berrors.ErrChecksum), errors.Is(err, berrors.ErrVersionMismatch):
		return nil, fmt.Errorf("it is corrupt, or not a bbolt database: %w", err)
	case err != nil:
		return nil, err
	}
	s := &tenantStore{db: db}
	if err := s.checkPages(); err != nil {
		return nil, fmt.Errorf("it is corrupt: %w", err)
	}
	if err := s.load(); err != nil {
		return nil, err
	}
	return s, nil
}

// checkPages checks the structure of the whole database.
func (s *tenantStore) checkPages() error {
	return s.db.View(func(tx *bbolt.Tx) error {
		info, err := os.Stat(s.db.Path())
		if err != nil {
			return err
		}
		if info.Size() < tx.Size() {
			return fmt.Errorf("it has %d of %d bytes", info.Size(), tx.Size())
		}
		var first error
		for err := range tx.Check() { // all of them, or its goroutine remains
			if first == nil {
				first = err
			}
		}
		return first
	})
}

// load creates the bucket of the tenants in a new database, and else checks and counts them.
func (s *tenantStore) load() error {
	return s.db.Update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists(tenantsBucket)
		if err != nil {
			return err
		}
		return b.ForEach(func(name, value []byte) error {
			s.count++
			_, err := decodeRecord(string(name), value)
			return err
		})
	})
}

func decodeRecord(name string, value []byte) (t tenant, err error) {
	var r record
	if err := json.Unmarshal(value, &r); err != nil {
		return t, fmt.Errorf("the record of tenant %q: %w", name, err)
	}
	t = r.Tenant
	t.Revision = r.Revision
	if err := t.validate(); err != nil {
		return t, fmt.Errorf("the record of tenant %q: %w", name, err)
	}
	if t.Name != name {
		return t, fmt.Errorf("the record of tenant %q is that of %q", name, t.Name)
	}
	return t, nil
}

// get returns the tenant with the given name, or errNotFound.
func (s *tenantStore) get(name string) (t tenant, err error) {
	err = s.db.View(func(tx *bbolt.Tx) error {
		t, err = getTenant(tx, name)
		return err
	})
	return t, err
}

func getTenant(tx *bbolt.Tx, name string) (tenant, error) {
	value := tx.Bucket(tenantsBucket).Get([]byte(name))
	if value == nil {
		return tenant{}, errNotFound
	}
	return decodeRecord(name, value)
}

// list returns at most n tenants whose names are after the given one, in the order of their
// names, and whether there are more.
func (s *tenantStore) list(after string, n int) (tenants []tenant, more bool, err error) {
	err = s.db.View(func(tx *bbolt.Tx) error {
		c := tx.Bucket(tenantsBucket).Cursor()
		name, value := c.Seek([]byte(after))
		if after != "" && string(name) == after {
			name, value = c.Next()
		}
		for ; name != nil; name, value = c.Next() {
			if len(tenants) == n {
				more = true
				return nil
			}
			t, err := decodeRecord(string(name), value)
			if err != nil {
				return err
			}
			tenants = append(tenants, t)
		}
		return nil
	})
	return tenants, more, err
}

// create adds t and returns it with its revision. It returns errExists if there is a tenant of
// that name, and errFull if there are too many.
func (s *tenantStore) create(t tenant) (tenant, error) {
	err := s.db.Update(func(tx *bbolt.Tx) error {
		b := tx.Bucket(tenantsBucket)
		switch {
		case b.Get([]byte(t.Name)) != nil:
			return errExists
		case s.count >= maxTenants:
			return errFull
		}
		tx.OnCommit(func() { s.count++ })
		return putTenant(b, &t)
	})
	return t, err
}

// A precondition reports whether a change may be made to a tenant with the given revision.
type precondition func(revision uint64) bool

// replace replaces the tenant of the name of t and returns it with its new revision. It returns
// errNotFound if there is none, and errChanged if allowed returns false.
func (s *tenantStore) replace(t tenant, allowed precondition) (tenant, error) {
	err := s.db.Update(func(tx *bbolt.Tx) error {
		if err := checkPrecondition(tx, t.Name, allowed); err != nil {
			return err
		}
		return putTenant(tx.Bucket(tenantsBucket), &t)
	})
	return t, err
}

// remove removes a tenant, with the errors of replace.
func (s *tenantStore) remove(name string, allowed precondition) error {
	return s.db.Update(func(tx *bbolt.Tx) error {
		if err := checkPrecondition(tx, name, allowed); err != nil {
			return err
		}
		tx.OnCommit(func() { s.count-- })
		return tx.Bucket(tenantsBucket).Delete([]byte(name))
	})
}

func checkPrecondition(tx *bbolt.Tx, name string, allowed precondition) error {
	old, err := getTenant(tx, name)
	if err == nil && !allowed(old.Revision) {
		err = errChanged
	}
	return err
}

// putTenant stores t with a new revision. Revisions are never used again, also not after a
// tenant was removed.
func putTenant(b *bbolt.Bucket, t *tenant) (err error) {
	if t.Revision, err = b.NextSequence(); err != nil {
		return err
	}
	value, err := json.Marshal(record{t.Revision, *t})
	if err != nil {
		return err
	}
	return b.Put([]byte(t.Name), value)
}

// lookup implements source.Source.Lookup.
func (s *tenantStore) lookup(_ context.Context, name string) (throttle.Limit, error) {
	t, err := s.get(name)
	if errors.Is(err, errNotFound) {
		return throttle.Limit{}, source.ErrNoLimit
	}
	if err != nil {
		return throttle.Limit{}, err
	}
	return t.limit()
}

// close closes the database.
func (s *tenantStore) close() error { return s.db.Close() }
