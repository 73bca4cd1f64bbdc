package memhttp

import (
	"io"
	"net/http"
	"slices"
)

// Capabilities returns names of the optional interfaces that w implements, in alphabetical
// order. Tests compare those of a ResponseWriter of a server with those of one that wraps it.
func Capabilities(w http.ResponseWriter) (can []string) {
	for name, ok := range map[string]bool{
		"flush":  implements[http.Flusher](w) && implements[interface{ FlushError() error }](w),
		"hijack": implements[http.Hijacker](w),
		"notify": implements[http.CloseNotifier](w), //nolint:staticcheck // deprecated, and still used by frameworks
		"read":   implements[io.ReaderFrom](w),
		"push":   implements[http.Pusher](w),
		"string": implements[io.StringWriter](w),
	} {
		if ok {
			can = append(can, name)
		}
	}
	slices.Sort(can)
	return can
}

func implements[T any](v any) bool {
	_, ok := v.(T)
	return ok
}
