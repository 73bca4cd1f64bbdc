package fleet

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota"
	"github.com/heed-go/heed/quota/headers"
	"github.com/heed-go/heed/throttle"
)

var secret = []byte("of the fleet")

func TestCodec_decodesWhatItEncoded(t *testing.T) {
	for kind := quota.UpdateHold; kind <= quota.UpdateJoin; kind++ {
		u := quota.Update{
			Kind: kind, Sender: 1 << 63, Account: "a", Route: 4711, Wait: time.Minute, Pause: 1500 * time.Millisecond, Stated: true,
			Limits: []throttle.RemoteLimit{
				{Name: "core", Limit: 100, Remaining: 7, Per: time.Hour, ResetAfter: 1500 * time.Microsecond},
				{Limit: 1 << 53, ResetAfter: time.Second},
			},
		}
		got, s, ok := decode(secret, "a", encode(secret, &u, stamp{3, -5}))
		require.True(t, ok)
		require.Equal(t, u, got)
		require.Equal(t, stamp{3, -5}, s)
	}
}

// Processes of different versions share, so the wire format does not change.
func TestCodec_wireFormat(t *testing.T) {
	for text, u := range map[string]quota.Update{
		`{"from":17,"seq":3,"at":1764000000000000,"route":4711,"say":"shut","wait":60000000,"told":true,"left":[{"name":"core","limit":100,"left":7,"per":3600000000,"reset":1500000}]}.8QIDVY1aEFB7HGtV`: {
			Kind: quota.UpdateHold, Sender: 17, Account: "a", Route: 4711, Wait: time.Minute, Stated: true,
			Limits: []throttle.RemoteLimit{{Name: "core", Limit: 100, Remaining: 7, Per: time.Hour, ResetAfter: 1500 * time.Millisecond}},
		},
		`{"from":17,"seq":3,"at":1764000000000000,"route":0,"say":"here"}._YZBwBnHXBkn9eKq`: {Kind: quota.UpdateJoin, Sender: 17, Account: "a"},
		`{"from":17,"seq":3,"at":1764000000000000,"route":1,"say":"shut","wait":1800000,"pause":1500000}.n6wElhwQkeIWUjZV`: {
			Kind: quota.UpdateHold, Sender: 17, Account: "a", Route: 1, Wait: 1800 * time.Millisecond, Pause: 1500 * time.Millisecond,
		},
	} {
		require.Equal(t, text, encode(secret, &u, stamp{3, 1764000000000000}))
	}
}

// Processes with versions of the package from before a member, or with later ones, understand the rest.
func TestCodec_ignoresUnknownMembers(t *testing.T) {
	body := `{"from":17,"seq":3,"at":5,"route":1,"say":"shut","wait":1000000,"later":{"left":[1]},"count":5}`
	u, s, ok := decode(secret, "a", body+"."+macOf(secret, "a", []byte(body)))
	require.True(t, ok)
	require.Equal(t, stamp{3, 5}, s)
	require.Equal(t, quota.Update{Kind: quota.UpdateHold, Sender: 17, Account: "a", Route: 1, Wait: time.Second}, u)
}

func TestCodec_rejectsWhatWasNotEncodedForTheAccount(t *testing.T) {
	u := quota.Update{Kind: quota.UpdateHold, Sender: 1, Account: "a", Route: 1, Wait: time.Hour}
	valid := encode(secret, &u, stamp{1, 1})
	_, _, ok := decode(secret, "a", valid)
	require.True(t, ok)
	_, _, ok = decode(secret, "b", valid)
	require.False(t, ok, "of another account")
	for name, text := range map[string]string{
		"another secret": encode([]byte("another"), &u, stamp{1, 1}),
		"no secret":      encode(nil, &u, stamp{1, 1}),
		"half":           valid[:len(valid)/2],
		"no MAC":         valid[:strings.LastIndexByte(valid, '.')],
		"empty MAC":      valid[:strings.LastIndexByte(valid, '.')+1],
		"changed":        strings.Replace(valid, "36", "37", 1),
		"long":           strings.Repeat("x", maxContent+1),
		"dot":            ".",
		"empty":          "",
	} {
		_, _, ok := decode(secret, "a", text)
		require.False(t, ok, name)
	}
}

func TestCodec_rejectsValuesOutOfBounds(t *testing.T) {
	for _, body := range []string{
		`{"seq":1,"say":"shut","wait":-1}`,
		`{"seq":1,"say":"shut","wait":1e18}`,
		`{"seq":1,"say":"shut","wait":9223372036854775807}`,
		`{"seq":0,"say":"shut","wait":1}`,
		`{"seq":1,"say":"left","left":[{"limit":-1,"left":0,"reset":1}]}`,
		`{"seq":1,"say":"left","left":[{"limit":1,"left":9223372036854775807,"reset":1}]}`,
		`{"seq":1,"say":"left","left":[{"limit":1,"left":1,"reset":-1}]}`,
		`{"seq":1,"say":"left","left":[{"limit":1,"left":1,"per":-1,"reset":1}]}`,
		`{"seq":1,"say":"left","left":[{},{},{},{},{},{},{},{},{}]}`,
		`{"seq":1,"say":"shut","wait":1,"pause":-1}`,
		`{"seq":1,"say":"rejected","count":5}`,
		`{"seq":1,"say":"what"}`, `{"seq":1,"say":""}`, `{"seq":1}`, `{}`, `[]`, `null`, ``,
	} {
		_, _, ok := decode(nil, "a", body+"."+macOf(nil, "a", []byte(body)))
		require.False(t, ok, body)
	}
	valid := `{"seq":1,"say":"shut","wait":1}`
	_, _, ok := decode(nil, "a", valid+"."+macOf(nil, "a", []byte(valid)))
	require.True(t, ok)
}

