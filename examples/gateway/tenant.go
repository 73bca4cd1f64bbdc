package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"time"

	"github.com/heed-go/heed/rules/source"
	"github.com/heed-go/heed/throttle"
)

// A tenant is the limit of one tenant as the admin API reads and writes it:
//
//	{"name": "acme", "requests": 100, "per": "1m", "burst": 20}
//	{"name": "partner", "unlimited": true}
type tenant struct {
	Name      string   `json:"name"`
	Requests  int64    `json:"requests,omitempty"`
	Per       duration `json:"per,omitempty"`
	Burst     int64    `json:"burst,omitempty"` // 0: Requests
	Unlimited bool     `json:"unlimited,omitempty"`

	// Revision is different after each change. It is the entity tag of the tenant, and not a
	// part of its JSON.
	Revision uint64 `json:"-"`
}

// A duration is a time.Duration whose JSON is a string such as "1m30s".
type duration time.Duration

// MarshalJSON implements json.Marshaler.
func (d duration) MarshalJSON() ([]byte, error) { return json.Marshal(time.Duration(d).String()) }

// UnmarshalJSON implements json.Unmarshaler.
func (d *duration) UnmarshalJSON(text []byte) error {
	var s string
	if err := json.Unmarshal(text, &s); err != nil {
		return errors.New(`per must be a string such as "1s", "1m" or "1h"`)
	}
	v, err := time.ParseDuration(s)
	if err != nil {
		return fmt.Errorf(`per is %q: it must be a duration such as "1s", "1m" or "1h"`, s)
	}
	*d = duration(v)
	return nil
}

// The bounds of the numbers of a tenant.
const (
	maxRequests = 1_000_000_000
	minPer      = time.Millisecond
	maxPer      = 31 * 24 * time.Hour
)

// validName is the form of the names of tenants, which are parts of URLs.
var validName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// validate returns an error that states the invalid field.
func (t tenant) validate() error {
	switch {
	case !validName.MatchString(t.Name):
		return fmt.Errorf("name is %.70q: it must be 1 to 64 letters, digits, dots, dashes and underscores, and begin with a letter or digit", t.Name)
	case t.Unlimited && (t.Requests != 0 || t.Per != 0 || t.Burst != 0):
		return errors.New("unlimited is true: requests, per and burst must then be left out")
	case t.Unlimited:
		return nil
	case t.Requests < 1 || t.Requests > maxRequests:
		return fmt.Errorf("requests is %d: it must be from 1 to %d", t.Requests, maxRequests)
	case time.Duration(t.Per) < minPer || time.Duration(t.Per) > maxPer:
		return fmt.Errorf("per is %v: it must be from %v to %v", time.Duration(t.Per), minPer, maxPer)
	case t.Burst < 0 || t.Burst > maxRequests:
		return fmt.Errorf("burst is %d: it must be from 1 to %d, or left out", t.Burst, maxRequests)
	}
	return t.throttleLimit().Validate()
}

// throttleLimit returns the limit of t, which is not unlimited.
func (t tenant) throttleLimit() throttle.Limit {
	return throttle.Limit{Name: "tenant", Count: t.Requests, Per: time.Duration(t.Per), Burst: t.Burst}
}

// limit returns the limit of t as source.Source.Lookup does.
func (t tenant) limit() (throttle.Limit, error) {
	if t.Unlimited {
		return throttle.Limit{}, source.ErrUnlimited
	}
	return t.throttleLimit(), nil
}

// decodeTenant reads one JSON object and nothing else.
func decodeTenant(r io.Reader) (t tenant, err error) {
	d := json.NewDecoder(r)
	d.DisallowUnknownFields()
	if err := d.Decode(&t); err != nil {
		return t, err
	}
	if _, err := d.Token(); err != io.EOF {
		return t, errors.New("there is something after the JSON object")
	}
	return t, nil
}
