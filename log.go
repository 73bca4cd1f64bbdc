package heed

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/heed-go/heed/internal/explain"
	"github.com/heed-go/heed/quota"
)

// minLoggedWait is the shortest wait that LogTrace logs if the request was then granted.
const minLoggedWait = time.Second

// repeatsWithin is the time for which LogTrace counts similar records instead of writing them.
const repeatsWithin = 10 * time.Second

// LogTrace returns a Trace that logs what delays or ends requests:
//
//	wait of at least 1 s    info       waited 1.2 s for quota api.example.com (retry-after), 3 ahead
//	retry                   info       attempt 1 failed with status 503: retry in 1.2 s
//	request that fails      warning    gave up: heed: no attempts are left (after 4 attempts, the last with status 503)
//	hold of a quota         warning    quota api.example.com (retry-after) is held for 30 s
//	short estimated hold    debug      quota api.example.com (learned rate) is held for 20 ms
//	end of a hold           info       quota api.example.com (retry-after) is not held any more
//	limit that is learned   info       quota api.example.com (learned rate): learned limit of 20 per second
//	limit that is stated    debug      quota api.example.com: stated limit of 100 per 1 min
//	limit that changes      debug      quota api.example.com (learned rate): changed learned limit of 21 per second
//
// The names in parentheses are those of docs/server-limits.md: retry-after, learned rate,
// overload and slow start; without one, the server stated what is left. A hold is short if
// its end, or its next test, is less than a second away, and estimated if the server did not
// state its end. A learned limit that is dropped, and a request that its caller canceled,
// are logged as info. The records have the context of the request, and attributes for the
// method, the host and the numbers of the text. They never contain the path and query of a
// URL, header fields, bodies or keys of limits; errors in them have no user, query and
// fragment of URLs. A nil logger means slog.Default, at the time of each record.
//
// Similar records are counted for 10 s after the first one, and are then one record: that of
// the first one, with ", 131 more within 10 s" and the attribute repeated. It has no context of
// a request. Records are similar if they have the same kind, level and host, and the same limit
// or, for retries and failures, status; failures before the first attempt are a kind of their
// own. Counts are lost if the program ends before the 10 s. At most 1,000 records are counted
// at the same time; the repeats of further ones are written as they are.
func LogTrace(logger *slog.Logger) *Trace {
	l := &requestLogger{to: logger}
	return &Trace{WaitDone: l.waitDone, Retry: l.retry, Done: l.done, Hold: l.hold, LimitLearned: l.limitLearned}
}

// A requestLogger writes the records of LogTrace.
type requestLogger struct {
	to *slog.Logger // nil: slog.Default at the time of each record

	mu      sync.Mutex
	repeats map[recordKey]int // number of similar records since one was written
}

// A recordKey is what similar records have in common.
type recordKey struct {
	kind    string
	level   slog.Level
	host    string
	subject string // name of a limit, or status
}

// maxRecordKeys is the maximum number of records whose repeats are counted.
const maxRecordKeys = 1000

// log writes a record, or counts it as a repeat of a similar one.
func (l *requestLogger) log(ctx context.Context, key recordKey, sentence func() string, attrs func() []slog.Attr) {
	logger := cmp.Or(l.to, slog.Default())
	if !logger.Enabled(ctx, key.level) {
		return
	}
	first, counted := l.count(key)
	if !first {
		return
	}
	var text string
	var all []slog.Attr
	if counted { // deferred: the text is complete then, and an Error method or a handler may panic
		defer time.AfterFunc(repeatsWithin, func() { l.sumUp(logger, key, text, all) })
	}
	text, all = sentence(), attrs()
	logger.LogAttrs(ctx, key.level, text, all...)
}

// count reports whether a record is to be written, and whether its repeats will be counted.
func (l *requestLogger) count(key recordKey) (first, counted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n, ok := l.repeats[key]; ok {
		l.repeats[key] = n + 1
		return false, true
	}
	if len(l.repeats) >= maxRecordKeys {
		return true, false
	}
	if l.repeats == nil {
		l.repeats = make(map[recordKey]int)
	}
	key.host, key.subject = strings.Clone(key.host), strings.Clone(key.subject)
	l.repeats[key] = 0
	return true, true
}

// sumUp writes the number of repeats of a record, if there were any, and counts no further
// ones. It drops a panic of the handler, which the program cannot recover on this goroutine.
func (l *requestLogger) sumUp(logger *slog.Logger, key recordKey, text string, attrs []slog.Attr) {
	defer func() { _ = recover() }()
	l.mu.Lock()
	n := l.repeats[key]
	delete(l.repeats, key)
	l.mu.Unlock()
	if n == 0 {
		return
	}
	text += ", " + strconv.Itoa(n) + " more within " + explain.Duration(repeatsWithin)
	logger.LogAttrs(context.Background(), key.level, text, append(attrs[:len(attrs):len(attrs)], slog.Int("repeated", n))...)
}

