package throttlehttp

import (
	"net/http"
	"strconv"
)

// Composite returns a KeyFunc that combines the keys of all functions, for instance user,
// path and address. If one of them finds no key, there is none. Composite panics if there are
// no functions.
//
//	Composite(User, IP{}.Key)  ─▶  join:16:context.user:ann12:ip:192.0.2.7
//	                                  |<---- 16 ---->|   |<-- 12 -->|
//
// Two requests have the same key only if all parts are equal: each part is preceded by its
// length, so that a client cannot shift the boundary between two parts. With a separator,
// "a|b" and "c" would be the same as "a" and "b|c". See TestComposite_neverCollides.
func Composite(of ...KeyFunc) KeyFunc {
	requireFuncs("Composite", of)
	return func(r *http.Request) (string, bool) {
		var buf [256]byte
		joined := append(buf[:0], "join:"...)
		for _, keyFunc := range of {
			part, ok := keyFunc(r)
			if !ok {
				return "", false
			}
			joined = strconv.AppendInt(joined, int64(len(part)), 10)
			joined = append(joined, ':')
			joined = append(joined, part...)
		}
		return boundedKey("join", string(joined)), true
	}
}