// The largest values of each field are accepted, and the first ones above are not.
func TestCodec_boundaries(t *testing.T) {
	const year int64 = 366 * 24 * 3600 * 1_000_000 // microseconds
	require.EqualValues(t, year, inMicros(headers.MaxDelay))
	limits := func(n int) string { return strings.TrimSuffix(strings.Repeat("{},", n), ",") }
	padded := func(n int) string { // a message of n bytes
		body := `{"seq":1,"say":"here"`
		return body + strings.Repeat(" ", n-len(body)-len("}.0123456789abcdef")) + "}"
	}
	for _, tt := range []struct {
		body string
		ok   bool
	}{
		{padded(4096), true},
		{padded(4097), false},
		{fmt.Sprintf(`{"seq":1,"say":"shut","wait":%d}`, year), true},
		{fmt.Sprintf(`{"seq":1,"say":"shut","wait":%d}`, year+1), false},
		{`{"seq":1,"say":"shut","wait":0}`, true},
		{`{"seq":1,"say":"shut","wait":-1}`, false},
		{`{"seq":1,"say":"left","left":[` + limits(8) + `]}`, true},
		{`{"seq":1,"say":"left","left":[` + limits(9) + `]}`, false},
		{fmt.Sprintf(`{"seq":1,"say":"shut","pause":%d}`, year), true},
		{fmt.Sprintf(`{"seq":1,"say":"shut","pause":%d}`, year+1), false},
		{`{"seq":1,"say":"shut","other":[{"a":"b"}]}`, true},
		{`{"seq":1,"say":"left","left":[{"limit":9007199254740992,"left":9007199254740992}]}`, true},
		{`{"seq":1,"say":"left","left":[{"limit":9007199254740993}]}`, false},
		{`{"seq":1,"say":"left","left":[{"left":9007199254740993}]}`, false},
		{`{"seq":1,"say":"left","left":[{"left":-1}]}`, false},
		{fmt.Sprintf(`{"seq":1,"say":"left","left":[{"per":%d,"reset":%d}]}`, year, year), true},
		{fmt.Sprintf(`{"seq":1,"say":"left","left":[{"per":%d}]}`, year+1), false},
		{fmt.Sprintf(`{"seq":1,"say":"left","left":[{"reset":%d}]}`, year+1), false},
		{`{"seq":18446744073709551615,"say":"shut"}`, true},
	} {
		_, _, ok := decode(nil, "a", tt.body+"."+macOf(nil, "a", []byte(tt.body)))
		require.Equal(t, tt.ok, ok, tt.body)
	}
}

// FuzzCodec_decode is a process that knows the secret and has errors.
func FuzzCodec_decode(f *testing.F) {
	for _, seed := range []string{
		`{"from":1,"seq":1,"at":1700000000000000,"route":1,"say":"shut","wait":60000000,"told":true}`,
		`{"from":1,"seq":1,"at":1700000000000000,"route":1,"say":"open","wait":31622400000000}`,
		`{"from":1,"seq":1,"at":1700000000000000,"route":1,"say":"probe"}`, `{"from":1,"seq":1,"at":-9223372036854775808,"say":"here"}`,
		`{"from":1,"seq":1,"at":1700000000000000,"route":1,"say":"left","left":[{"name":"a","limit":9007199254740992,"left":1,"per":1,"reset":31622400000000}]}`,
		`{"from":1,"seq":1,"at":0,"route":1,"say":"shut","wait":1,"pause":31622400000000}`, `{`, ``,
	} {
		f.Add(seed, int64(0), true)
		f.Add(seed, int64(1)<<62, false)
	}
	f.Fuzz(func(t *testing.T, body string, age int64, sign bool) {
		if body == "" && !sign {
			return // the end of a fetch
		}
		text := body
		if sign {
			text += "." + macOf(secret, "a", []byte(body))
		}
		u, s, ok := decode(secret, "a", text)
		if ok {
			require.True(t, sign || strings.HasSuffix(text, macOf(secret, "a", []byte(text[:strings.LastIndexByte(text, '.')]))))
			require.GreaterOrEqual(t, u.Wait, time.Duration(0))
			require.GreaterOrEqual(t, u.Pause, time.Duration(0))
			require.LessOrEqual(t, len(u.Limits), maxLimits)
			again, stamp, ok := decode(secret, "a", encode(secret, &u, s))
			if len(encode(secret, &u, s)) <= maxContent { // JSON escapes can be longer than what was read
				require.True(t, ok && stamp == s)
				require.Equal(t, u, again)
			}
		}
		e := &Exchange{Bus: new(LocalBus), Secret: secret}
		received := 0
		e.Subscribe(t.Context(), func(u quota.Update) {
			received++
			require.GreaterOrEqual(t, u.Age, time.Duration(0))
		})
		for range 3 {
			e.subscriptions[0].deliver(Message{Account: "a", Quota: "b", Content: text, Age: time.Duration(age)})
		}
		require.LessOrEqual(t, received, 1)
	})
}

func TestCodec_neverFailsToMarshal(t *testing.T) {
	_, err := json.Marshal(content{Limits: []limit{{Name: "\xff\u2028"}}})
	require.NoError(t, err)
}
