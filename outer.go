package heed

import (
	"net/http"
	"strconv"
	"strings"
)

// callerRetries reports whether h says that the program that made the request sends
// it again by itself, so that retries of ours would multiply with its own: by a
// X-Stainless-Retry-Count above 0 (the SDKs of OpenAI, Anthropic and others), or by
// an amz-sdk-request (the SDKs of AWS) that is not the only attempt.
func callerRetries(h http.Header) bool {
	if v := h["X-Stainless-Retry-Count"]; len(v) > 0 {
		if n, err := strconv.Atoi(v[0]); err == nil && n > 0 {
			return true
		}
	}
	v := h["Amz-Sdk-Request"]
	return len(v) > 0 && severalAttempts(v[0])
}

// severalAttempts reports whether an amz-sdk-request such as "attempt=1; max=3" has
// an attempt or a max above 1.
func severalAttempts(s string) bool {
	for field := range strings.SplitSeq(s, ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(field), "=")
		if name != "attempt" && name != "max" {
			continue
		}
		if n, err := strconv.Atoi(value); err == nil && n > 1 {
			return true
		}
	}
	return false
}
