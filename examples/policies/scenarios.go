package main

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/heed-go/heed/throttle"
)

// A scenario is a sequence of requests for one policy of the file.
type scenario struct {
	policy       string
	method, path string
	steps        []step
}

// A step is a number of requests at one instant.
type step struct {
	at       time.Duration // since midnight
	times    int
	cost     int64 // of each request; 0: as in the file
	succeeds bool  // for policies that count only failures
}

const (
	second = time.Second
	minute = time.Minute
	hour   = time.Hour
	day    = 24 * time.Hour
)

var scenarios = []scenario{
	{"20 accounts a day per IP", http.MethodPost, "/accounts", []step{{at: 10 * hour, times: 22}, {at: 23 * hour, times: 1}, {at: day, times: 22}}},
	{"5 failed cards a day per device", http.MethodPost, "/cards", []step{
		{at: 22 * hour, times: 3}, {at: 22 * hour, times: 9, succeeds: true}, {at: 23 * hour, times: 2},
		{at: 23 * hour, times: 1, succeeds: true}, {at: 46 * hour, times: 4}}},
	{"1 risky message a day", http.MethodPost, "/messages/risky", []step{{at: 23 * hour, times: 2}, {at: 25 * hour, times: 1}, {at: 47 * hour, times: 2}}},
	{"10 failed logins, one more each hour", http.MethodPost, "/login", []step{
		{times: 12}, {at: hour, times: 2}, {at: 4 * hour, times: 4}, {at: 4 * hour, times: 1, succeeds: true}}},
	{"100 a minute and 10 % more", http.MethodGet, "/soft", []step{{times: 112}, {at: 30 * second, times: 57}}},
	{"100 a minute and what others leave", http.MethodGet, "/borrow", []step{{at: 9 * hour, times: 150}, {at: 13 * hour, times: 150}}},
	{"5 a minute and 2 a second", http.MethodGet, "/search", []step{
		{times: 3}, {at: second, times: 3}, {at: 2 * second, times: 3}, {at: minute, times: 3}}},
	{"200 of cost a day, refilled 50 a day", http.MethodPost, "/reports", []step{
		{times: 4, cost: 60}, {at: 10 * hour, times: 2, cost: 20}, {at: 34 * hour, times: 2, cost: 50}, {at: 10 * day, times: 2, cost: 201}}},
	{"15 a second", http.MethodGet, "/items", []step{{times: 17}, {at: 400 * time.Millisecond, times: 7}, {at: 9 * second, times: 17}}},
	{"1 post a second", http.MethodPost, "/posts", []step{{times: 2}, {at: second / 2, times: 1}, {at: second, times: 2}}},
	{"150 friends a day", http.MethodPost, "/friends", []step{{at: 22 * hour, times: 152}, {at: 36 * hour, times: 78}}},
}

// mark returns # for granted, + for granted beyond the limit, and - for rejected.
func mark(d throttle.Decision) string {
	switch {
	case !d.OK:
		return "-"
	case d.OverLimit:
		return "+"
	}
	return "#"
}

// describe returns the time and the special properties of a step.
func (s step) describe() string {
	at := midnight.Add(s.at).Format("Jan 2 15:04:05.9")
	switch {
	case s.cost > 0:
		return fmt.Sprintf("%s, %d each", at, s.cost)
	case s.succeeds:
		return at + ", no failure"
	}
	return at
}

// retryIn returns a text with the time after which to retry.
func retryIn(d throttle.Decision) string {
	switch {
	case d.OK:
		return ""
	case d.Wait == throttle.Forever:
		return "  never"
	}
	return "  again in " + d.Wait.Round(time.Millisecond).String()
}

// compact replaces long runs of one mark by a count.
func compact(marks string) string {
	var b strings.Builder
	for i := 0; i < len(marks); {
		n := len(marks[i:]) - len(strings.TrimLeft(marks[i:], marks[i:i+1]))
		if n > 12 {
			fmt.Fprintf(&b, " %d%c ", n, marks[i])
		} else {
			b.WriteString(marks[i : i+n])
		}
		i += n
	}
	return strings.TrimSpace(b.String())
}
