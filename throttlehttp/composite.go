package throttlehttp

import (
	"net/http"
	"strconv"
)

// Composite names a client by all functions together: what one user does at one path from
// one address, for instance. Who is unidentified to one of them is unidentified. It
// panics if there are no functions.
//
//	Composite(User, IP{}.Key)  ─▶  join:16:context.user:ann12:ip:192.0.2.7
//	                                  |<---- 16 ---->|   |<-- 12 -->|
//
// Two requests have the same key only if all parts are the same: each part stands after
// its length, so that nothing a client sends can move the end of one. With a separator
// instead "a|b" and "c" would be "a" and "b|c". See TestComposite_neverCollides.
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
