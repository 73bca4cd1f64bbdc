package throttleredis

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
)

// maxTag is the maximum length of a key that is used as its own hash tag.
const maxTag = 64

// hashTag returns the text between the braces of all Redis keys of a claim, which places
// them in one slot of a cluster. It is the key itself if the key is short and readable.
// Other keys, and keys that begin with "~", are represented by "~" and a hash of 256 bits.
//
// The tag of the empty key is "~", because Redis ignores empty braces.
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

// limitID returns a short, unique id of a limit. A limit with a name is identified by its shape: it
// keeps its id, and so what is counted, if its numbers change, as far as the stored state still
// applies to it. One without a name is identified by its numbers. The id is another one if the state
// is stored in a new format.
func limitID(l *limit, shape any) string {
	algorithm := l.algorithm
	if f := algorithms[algorithm].format; f > 0 {
		algorithm += "/" + strconv.Itoa(f)
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %v", algorithm, l.policy, l.scope, shape))
	return base64.RawURLEncoding.EncodeToString(sum[:8])
}

// numbers returns the arguments of l as a text in which whole ones have no exponent.
func (l *limit) numbers() string { return fmt.Sprintf("%.17g", l.args) }
