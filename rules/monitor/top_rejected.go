package monitor

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"hash/maphash"
	"strconv"

	"github.com/heed-go/heed/sketch"
)

// A pseudonymKey derives names of keys that reveal nothing about the keys.
type pseudonymKey [32]byte

func newPseudonymKey() (k pseudonymKey) {
	rand.Read(k[:])
	return k
}

// pseudonym returns 64 bits of a keyed hash. Without a secret key the hash of an address could be
// inverted by trying all addresses.
func (k pseudonymKey) pseudonym(key string) string {
	h := hmac.New(sha256.New, k[:])
	h.Write([]byte(key))
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// maxKeyLen is the maximum length of a stored key in bytes. Clients choose keys and may send very
// long ones.
const maxKeyLen = 256

// truncateKey returns key, or its beginning and a hash if it is longer than maxKeyLen.
func (t *Stats) truncateKey(key string) string {
	if len(key) <= maxKeyLen {
		return key
	}
	h := strconv.FormatUint(maphash.String(t.seed, key), 16)
	return key[:maxKeyLen-len(h)-1] + "~" + h
}

// Pseudonym returns the name under which TopRejected shows key. Each Stats uses different names,
// also after a restart.
func (t *Stats) Pseudonym(key string) string {
	t.once.Do(t.setup)
	return t.pseudonyms.pseudonym(t.truncateKey(key))
}

// TopRejected returns the k keys that were rejected most often, or would have been without shadow
// mode, in descending order. Keys are replaced by names that reveal nothing about them; use
// Pseudonym to look for a known key. See sketch.TopK for the accuracy of the counts.
func (t *Stats) TopRejected(k int) []sketch.Item {
	all := t.TopRejectedCleartext(k)
	for i := range all {
		all[i].Key = t.pseudonyms.pseudonym(all[i].Key)
	}
	return all
}

// TopRejectedCleartext returns the same list as TopRejected, with the keys as clients sent them.
// Keys longer than 256 bytes are shortened. Do not publish the result: keys may be addresses or
// credentials.
func (t *Stats) TopRejectedCleartext(k int) []sketch.Item {
	t.once.Do(t.setup)
	return t.top.Load().First(k)
}
