package heed

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/heed-go/heed/quota"
)

// minLoggedWait is the shortest wait that LogTrace logs if the request was then granted.
const minLoggedWait = time.Second

// LogTrace returns a Trace that logs what delays or ends requests:
//
//	wait of at least 1 s    info       waited 1.2 s for quota api.example.com (retry-after), 3 ahead
//	retry                   info       attempt 1 failed with status 503: retry in 1.2 s
//	request that fails      warning    gave up after 4 attempts, the last with status 503: ...
//	hold of a quota         warning    quota api.example.com (retry-after) is held for 30 s
//	short estimated hold    debug      quota api.example.com (learned rate) is held for 20 ms
//	end of a hold           info       quota api.example.com (retry-after) is not held any more
//	limit that is learned   info       quota api.example.com (learned rate): learned limit of 20 per second
//	limit that is stated    debug      quota api.example.com: stated limit of 100 per 1 min
//	limit that changes      debug      quota api.example.com (learned rate): changed learned limit of 21 per second
//
// The names in parentheses are those of docs/server-limits.md: retry-after, learned rate, overload
// and slow start; without one, the server stated what is left. A hold is short if its end, or its
// next test, is less than a second away, and estimated if the server did not state its end. A
// learned limit that is dropped is logged as info, too. A request that its caller canceled is
// logged as info. The records have the context of the request, and attributes for the method, the host and the numbers of the sentence. They never
// contain the path and the query of a URL, header fields, bodies, or the keys of limits, and
// errors in them have no user, query and fragment of URLs. A nil logger means slog.Default,
// at the time of each record.
func LogTrace(logger *slog.Logger) *Trace {
	l := requestLogger{logger}
	return &Trace{WaitDone: l.waitDone, Retry: l.retry, GiveUp: l.giveUp, Hold: l.hold, LimitLearned: l.limitLearned}
}

// A requestLogger writes the records of LogTrace.
type requestLogger struct{ to *slog.Logger }

func (l requestLogger) logger() *slog.Logger {
	if l.to == nil {
		return slog.Default()
	}
	return l.to
}

func (l requestLogger) log(ctx context.Context, level slog.Level, sentence func() string, attrs func() []slog.Attr) {
	if logger := l.logger(); logger.Enabled(ctx, level) {
		logger.LogAttrs(ctx, level, sentence(), attrs()...)
	}
}

func (l requestLogger) waitDone(req *http.Request, i WaitDoneInfo) {
	if i.Waited >= minLoggedWait {
		l.wait(req, i) // of a call without a wait, i does not escape
	}
}

func (l requestLogger) wait(req *http.Request, i WaitDoneInfo) {
	l.log(req.Context(), slog.LevelInfo, i.String, func() []slog.Attr {
		return append(requestAttrs(req), slog.Int("attempt", i.Attempt), slog.Duration("wait", i.Waited), slog.String("limit", i.Limit),
			slog.Int("ahead", i.Start.Ahead), slog.Bool("granted", i.Err == nil))
	})
}

func (l requestLogger) retry(req *http.Request, i RetryInfo) {
	l.log(req.Context(), slog.LevelInfo, i.String, func() []slog.Attr {
		return append(requestAttrs(req), slog.Int("attempt", i.Attempt), slog.Int("status", i.Status), slog.Duration("delay", i.Delay))
	})
}

func (l requestLogger) giveUp(req *http.Request, i GiveUpInfo) {
	level := slog.LevelWarn
	if isCanceled(req, i.Reason) {
		level = slog.LevelInfo
	}
	l.log(req.Context(), level, i.String, func() []slog.Attr {
		return append(requestAttrs(req), slog.Int("attempts", i.Attempts), slog.Int("status", i.Status),
			slog.Duration("queue_wait", i.QueueWait), slog.Duration("backoff_wait", i.BackoffWait))
	})
}

func (l requestLogger) hold(h HoldInfo) {
	level := slog.LevelInfo
	switch {
	case h.Held && h.Estimated && h.For < minLoggedWait: // the first test comes after a round trip
		level = slog.LevelDebug
	case h.Held:
		level = slog.LevelWarn
	}
	l.log(context.Background(), level, h.String, func() []slog.Attr {
		return []slog.Attr{slog.String("host", h.Host), slog.String("limit", h.Limit), slog.Duration("for", h.For), slog.Bool("estimated", h.Estimated)}
	})
}

func (l requestLogger) limitLearned(i LimitLearnedInfo) {
	level := slog.LevelDebug
	if i.Estimated() && i.Change != quota.Changed {
		level = slog.LevelInfo
	}
	l.log(context.Background(), level, i.String, func() []slog.Attr {
		return []slog.Attr{slog.String("host", i.Host), slog.String("limit", i.Limit), slog.String("change", i.Change.String()),
			slog.Int64("size", i.Size), slog.Duration("per", i.Per), slog.Float64("rate", i.Rate), slog.Bool("estimated", i.Estimated())}
	})
}

// requestAttrs returns the attributes of a record about req. A path may contain a secret, as
// those of webhooks do.
func requestAttrs(req *http.Request) []slog.Attr {
	method := req.Method
	if method == "" {
		method = http.MethodGet
	}
	attrs := make([]slog.Attr, 0, 8)
	attrs = append(attrs, slog.String("method", method))
	if req.URL != nil {
		attrs = append(attrs, slog.String("host", req.URL.Host))
	}
	return attrs
}

// isCanceled reports whether the caller canceled req, as opposed to a deadline that passed.
func isCanceled(req *http.Request, err error) bool {
	return errors.Is(req.Context().Err(), context.Canceled) || errors.Is(err, context.Canceled)
}
