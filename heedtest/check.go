package heedtest

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/heed-go/heed/internal/scorecard"
)

func init() { scorecard.Run, scorecard.Names = run, names }

// A clientFunc builds the client under test. See Check.
type clientFunc = func(base http.RoundTripper) http.RoundTripper

// A Waiver is a check that a client is allowed to fail.
type Waiver struct {
	Check  string // name of the check
	Reason string // why the failure is accepted; required
}

// Check runs all checks on the clients that newClient builds, each as a subtest: it fails if the
// worst figure of its trials is above the limit of the check, and is skipped if the client never
// came into its situation. go test -run TestClient/herd runs one of them. newClient builds the
// client under test over base, which connects to the server of a check. It is called several
// times for each check, and the clients must not share anything. A waived check is skipped if
// the client fails it. A waiver without a reason, or with the name of no check, fails t.
//
// The checks run in memory and in the virtual time of testing/synctest, so that an hour of
// waiting takes no time. Check must not be called in a bubble. A client that panics, hangs,
// retries without end or reads without end fails a check and does not stop the others. A
// panic in a goroutine that the client started cannot be recovered and ends the program.
func Check(t *testing.T, newClient func(base http.RoundTripper) http.RoundTripper, waivers ...Waiver) {
	t.Helper()
	reasons := map[string]string{}
	for _, w := range waivers {
		if find(w.Check) == nil || w.Reason == "" {
			t.Errorf("heedtest: Check: the waiver %+v has no reason or names no check", w)
		}
		reasons[w.Check] = w.Reason
	}
	x := &runner{newClient: newClient, maxRealTime: maxRealTime}
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) {
			m := x.mark(t, c)
			reason, waived := reasons[c.name]
			switch {
			case m.Result == scorecard.Failed && !waived:
				t.Error(m)
			case m.Result == scorecard.Failed:
				t.Skipf("%v; waived: %s", m, reason)
			case m.Result == scorecard.NotApplicable:
				t.Skip(m)
			case waived:
				t.Logf("%v; the waiver is not needed: %s", m, reason)
			default:
				t.Log(m)
			}
		})
	}
}

// run is scorecard.Run.
func run(t *testing.T, newClient clientFunc, chosen ...string) scorecard.Card {
	if len(chosen) == 0 {
		chosen = names()
	}
	x := &runner{newClient: newClient, maxRealTime: maxRealTime}
	var card scorecard.Card
	for _, name := range chosen {
		m := scorecard.Mark{Check: name, Result: scorecard.Failed, Detail: "there is no such check"}
		if c := find(name); c != nil {
			m = x.mark(t, *c)
		}
		card = append(card, m)
	}
	return card
}

// names is scorecard.Names.
func names() (all []string) {
	for _, c := range checks {
		all = append(all, c.name)
	}
	return all
}

// A check observes one kind of harm. It passes if the worst figure of its trials is at most
// limit.
type check struct {
	name  string
	unit  string
	limit float64
	run   func(*evaluation)
}

var checks = []check{
	{"contract", "violations", 0, checkContract},
	{"early-retry", "s too early", 0, checkEarlyRetry},
	{"request-body", "wrong bodies", 0, checkRequestBody},
	{"response-body", "unnoticed", 0, checkResponseBody},
	{"duplicate-post", "repetitions", 0, checkDuplicatePost},
	{"herd", "requests in 20 ms", 15, checkHerd},
	{"retry-bound", "attempts", 10, checkRetryBound},
	{"nested-retries", "times as many", 1, checkNestedRetries},
	{"last-response", "lost responses", 0, checkLastResponse},
	{"leaks", "leaks", 0, checkLeaks},
	{"deadline", "s late", 0.1, checkDeadline},
	{"useless-wait", "s", 1, checkUselessWait},
	{"long-wait", "s", 3600, checkLongWait},
	{"endless-body", "KiB", 1024, checkEndlessBody},
	{"stalled-body", "s", 600, checkStalledBody},
	{"upload-buffer", "KiB", 1024, checkUploadBuffer},
	{"healthy-server", "% failed", 1, checkHealthyServer},
	{"dialects", "rejected", 0, checkDialects},
	{"lost-units", "s", 1, checkLostUnits},
}

func find(name string) *check {
	for i := range checks {
		if checks[i].name == name {
			return &checks[i]
		}
	}
	return nil
}

// A runner runs checks on one client.
type runner struct {
	newClient   clientFunc
	maxRealTime time.Duration
	stuck       string          // the check in which a trial never ended; empty: none
	abandoned   <-chan struct{} // closed if that trial ends after all
}

// mark runs c. After a trial that never ended it runs no check, because the client still uses
// a processor, and every further check would take maxRealTime too.
func (x *runner) mark(t *testing.T, c check) scorecard.Mark {
	m := scorecard.Mark{Check: c.name, Limit: c.limit, Unit: c.unit, Result: scorecard.Passed}
	if x.stuck != "" {
		m.Result, m.Detail = scorecard.Failed, "not run: the client still blocks in check "+x.stuck
		return m
	}
	e := &evaluation{t: t, newClient: x.newClient, maxRealTime: x.maxRealTime}
	c.run(e)
	if e.stuck != nil {
		x.stuck, x.abandoned = c.name, e.stuck
	}
	m.Figure, m.Detail = e.figure, e.detail
	switch {
	case e.fault != "":
		m.Result, m.Detail = scorecard.Failed, e.fault
	case e.figure > c.limit:
		m.Result = scorecard.Failed
	case !e.applies:
		m.Result, m.Detail = scorecard.NotApplicable, ""
	default:
		m.Detail = ""
	}
	return m
}

// An evaluation collects what the trials of one check observe.
type evaluation struct {
	t           *testing.T
	newClient   clientFunc
	maxRealTime time.Duration

	applies bool // whether the client came into the situation of the check
	figure  float64
	detail  string // about the trial with the worst figure
	fault   string // of the first trial that the client broke; empty: none

	// stuck is closed when a trial ends that had to be abandoned although it was running. Nil
	// means that there was none.
	stuck <-chan struct{}
}

// measured records the figure of a trial, to which the check applies. The sentence describes
// what went wrong if the figure is too great.
func (e *evaluation) measured(figure float64, format string, args ...any) {
	e.applies = true
	if e.detail == "" || figure > e.figure {
		e.figure, e.detail = figure, fmt.Sprintf(format, args...)
	}
}

// fail fails the check for a reason other than its figure.
func (e *evaluation) fail(format string, args ...any) {
	if e.fault == "" {
		e.fault = fmt.Sprintf(format, args...)
	}
}
