package quota

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"

	"github.com/heed-go/heed/throttle"
)

// News is what a process has learned of one quota, in the words that go from one
// to another: JSON, so that an operator can read it, and a code over it that only
// who knows the secret can make.
//
//	{"from":17,"seq":3,"at":1764000000000000,"route":4711,"say":"shut","wait":60000000,"told":true,"left":[…]}.Kx2f…
//
// All other times are spans in microseconds as of when it was posted.
type news struct {
	From  uint64  `json:"from"`            // which process
	Seq   uint64  `json:"seq"`             // number of the message among those of the process, from 1 on
	At    int64   `json:"at"`              // when it was posted, in microseconds since the Unix epoch by the clock of the process
	Route uint64  `json:"route"`           // whose quota it is, see stableRoute
	Say   string  `json:"say"`             // one of the four below
	Wait  micros  `json:"wait,omitempty"`  // shut: for how long; open: since the probe was sent
	Told  bool    `json:"told,omitempty"`  // shut: the server stated that to stop
	Left  []stock `json:"left,omitempty"`  // limits of the quota
	Count int     `json:"count,omitempty"` // rejected: how many requests
}

const (
	sayShut  = "shut"  // the server said stop
	sayProbe = "probe" // the first request since then is on its way
	sayOpen  = "open"  // it was answered well
	sayLeft  = "left"  // only Left is new
	sayHere  = "here"  // this process begins to ask

	sayRejected = "rejected" // requests were rejected without a statement: evidence for all
)

// A stock is one limit of the server.
type stock struct {
	Name  string `json:"name,omitempty"`
	Limit int64  `json:"limit"`
	Left  int64  `json:"left"`
	Per   micros `json:"per,omitempty"`
	Reset micros `json:"reset"` // until units come back
}

type micros int64

func inMicros(d time.Duration) micros        { return micros(d / time.Microsecond) }
func (m micros) duration() time.Duration     { return time.Duration(m) * time.Microsecond }
func (m micros) plausible() bool             { return m >= 0 && m <= micros(maxDelay/time.Microsecond) }
func (m micros) less(d time.Duration) micros { return max(m-inMicros(d), 0) }

const (
	maxNews   = 4096 // bytes; eight limits with long names are less than half of it
	maxUnits  = 1 << 53
	codeBytes = 12

	maxRejected = 100 // in one message
)

// encode writes n for an account.
func (n *news) encode(secret []byte, account string) string {
	text, err := json.Marshal(n)
	if err != nil {
		return "" // cannot be: there are only numbers and text in it
	}
	return string(text) + "." + newsCode(secret, account, text)
}

// decodeNews reads what encode wrote for the same account with the same secret.
func decodeNews(secret []byte, account, text string) (n news, ok bool) {
	at := strings.LastIndexByte(text, '.')
	if at < 0 || len(text) > maxNews {
		return news{}, false
	}
	body := []byte(text[:at])
	if !hmac.Equal([]byte(text[at+1:]), []byte(newsCode(secret, account, body))) {
		return news{}, false
	}
	if json.Unmarshal(body, &n) != nil || !n.plausible() {
		return news{}, false
	}
	return n, true
}

func newsCode(secret []byte, account string, text []byte) string {
	h := hmac.New(sha256.New, secret)
	h.Write([]byte("heed news\x00" + account + "\x00"))
	h.Write(text)
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:codeBytes])
}

// plausible reports whether no number of n is out of bounds. Who sent it may be
// broken even if it knows the secret.
func (n *news) plausible() bool {
	if !n.Wait.plausible() || len(n.Left) > maxTold || n.Count < 0 || n.Count > maxRejected {
		return false
	}
	for _, s := range n.Left {
		if !s.Per.plausible() || !s.Reset.plausible() || s.Limit < 0 || s.Limit > maxUnits || s.Left < 0 || s.Left > maxUnits {
			return false
		}
	}
	return n.Say == sayHere || n.Say == sayRejected || n.Say == sayShut || n.Say == sayProbe || n.Say == sayOpen || n.Say == sayLeft
}

// aged returns n as of age later. What is over by then is left out.
func (n news) aged(age time.Duration) news {
	if age <= 0 {
		return n
	}
	left := n.Left
	n.Left = nil
	for _, s := range left {
		if s.Reset = s.Reset.less(age); s.Reset > 0 {
			n.Left = append(n.Left, s)
		}
	}
	if n.Say == sayOpen {
		n.Wait += inMicros(min(age, maxDelay))
	} else {
		n.Wait = n.Wait.less(age)
	}
	return n
}

// keep returns for how long n is of use to those who come later. What was shut has
// to be replaced by the news that it is open, so these are kept for a moment, too.
func (n *news) keep() time.Duration {
	var d time.Duration
	switch n.Say {
	case sayProbe, sayRejected:
		return 0
	case sayShut:
		d = n.Wait.duration()
	case sayOpen:
		d = time.Second
	}
	for _, s := range n.Left {
		d = max(d, s.Reset.duration())
	}
	return d
}

// windows returns the limits in the words of package throttle.
func (n *news) windows() (all []throttle.RemoteLimit) {
	for _, s := range n.Left {
		all = append(all, throttle.RemoteLimit{Name: s.Name, Limit: s.Limit, Remaining: s.Left, Per: s.Per.duration(), ResetAfter: max(s.Reset.duration(), 1)})
	}
	return all
}
