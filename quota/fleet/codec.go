package fleet

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/heed-go/heed/quota"
	"github.com/heed-go/heed/quota/headers"
	"github.com/heed-go/heed/throttle"
)

// A stamp is what makes a message different from all others of its sender. The wire format is
// described in the documentation of the package.
type stamp struct {
	Sequence uint64 `json:"seq"`
	At       int64  `json:"at"` // microseconds since the Unix epoch
}

// A content is the JSON object of a message.
type content struct {
	From uint64 `json:"from"`
	stamp
	Route  uint64  `json:"route"`
	Say    string  `json:"say"`
	Wait   micros  `json:"wait,omitempty"`
	Pause  micros  `json:"pause,omitempty"`
	Stated bool    `json:"told,omitempty"`
	Limits []limit `json:"left,omitempty"`
}

type limit struct {
	Name      string `json:"name,omitempty"`
	Limit     int64  `json:"limit"`
	Remaining int64  `json:"left"`
	Per       micros `json:"per,omitempty"`
	Reset     micros `json:"reset"`
}

// kinds are the words for each quota.UpdateKind. UpdateFetched is not sent.
var kinds = []string{
	quota.UpdateHold: "shut", quota.UpdateProbe: "probe", quota.UpdateRelease: "open",
	quota.UpdateLimits: "left", quota.UpdateJoin: "here",
}

const (
	maxContent = 4096 // bytes; eight limits with long names are less than half of it
	maxLimits  = 8
	maxUnits   = 1 << 53
	macBytes   = 12
)

type micros int64

func inMicros(d time.Duration) micros    { return micros(d / time.Microsecond) }
func (m micros) duration() time.Duration { return time.Duration(m) * time.Microsecond }
func (m micros) plausible() bool         { return m >= 0 && m <= micros(headers.MaxDelay/time.Microsecond) }

// encode returns the content of a message.
func encode(secret []byte, u *quota.Update, s stamp) string {
	c := content{From: u.Sender, stamp: s, Route: u.Route, Say: kinds[u.Kind], Wait: inMicros(u.Wait), Pause: inMicros(u.Pause), Stated: u.Stated}
	for _, l := range u.Limits {
		c.Limits = append(c.Limits, limit{l.Name, l.Limit, l.Remaining, inMicros(l.Per), inMicros(l.ResetAfter)})
	}
	text, err := json.Marshal(c)
	if err != nil {
		return "" // cannot happen: there are only numbers and text in it
	}
	return string(text) + "." + macOf(secret, u.Account, text)
}

// decode returns the update and stamp in the content of a message. It reports false if the content
// was not encoded for the same account with the same secret, or has values out of bounds.
func decode(secret []byte, account, text string) (u quota.Update, s stamp, ok bool) {
	dot := strings.LastIndexByte(text, '.')
	if dot < 0 || len(text) > maxContent {
		return u, s, false
	}
	body := []byte(text[:dot])
	if !hmac.Equal([]byte(text[dot+1:]), []byte(macOf(secret, account, body))) {
		return u, s, false
	}
	var c content
	if json.Unmarshal(body, &c) != nil || !c.plausible() {
		return u, s, false
	}
	u = quota.Update{
		Kind: quota.UpdateKind(slices.Index(kinds, c.Say)), Sender: c.From, Account: account, Route: c.Route,
		Wait: c.Wait.duration(), Pause: c.Pause.duration(), Stated: c.Stated,
	}
	for _, l := range c.Limits {
		u.Limits = append(u.Limits, throttle.RemoteLimit{Name: l.Name, Limit: l.Limit, Remaining: l.Remaining, Per: l.Per.duration(), ResetAfter: l.Reset.duration()})
	}
	return u, c.stamp, true
}

// plausible reports whether all values of c are within bounds: a process that knows the secret may
// have errors.
func (c *content) plausible() bool {
	if c.Sequence == 0 || slices.Index(kinds, c.Say) <= 0 || !c.Wait.plausible() || !c.Pause.plausible() || len(c.Limits) > maxLimits {
		return false
	}
	for _, l := range c.Limits {
		if !l.Per.plausible() || !l.Reset.plausible() || l.Limit < 0 || l.Limit > maxUnits || l.Remaining < 0 || l.Remaining > maxUnits {
			return false
		}
	}
	return true
}

// macOf returns the encoded MAC of a message about account.
func macOf(secret []byte, account string, body []byte) string {
	h := hmac.New(sha256.New, secret)
	h.Write([]byte("heed news\x00" + account + "\x00"))
	h.Write(body)
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:macBytes])
}
