package quota

import "time"

// Header names are made of few words, in any order and sometimes glued together.
// This is the dictionary; parsename.go is the grammar.

// timed reports whether values of f are times, so that a unit of time in the name is
// the unit of the value and not of the limit.
func (f Field) timed() bool {
	return f == FieldReset || f == FieldResetAfter || f == FieldWindow || f == FieldRetryAfter
}

// A class is the part that a word plays in a name.
type class uint8

const (
	qualifier  class = iota // says which bucket: all unknown words do
	filler                  // says nothing
	marker                  // says that this is about rate limits
	strong                  // a field word; the rightmost one counts
	weak                    // a field word if there is no strong one, else a qualifier
	unitWord                // what is counted
	windowWord              // how long
	scaleWord               // unit of time of the value, behind a timed field
	relative                // behind reset: a delay follows
	absolute                // behind reset: a moment follows
)

// A word is a word of a header name.
type word struct {
	class class
	field Field
	unit  string        // unitWord, windowWord; "" means requests
	sure  bool          // unitWord: nothing but limits is counted in it
	span  time.Duration // windowWord, scaleWord; 0 for months, which have no one length
}

const day = 24 * time.Hour

var words = map[string]word{
	"ratelimit": {class: marker}, "ratelimits": {class: marker}, "ratelimiting": {class: marker},
	"throttle": {class: marker}, "throttling": {class: marker},

	"limit": {class: strong, field: FieldLimit}, "limits": {class: strong, field: FieldLimit},
	"remaining": {class: strong, field: FieldRemaining}, "remain": {class: strong, field: FieldRemaining},
	"left": {class: strong, field: FieldRemaining}, "available": {class: strong, field: FieldRemaining},
	"used": {class: strong, field: FieldUsed}, "usage": {class: strong, field: FieldUsed},
	"observed": {class: strong, field: FieldUsed}, "consumed": {class: strong, field: FieldUsed},
	"reset": {class: strong, field: FieldReset}, "resets": {class: strong, field: FieldReset},
	"resettime": {class: strong, field: FieldReset}, "resetat": {class: strong, field: FieldReset},
	"resetdate": {class: strong, field: FieldReset}, "resettimestamp": {class: strong, field: FieldReset},
	"resetafter": {class: strong, field: FieldResetAfter}, "resetin": {class: strong, field: FieldResetAfter},
	"period": {class: strong, field: FieldWindow}, "interval": {class: strong, field: FieldWindow},
	"window": {class: strong, field: FieldWindow}, "renewalperiod": {class: strong, field: FieldWindow},
	"timewindow": {class: strong, field: FieldWindow}, "timeframe": {class: strong, field: FieldWindow},
	"policy": {class: strong, field: FieldPolicy}, "policies": {class: strong, field: FieldPolicy},
	"fillrate": {class: strong, field: FieldRate}, "refillrate": {class: strong, field: FieldRate},
	"replenishrate": {class: strong, field: FieldRate}, "restorerate": {class: strong, field: FieldRate},
	"retryafter": {class: strong, field: FieldRetryAfter}, "retryin": {class: strong, field: FieldRetryAfter},

	"max": {class: weak, field: FieldLimit}, "maximum": {class: weak, field: FieldLimit},
	"quota": {class: weak, field: FieldLimit}, "capacity": {class: weak, field: FieldLimit},
	"total": {class: weak, field: FieldLimit}, "allowed": {class: weak, field: FieldLimit},
	"allowance": {class: weak, field: FieldLimit}, "allotted": {class: weak, field: FieldLimit},
	"count": {class: weak, field: FieldUsed}, "current": {class: weak, field: FieldUsed},
	"rate": {class: weak, field: FieldRate},
	"next": {class: weak, field: FieldReset}, "expires": {class: weak, field: FieldReset},
	"expiry": {class: weak, field: FieldReset}, "expire": {class: weak, field: FieldReset},
	"renew": {class: weak, field: FieldReset}, "renews": {class: weak, field: FieldReset},
	"refresh": {class: weak, field: FieldReset}, "ttl": {class: weak, field: FieldResetAfter},
	"resource": {class: weak, field: FieldName}, "bucket": {class: weak, field: FieldName},
	"name": {class: weak, field: FieldName}, "by": {class: weak, field: FieldName},
	"reason": {class: weak, field: FieldName}, "group": {class: weak, field: FieldName},

	"request": {class: unitWord, sure: true}, "requests": {class: unitWord, sure: true},
	"req": {class: unitWord, sure: true}, "reqs": {class: unitWord, sure: true},
	"call": {class: unitWord, sure: true}, "calls": {class: unitWord, sure: true},
	"hits":    {class: unitWord, sure: true},
	"tokens":  {class: unitWord, unit: "tokens", sure: true},
	"credits": {class: unitWord, unit: "credits", sure: true}, "credit": {class: unitWord, unit: "credits", sure: true},
	"points": {class: unitWord, unit: "points", sure: true}, "point": {class: unitWord, unit: "points"},
	"cost": {class: unitWord, unit: "cost"}, "complexity": {class: unitWord, unit: "complexity", sure: true},
	"weight": {class: unitWord, unit: "weight", sure: true}, "orders": {class: unitWord, unit: "orders"},
	"order": {class: unitWord, unit: "orders"}, "bytes": {class: unitWord, unit: "bytes"},
	"images": {class: unitWord, unit: "images"}, "pages": {class: unitWord, unit: "pages"},
	"characters": {class: unitWord, unit: "characters"}, "chars": {class: unitWord, unit: "characters"},
	"entities": {class: unitWord, unit: "entities"}, "records": {class: unitWord, unit: "records"},
	"rows": {class: unitWord, unit: "rows"}, "events": {class: unitWord, unit: "events"},
	"recipient": {class: unitWord, unit: "recipients", sure: true}, "recipients": {class: unitWord, unit: "recipients", sure: true},
	"messages": {class: unitWord, unit: "messages", sure: true}, "emails": {class: unitWord, unit: "emails", sure: true},
	"error": {class: unitWord, unit: "errors"}, "errors": {class: unitWord, unit: "errors"},
	"percent": {class: unitWord, unit: "percent"}, "percentage": {class: unitWord, unit: "percent"},
	"utilization": {class: unitWord, unit: "fraction"}, "utilisation": {class: unitWord, unit: "fraction"},
	"fraction": {class: unitWord, unit: "fraction"}, "ratio": {class: unitWord, unit: "fraction"},
	"concurrent":  {class: unitWord, unit: "concurrent_requests", sure: true},
	"concurrency": {class: unitWord, unit: "concurrent_requests", sure: true},

	"qps": {class: windowWord, span: time.Second}, "qpm": {class: windowWord, span: time.Minute},
	"rps": {class: windowWord, span: time.Second}, "rpm": {class: windowWord, span: time.Minute},
	"rph": {class: windowWord, span: time.Hour}, "rpd": {class: windowWord, span: day},
	"tpm": {class: windowWord, span: time.Minute, unit: "tokens"},
	"tph": {class: windowWord, span: time.Hour, unit: "tokens"},
	"tpd": {class: windowWord, span: day, unit: "tokens"},

	"second": {class: windowWord, span: time.Second}, "secondly": {class: windowWord, span: time.Second},
	"persecond": {class: windowWord, span: time.Second}, "minute": {class: windowWord, span: time.Minute},
	"min": {class: windowWord, span: time.Minute}, "minutely": {class: windowWord, span: time.Minute},
	"perminute": {class: windowWord, span: time.Minute}, "hour": {class: windowWord, span: time.Hour},
	"hourly": {class: windowWord, span: time.Hour}, "perhour": {class: windowWord, span: time.Hour},
	"day": {class: windowWord, span: day}, "daily": {class: windowWord, span: day},
	"today": {class: windowWord, span: day}, "perday": {class: windowWord, span: day},
	"week": {class: windowWord, span: 7 * day}, "weekly": {class: windowWord, span: 7 * day},
	"month": {class: windowWord}, "monthly": {class: windowWord}, "year": {class: windowWord},

	"ms": {class: scaleWord, span: time.Millisecond}, "millis": {class: scaleWord, span: time.Millisecond},
	"milliseconds": {class: scaleWord, span: time.Millisecond}, "seconds": {class: scaleWord, span: time.Second},
	"secs": {class: scaleWord, span: time.Second}, "sec": {class: scaleWord, span: time.Second},

	"after": {class: relative}, "in": {class: relative}, "delta": {class: relative},
	"at": {class: absolute}, "date": {class: absolute}, "timestamp": {class: absolute},
	"epoch": {class: absolute}, "utc": {class: absolute}, "unix": {class: absolute}, "on": {class: absolute},

	"x": {class: filler}, "http": {class: filler}, "per": {class: filler}, "this": {class: filler},
	"header": {class: filler}, "info": {class: filler}, "of": {class: filler}, "the": {class: filler},
}

// glued are the field words that other words run into, as in UserLimit,
// requestsRemaining or DayLimit. The longer of two with one ending comes first.
var glued = [...]string{
	"ratelimit", "limit", "remaining", "resettime", "reset", "usage", "used", "quota", "interval", "period", "header", "left",
}
