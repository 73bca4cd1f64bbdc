package heedtest

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// NoHeaders is an EditHeader function that removes all headers about limits, including
// Retry-After.
func NoHeaders(h http.Header) {
	for key := range h {
		if strings.HasPrefix(key, "Ratelimit") || strings.HasPrefix(key, "X-Ratelimit") || key == "Retry-After" {
			delete(h, key)
		}
	}
}

// EpochReset is an EditHeader function that converts X-RateLimit-Reset to seconds since 1970
// by the server's clock, as GitHub does. Bubbles of testing/synctest begin in the year 2000,
// when such numbers had nine digits; clients that distinguish instants from delays by their
// size fail there. Set Server.Skew to move the server to a later year.
func EpochReset(h http.Header) {
	if at, ok := resetTime(h, "X-RateLimit-Reset"); ok {
		h.Set("X-RateLimit-Reset", strconv.FormatInt(at.Unix(), 10))
	}
}

// RetryDate is an EditHeader function that converts Retry-After to a date by the server's
// clock.
func RetryDate(h http.Header) {
	if at, ok := resetTime(h, "Retry-After"); ok {
		h.Set("Retry-After", at.Format(http.TimeFormat))
	}
}

// resetTime returns the Date of the response plus the seconds of the header key.
func resetTime(h http.Header, key string) (time.Time, bool) {
	date, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		return time.Time{}, false
	}
	s, err := strconv.ParseInt(h.Get(key), 10, 32)
	return date.Add(time.Duration(s) * time.Second), err == nil
}