func (l *requestLogger) waitDone(req *http.Request, i WaitInfo) {
	if i.Waited >= minLoggedWait {
		l.wait(req, i) // of a call without a wait, i does not escape
	}
}

func (l *requestLogger) wait(req *http.Request, i WaitInfo) {
	key := recordKey{"wait", slog.LevelInfo, hostOf(req), i.Limit}
	l.log(req.Context(), key, i.String, func() []slog.Attr {
		return append(requestAttrs(req), slog.Int("attempt", i.Attempt), slog.Duration("wait", i.Waited), slog.String("limit", i.Limit),
			slog.Int("ahead", i.Ahead), slog.Bool("granted", i.Err == nil))
	})
}

func (l *requestLogger) retry(req *http.Request, i RetryInfo) {
	key := recordKey{"retry", slog.LevelInfo, hostOf(req), strconv.Itoa(i.Status)}
	l.log(req.Context(), key, i.String, func() []slog.Attr {
		return append(requestAttrs(req), slog.Int("attempt", i.Attempt), slog.Int("status", i.Status),
			slog.Duration("delay", cmp.Or(max(i.Delay, 0), i.RetryAfter)))
	})
}

func (l *requestLogger) done(req *http.Request, i DoneInfo) {
	if i.StopReason != nil {
		l.giveUp(req, i) // of a call that succeeds, i does not escape
	}
}

func (l *requestLogger) giveUp(req *http.Request, i DoneInfo) {
	status, _ := i.last()
	key := recordKey{"give up", slog.LevelWarn, hostOf(req), strconv.Itoa(status)}
	if isCanceled(req, i.StopReason) {
		key.level = slog.LevelInfo
	}
	if i.Attempts == 0 {
		key.subject = "not sent"
	}
	l.log(req.Context(), key, i.String, func() []slog.Attr {
		return append(requestAttrs(req), slog.Int("attempts", i.Attempts), slog.Int("status", status),
			slog.Duration("queue_wait", i.QueueWait), slog.Duration("backoff_wait", i.BackoffWait))
	})
}

func (l *requestLogger) hold(h quota.HoldInfo) {
	level := slog.LevelInfo
	switch {
	case h.Held && h.Estimated && h.For < minLoggedWait: // the first test comes after a round trip
		level = slog.LevelDebug
	case h.Held:
		level = slog.LevelWarn
	}
	key := recordKey{"hold", level, h.Host, h.Limit}
	if !h.Held {
		key.kind = "release"
	}
	l.log(context.Background(), key, h.String, func() []slog.Attr {
		return []slog.Attr{slog.String("host", h.Host), slog.String("limit", h.Limit), slog.Duration("for", h.For), slog.Bool("estimated", h.Estimated)}
	})
}

func (l *requestLogger) limitLearned(i quota.LimitLearnedInfo) {
	level := slog.LevelDebug
	if i.Estimated() && i.Change != quota.Changed {
		level = slog.LevelInfo
	}
	key := recordKey{i.Change.String(), level, i.Host, i.Limit}
	l.log(context.Background(), key, i.String, func() []slog.Attr {
		return []slog.Attr{slog.String("host", i.Host), slog.String("limit", i.Limit), slog.String("change", i.Change.String()),
			slog.Int64("size", i.Size), slog.Duration("per", i.Per), slog.Float64("rate", i.Rate), slog.Bool("estimated", i.Estimated())}
	})
}

// requestAttrs returns the attributes of a record about req. A path may contain a secret, as
// those of webhooks do.
func requestAttrs(req *http.Request) []slog.Attr {
	attrs := make([]slog.Attr, 0, 8)
	attrs = append(attrs, slog.String("method", cmp.Or(req.Method, http.MethodGet)))
	if req.URL != nil {
		attrs = append(attrs, slog.String("host", req.URL.Host))
	}
	return attrs
}

// hostOf returns the host of the URL of req, "" if there is none.
func hostOf(req *http.Request) string {
	if req == nil || req.URL == nil {
		return ""
	}
	return req.URL.Host
}

// isCanceled reports whether the caller canceled req, as opposed to a deadline that passed.
func isCanceled(req *http.Request, err error) bool {
	return errors.Is(req.Context().Err(), context.Canceled) || errors.Is(err, context.Canceled)
}
