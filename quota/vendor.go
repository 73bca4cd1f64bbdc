package quota

import (
	"sync"
	"time"
)

// A Vendor says what the answers of one API leave open: what a name means that the
// rules cannot read, in which unit a bare number is, how long a window is.
// Everything in it is optional.
type Vendor struct {
	Name     string             // for people
	Hosts    []string           // "api.github.com"; ".zendesk.com" is every host below
	Headers  map[string]Meaning // by header name in canonical form
	Buckets  []Bucket           // what the answers do not say; the first that fits counts
	Refusals []int              // statuses that refuse because of a limit, besides 429
	Body     bool               // refusals show in bodies only: look into those of successes too

	// AccountParams are query parameters that name the account, besides api_key and apikey: "key".
	AccountParams []string

	// Codes are error codes that refuse because of a limit, on any status from 400 on. They
	// count at the known places of JSON, and as words of XML and prose.
	Codes []string
}

// A Meaning is what one header says.
type Meaning struct {
	Says     Field
	Name     string          // of the bucket; headers with the same one belong together
	Unit     string          // what is counted; "": requests
	Scale    time.Duration   // unit of time of a bare number; 0: by its size
	Windows  []time.Duration // of the numbers in the value, in order
	Distinct bool            // the name is unmistakable: it means this on every host

	// Read reads values that have a grammar of their own. It adds to r.
	Read func(value string, r *Report)
}

// A Field is what the value of a header is.
type Field uint8

const (
	FieldNone       Field = iota // nothing that matters
	FieldLimit                   // most units in a window
	FieldRemaining               // units left
	FieldUsed                    // units spent
	FieldReset                   // when units come back: a moment or a delay
	FieldResetAfter              // when units come back: a delay
	FieldWindow                  // length of the window
	FieldRate                    // units that come back each second, or each window
	FieldName                    // name of the bucket
	FieldPolicy                  // limits with their windows
	FieldRetryAfter              // when to come again

	// Not about limits, but needed to read them.
	fieldDate
	fieldAge
)

// A Bucket completes a limit that the answer has named in part. Zero fields of
// the first group fit every limit, zero fields of the second set nothing.
type Bucket struct {
	Name     string // the limit's name in the answer; "-": it has none
	Unit     string // the limit's unit in the answer
	Limit    int64  // the limit's size in the answer
	Sizeless bool   // the answer does not say the limit's size

	As     string        // what to call it
	Counts string        // its true unit
	Max    int64         // its size, where the answer does not say
	Window time.Duration // its window, where the answer does not say
}

// complete fills in what the answer has left out.
func (v *Vendor) complete(l *Limit) {
	for i := range v.Buckets {
		b := &v.Buckets[i]
		if !b.fits(l) {
			continue
		}
		if b.As != "" {
			l.Name = b.As
		}
		if b.Counts != "" {
			l.Unit = b.Counts
		}
		if b.Max > 0 && !l.HasLimit {
			l.Limit, l.HasLimit = b.Max, true
		}
		if l.Window == 0 && l.ResetAfter-time.Minute <= b.Window {
			l.Window = b.Window
		}
		return
	}
}

func (b *Bucket) fits(l *Limit) bool {
	return (b.Name == "" || b.Name == l.Name || b.Name == "-" && l.Name == "") &&
		(b.Unit == "" || b.Unit == l.Unit) && (b.Limit == 0 || b.Limit == l.Limit) && !(b.Sizeless && l.HasLimit)
}

// refuses reports whether status is a refusal at v.
func (v *Vendor) refuses(status int) bool {
	for _, s := range v.Refusals {
		if s == status {
			return true
		}
	}
	return false
}

// VendorByName returns the row of the built-in table for an API by the name that
// people call it.
func VendorByName(name string) (Vendor, bool) {
	for i := range vendors {
		if v := &vendors[i]; len(name) >= len(v.Name) && fold(name[:len(v.Name)], v.Name) {
			return *v, true
		}
	}
	return Vendor{}, false
}

// vendorOf returns the row of the built-in table for a host, nil if it has none:
// that of the host itself, else that of the nearest domain above.
func vendorOf(host string) *Vendor {
	index := vendorsByHost()
	if v, ok := index[host]; ok {
		return v
	}
	for i := 1; i < len(host); i++ {
		if host[i] == '.' {
			if v, ok := index[host[i:]]; ok {
				return v
			}
		}
	}
	return nil
}

var vendorsByHost = sync.OnceValue(func() map[string]*Vendor {
	m := make(map[string]*Vendor)
	for i := range vendors {
		for _, host := range vendors[i].Hosts {
			m[host] = &vendors[i]
		}
	}
	return m
})
