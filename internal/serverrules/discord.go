package serverrules

import (
	"fmt"
	"hash/fnv"
	"net/http"
	"strconv"
	"time"
)

// Discord has a quota for each path, which all responses name in X-RateLimit-Bucket
// (discord-api-docs, topics/rate-limits: Reset is a time with a fraction, Reset-After a
// delay with a fraction, and Retry-After is rounded up). Windows begin with the first
// request, as those of its message routes do.
func Discord(limit int64, per time.Duration) Server {
	quotas := map[string]*window{}
	return func(r Request) Reply {
		w := quotas[r.Path]
		if w == nil {
			w = &window{limit: limit, per: per}
			quotas[r.Path] = w
		}
		ok := w.take(r.At)
		left := w.left(r.At)
		h := http.Header{}
		setInt(h, "X-RateLimit-Limit", limit)
		setInt(h, "X-RateLimit-Remaining", w.remaining())
		h.Set("X-RateLimit-Reset", strconv.FormatFloat(float64(w.end.UnixMilli())/1000, 'f', 3, 64))
		h.Set("X-RateLimit-Reset-After", strconv.FormatFloat(left.Seconds(), 'f', 3, 64))
		h.Set("X-RateLimit-Bucket", bucketName(r.Path))
		if ok {
			return Reply{Header: h}
		}
		setInt(h, "Retry-After", ceilSeconds(left))
		h.Set("X-RateLimit-Scope", "user")
		return Reply{Status: http.StatusTooManyRequests, Header: h}
	}
}

func bucketName(path string) string {
	sum := fnv.New64a()
	sum.Write([]byte(path))
	return fmt.Sprintf("%016x", sum.Sum64())
}
