package heedtest

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// NoHeaders is an Edit that takes back all that is said about limits, as servers
// that refuse without a word.
func NoHeaders(h http.Header) {
	for key := range h {
		if strings.HasPrefix(key, "Ratelimit") || strings.HasPrefix(key, "X-Ratelimit") || key == "Retry-After" {
			delete(h, key)
		}
	}
}

// SetHeader returns an Edit that says value under key on every answer, whatever is
// true: a Remaining that never changes, a Reset in another unit.
func SetHeader(key, value string) func(http.Header) {
	return func(h http.Header) { h.Set(key, value) }
}

// EpochReset is an Edit that says X-RateLimit-Reset in seconds since 1970, by the
// server's clock, as GitHub does. Synctest bubbles begin in 2000, when such numbers
// had nine digits, and readers that tell instants from delays by size are wrong
// there: let Skew take the server to later years.
func EpochReset(h http.Header) {
	if at, ok := resetTime(h, "X-RateLimit-Reset"); ok {
		h.Set("X-RateLimit-Reset", strconv.FormatInt(at.Unix(), 10))
	}
}

// RetryDate is an Edit that says Retry-After as a date, by the server's clock.
func RetryDate(h http.Header) {
	if at, ok := resetTime(h, "Retry-After"); ok {
		h.Set("Retry-After", at.Format(http.TimeFormat))
	}
}

// resetTime returns the instant that the seconds under key speak of.
func resetTime(h http.Header, key string) (time.Time, bool) {
	date, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		return time.Time{}, false
	}
	s, err := strconv.ParseInt(h.Get(key), 10, 32)
	return date.Add(time.Duration(s) * time.Second), err == nil
}
