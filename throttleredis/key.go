package throttleredis

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
)

// maxTag is the length up to which a key is its own tag.
const maxTag = 64

// hashTag returns what stands between the braces of all Redis keys of a claim, so that they
// are in one slot of a cluster. It is the key itself where people can read that; other
// keys, and those that begin with the sign of such, are a hash of 256 bits after a "~".
//
// The empty key is "~" alone: empty braces would not count.
func hashTag(key string) string {
	if key == "" {
		return "~"
	}
	if len(key) <= maxTag && key[0] != '~' && strings.IndexFunc(key, unreadable) < 0 {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return "~" + base64.RawURLEncoding.EncodeToString(sum[:])
}

func unreadable(r rune) bool { return r <= ' ' || r == '{' || r == '}' || r == 0x7f }

// limitID returns a short name of a limit, which no other one has. A limit that was changed has
// another name, because the state of the old one means nothing for it; so has a limit whose
// state is stored in a new format.
func limitID(l limit) string {
	algorithm := l.algorithm
	if f := algorithms[algorithm].format; f > 0 {
		algorithm += "/" + strconv.Itoa(f)
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %v", algorithm, l.policy, l.scope, l.args))
	return base64.RawURLEncoding.EncodeToString(sum[:8])
}
