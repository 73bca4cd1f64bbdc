package hold

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// start is when the first rejection of a test arrives. Claims up to sentBefore have been sent by then.
var start = time.Unix(1000, 0)

const sentBefore = 10

// respond applies responses that arrive at start, with rejections whose share is share. It returns the
// number of the latest claim:
//
//	x  rejection     o  of a claim sent before the first one    c  crowded    r  repeated
//	.  acceptance    ,  of a claim sent before the first one
func (h *Hold) respond(responses string, share float64) (sent uint64) {
	sent = max(sentBefore, h.Highest)
	for _, c := range responses {
		n := uint64(sentBefore / 2)
		if !strings.ContainsRune("o,", c) {
			if h.Suspected || c == '.' {
				sent++
			}
			n = sent
		}
		if strings.ContainsRune(".,", c) {
			h.Accepted(n, start)
			continue
		}
		h.Add(Rejection{Claim: n, Sent: sent, Crowded: c == 'c', Repeated: c == 'r', Share: share}, start)
	}
	return sent
}

// Others wait when requests that were sent after the first rejection are rejected, too.
func TestHold_laterRejectionsBeginIt(t *testing.T) {
	for responses, want := range map[string]string{
		"":         "none",
		"x":        "suspected",
		"xxxx":     "suspected",
		"xxxxx":    "held",
		"ooooooo":  "suspected", // all were sent before the first one arrived
		"xccccccc": "suspected", // more were in flight than when others were accepted
		"xrrrrrrr": "suspected", // the same request each time
		"xccc":     "suspected",
		"xcccx":    "held", // one was not crowded
		"xcccr":    "held",
		"xrrrr":    "suspected",
		"xrrrrx":   "suspected", // only one had not been rejected before
		"xrrrrxx":  "held",
		"xrrrrcc":  "held",
		"xcxr":     "suspected", // three
		"cxxxx":    "held",
		"rxxxx":    "held",
		".":        "none",
		"xxxx.":    "none",
		"xxxx,":    "suspected", // it was sent before
		"xxxx.xxx": "suspected", // the number begins again
		"xxxx,x":   "held",
		"xxxxx,":   "held",
		"xxxxx.":   "none",
	} {
		var h Hold
		h.respond(responses, .1)
		got := map[bool]string{false: "none", true: "suspected"}[h.Suspected]
		if h.Held {
			got = "held"
		}
		require.Equal(t, want, got, responses)
		_, waits := h.Waits(start)
		require.Equal(t, h.Held, waits, responses)
	}
	h := Hold{}
	h.respond("xxxxx", .1)
	require.False(t, h.Add(Rejection{Claim: 99, Sent: 99}, start), "it has begun before")
	h.Add(Rejection{Claim: 5, Sent: 99}, start)
	h.Accepted(98, start)
	require.True(t, h.Held, "a later request was rejected")
	h.Accepted(99, start)
	require.True(t, h.Held, "it is the one that was rejected")
	h.Accepted(100, start)
	require.False(t, h.Held)
}

// The acceptance of a request that was in flight when the first rejection arrived does not end a hold: the server may have
// received it earlier than the one that it rejected.
func TestHold_whatWasInFlightDoesNotEndIt(t *testing.T) {
	h := Hold{right: trusted}
	require.True(t, h.Add(Rejection{Claim: 336, Sent: 340}, start))
	for n := uint64(330); n <= 340; n++ {
		ended, _ := h.Accepted(n, start)
		require.False(t, ended, "%d", n)
	}
	ended, right := h.Accepted(341, start)
	require.Equal(t, []bool{true, false}, []bool{ended, right})
}

// toBegin returns how many rejections of later requests begin the next hold; -1: more than 10,000. It
// works on a copy.
func (h Hold) toBegin(share float64, first Rejection) int {
	first.Claim, first.Sent, first.Share = 1000, 1000, share
	if h.Add(first, start) {
		return 0
	}
	for n := 1; n < 20000; n++ {
		claim := uint64(1000 + n)
		if h.Add(Rejection{Claim: claim, Sent: claim, Share: share}, start) {
			return n
		}
	}
	return -1
}

// The more of the earlier responses were rejections, the more begin a hold: random ones seldom do.
func TestHold_shareDecidesHowManyBeginIt(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for share, want := range map[float64]int{0: 4, .01: 4, .3: 4, .35: 5, .5: 7, .8: 21, .95: 90, 1: 90} {
		require.Equal(t, want, Hold{}.toBegin(share, Rejection{}), "%v", share)
		begun, suspicions := 0, 4000
		for range suspicions {
			var h Hold
			h.respond("x", share)
			for h.Suspected && !h.Held {
				h.respond(map[bool]string{false: ".", true: "x"}[random.Float64() < min(share, .95)], share)
			}
			if h.Held {
				begun++
			}
		}
		require.LessOrEqual(t, begun, suspicions/50, "%v", share)
	}
}

// A wrong hold, none of whose tests was rejected, doubles the number of rejections that begin the next one, and
// a right one halves it. After two right ones in a row the first rejection does.
func TestHold_trustAndDoubt(t *testing.T) {
	for history, want := range map[string]int{
		"": 4, "w": 8, "ww": 16, "www": 32, "wwwwwwwww": 2048, "wwwwwwwwwwwwww": 16384, "r": 4, "wr": 4, "wwr": 8, "wwwr": 16, "rw": 8, "rwr": 4,
		"rr": 0, "wwrr": 0, "rrr": 0, "rrw": 8, "rrrrw": 8, "rrwr": 4, "rrwrr": 0,
		"t": 8, "ttt": 32, "wt": 16, "wwt": 32, "rt": 8, "rtr": 4, "rrt": 8, // t: a test was rejected, which may be chance: wrong, too
	} {
		var h Hold
		for _, c := range history {
			for !h.Held {
				h.respond("x", .5)
			}
			h.Rejected = map[rune]int{'w': 0, 't': 3, 'r': 4}[c]
			ended, right := h.Accepted(h.Highest+1, start)
			require.True(t, ended)
			require.Equal(t, c == 'r', right, history)
		}
		require.Equal(t, want, h.toBegin(.1, Rejection{}), history)
		require.Equal(t, want == 0, h.Trusted(), history)
		require.Equal(t, want, h.toBegin(.1, Rejection{Crowded: true}), history)
		require.Equal(t, want, h.toBegin(.1, Rejection{Repeated: true}), history)
		if strings.HasSuffix(history, "r") {
			want = 0
		}
		require.Equal(t, want, h.toBegin(.1, Rejection{Released: true}), history)
	}
}

// A hold was right if it lasted until its stated end, or if random rejections would hardly have rejected
// all of its tests.
func TestHold_wasRight(t *testing.T) {
	const s = time.Second
	for name, tt := range map[string]struct {
		share         float64
		rejected      int           // tests
		stated, after time.Duration // 0: not stated
		right         bool
	}{
		"the first test":                {.1, 0, 0, s, false},
		"the second":                    {.05, 1, 0, s, true},
		"the second, many rejections":   {.2, 1, 0, s, false},
		"the third":                     {.2, 2, 0, s, true},
		"the fourth":                    {.5, 3, 0, s, false},
		"the fifth":                     {.5, 4, 0, s, true},
		"before its stated end":         {.1, 0, 3 * s, 3*s - 1, false},
		"at its stated end":             {.1, 0, 3 * s, 3 * s, true},
		"before it, after another test": {.05, 1, 3 * s, 2 * s, true},
	} {
		var h Hold
		h.Add(Rejection{Claim: 1, Sent: 1, After: tt.stated, Share: tt.share}, start)
		for n := uint64(2); !h.Held; n++ {
			h.Add(Rejection{Claim: n, Sent: n}, start)
		}
		h.Rejected = tt.rejected
		ended, right := h.Accepted(h.Highest, start.Add(tt.after))
		require.Equal(t, []bool{false, false}, []bool{ended, right}, "%s: it was not sent later", name)
		ended, right = h.Accepted(h.Highest+1, start.Add(tt.after))
		require.Equal(t, []bool{true, tt.right}, []bool{ended, right}, name)
		ended, _ = h.Accepted(h.Highest+2, start.Add(tt.after))
		require.False(t, ended, "%s: it is over", name)
	}
}

// Stated ends are rounded up, so a hold that a test ends within a second before may have been right. That changes neither trust nor
// doubt, unless a second is all of the hold, or most of the requests in flight were accepted.
func TestHold_endsWithinTheRounding(t *testing.T) {
	const s = time.Second
	for name, tt := range map[string]struct {
		stated, after time.Duration
		against       int
		right, doubt  uint8
		explains      bool
	}{
		"a second before":           {7 * s, 6 * s, 0, 0, 3, false},
		"within it":                 {7 * s, 6*s + 1, 0, 2, 2, true},
		"of a hold of two seconds":  {2 * s, s + 1, 0, 2, 2, true},
		"of a shorter one":          {2*s - 2, s - 1, 0, 0, 3, false},
		"others were accepted":      {7 * s, 6*s + 1, 4, 0, 3, false},
		"few others were accepted":  {7 * s, 6*s + 1, 3, 2, 2, true},
		"it was over":               {7 * s, 7 * s, 0, 2, 1, true},
		"its end is not stated":     {0, s, 0, 0, 3, false},
		"it is not stated, 7 s ago": {0, 7 * s, 0, 0, 3, false},
	} {
		h := Hold{right: trusted, doubt: 2}
		require.True(t, h.Add(Rejection{Claim: 1, Sent: 10, After: tt.stated}, start), name)
		for n := range tt.against {
			h.Accepted(uint64(2+n), start)
		}
		ended, right := h.Accepted(11, start.Add(tt.after))
		require.Equal(t, []bool{true, tt.explains}, []bool{ended, right}, name)
		require.Equal(t, []uint8{tt.right, tt.doubt}, []uint8{h.right, h.doubt}, name)
	}
	h := Hold{doubt: 2}
	for n := uint64(1); !h.Held; n++ {
		h.Add(Rejection{Claim: n, Sent: n, After: 7 * s}, start)
	}
	_, right := h.Accepted(h.Highest+1, start.Add(6*s+1))
	require.False(t, right, "no earlier one was right")
	require.Equal(t, []uint8{0, 2}, []uint8{h.right, h.doubt})
}

// A hold that lasts until its stated end was wrong if most of the requests that were sent between the first rejected one and its response were
// accepted, in this hold and those before. So trust ends where one of many backends rejects, although no test can come back in a wait
// that is shorter than a round trip.
func TestHold_wasWrongAlthoughItLasted(t *testing.T) {
	for name, tt := range map[string]struct {
		before []string // of earlier holds: responses to what was sent before the first rejection arrived
		now    string
		right  bool
	}{
		"nothing was sent":                 {nil, "", true},
		"three accepted":                   {nil, "...", true},
		"four accepted":                    {nil, "....", false},
		"four accepted, one rejected":      {nil, ".x...", true},
		"one rejected, four accepted":      {nil, "x....", false},
		"five accepted, one rejected":      {nil, ".....x", false},
		"repeated rejections do not count": {nil, "....rrrr", false},
		"two each":                         {[]string{"..", ".."}, "", false},
		"two, and two rejected":            {[]string{"..", "xx"}, "...", true},
		"many, and then a limit":           {[]string{"....................", "xxxx"}, "xx", true},
		"many, and not enough":             {[]string{"....................", "xx"}, "xx", false},
	} {
		h := Hold{right: trusted}
		sent, right := uint64(0), false
		for _, responses := range append(tt.before, tt.now) {
			h.right = trusted
			first := sent + 1
			sent = first + uint64(len(responses))
			require.True(t, h.Add(Rejection{Claim: first, Sent: sent, After: time.Second}, start), name)
			for i, c := range responses {
				if c == '.' {
					ended, _ := h.Accepted(first+1+uint64(i), start)
					require.False(t, ended, name)
				} else {
					h.Add(Rejection{Claim: first + 1 + uint64(i), Sent: sent, Repeated: c == 'r'}, start)
				}
			}
			sent++
			var ended bool
			ended, right = h.Accepted(sent, start.Add(time.Second))
			require.True(t, ended, name)
		}
		require.Equal(t, tt.right, right, name)
		require.Equal(t, tt.right, h.Trusted(), name)
	}
	h := Hold{right: trusted}
	h.Begin(7, start.Add(time.Second), start)
	for n := uint64(1); n <= 7; n++ {
		h.Accepted(n, start)
	}
	_, right := h.Accepted(8, start.Add(time.Second))
	require.True(t, right, "no rejected request has begun it")
}

// A hold lasts until the latest time that a rejection stated, to the nanosecond. If none did, no end is
// known.
func TestHold_lastsUntilTheStatedEnd(t *testing.T) {
	const s = time.Second
	for name, tt := range map[string]struct {
		after []time.Duration // stated by each rejection, two per second
		until time.Duration   // 0: estimated
	}{
		"none":             {make([]time.Duration, 5), 0},
		"the first":        {[]time.Duration{9 * s, 0, 0, 0, 0}, 9 * s},
		"the last":         {[]time.Duration{0, 0, 0, 0, 1}, 2*s + 1},
		"the latest":       {[]time.Duration{2 * s, 7 * s, 9 * s, 1 * s, 2 * s}, 10 * s},
		"after it began":   {[]time.Duration{0, 0, 0, 0, 0, 8 * s}, 10*s + s/2},
		"a time, repeated": {[]time.Duration{5 * s, 9 * s / 2, 4 * s, 7 * s / 2, 3 * s}, 5 * s},
	} {
		var h Hold
		for i, after := range tt.after {
			n := uint64(i + 1)
			h.Add(Rejection{Claim: n, Sent: n, After: after, Server: i == len(tt.after)-1}, start.Add(time.Duration(i)*s/2))
		}
		require.True(t, h.Held, name)
		require.True(t, h.Server, "%s: the latest one", name)
		require.Equal(t, start, h.Since, name)
		require.Equal(t, start.Add(time.Duration(len(tt.after)-1)*s/2), h.Latest, name)
		require.Equal(t, tt.until == 0, h.Estimated(), name)
		wait, waits := h.Waits(start.Add(max(tt.until-1, 0)))
		require.Equal(t, min(tt.until, 1), wait, name)
		require.True(t, waits, name)
		_, waits = h.Waits(start.Add(tt.until))
		require.Equal(t, tt.until == 0, waits, name)
	}
}

// Four rejections of later requests begin a hold, however far apart they are, unless the suspicion is forgotten: a call
// each second is a reason to wait, too (rule 3).
func TestHold_rareRejectionsBeginIt(t *testing.T) {
	const s = time.Second
	for name, tt := range map[string]struct {
		times []time.Duration // of rejections of later requests, after the first one
		held  bool
	}{
		"4 together":            {[]time.Duration{s, s, s, s}, true},
		"4 in 2 s":              {[]time.Duration{s / 2, s, 3 * s / 2, 2 * s}, true},
		"3 in 1 s":              {[]time.Duration{s / 2, s / 2, s}, false},
		"4, one each 10 s":      {[]time.Duration{10 * s, 20 * s, 30 * s, 40 * s}, true},
		"4, one after 10 s":     {[]time.Duration{s, 2 * s, 3 * s, 13*s + 1}, false},
		"4 together, 9 s later": {[]time.Duration{9 * s, 9 * s, 9 * s, 9 * s}, true},
	} {
		var h Hold
		h.Add(Rejection{Claim: 1, Sent: 1}, start)
		begun := 0
		for i, at := range tt.times {
			n := uint64(i + 2)
			if h.Add(Rejection{Claim: n, Sent: n}, start.Add(at)) {
				begun++
				require.Equal(t, len(tt.times)-1, i, "%s: not before the last one", name)
			}
		}
		require.Equal(t, tt.held, h.Held, name)
		require.Equal(t, tt.held, begun == 1, name)
	}
}

// A suspicion ends 10 s after the latest rejection or its stated end, whichever is later. A hold does not.
func TestHold_suspicionsAreForgotten(t *testing.T) {
	const s = time.Second
	for name, tt := range map[string]struct {
		latest, after, at time.Duration // when the latest rejection arrives and what it states; when the next one does
		forgotten         bool
	}{
		"10 s":                        {0, 0, 10 * s, false},
		"more":                        {0, 0, 10*s + 1, true},
		"10 s after the latest":       {3 * s, 0, 13 * s, false},
		"longer after the latest":     {3 * s, 0, 13*s + 1, true},
		"10 s after the stated end":   {0, time.Minute, 70 * s, false},
		"longer after the stated end": {0, time.Minute, 70*s + 1, true},
		"10 s after, 1 s is stated":   {3 * s, s, 14 * s, false},
		"longer after, 1 s is stated": {3 * s, s, 14*s + 1, true},
	} {
		for responses, held := range map[string]bool{"xxx": false, "xxxxx": true} {
			var h Hold
			h.respond(responses, .1)
			h.Add(Rejection{Claim: 4, Sent: 50, After: tt.after}, start.Add(tt.latest)) // sent before
			next := start.Add(tt.at)
			require.False(t, h.Add(Rejection{Claim: 51, Sent: 51, Share: .5}, next), "%s, %s", name, responses)
			require.Equal(t, tt.forgotten && !held, h.Since.Equal(next), "%s, %s", name, responses)
			require.Equal(t, held, h.Held, "%s, %s", name, responses)
			if tt.forgotten && !held {
				require.Equal(t, Hold{Suspected: true, Since: next, Latest: next, Highest: 51, first: 51, sentBy: 51, from: 51, needed: 7, share: .5}, h, name)
			}
		}
	}
}

// While what has waited is sent after the stated end, rejections continue the hold, without an end if they state none: as soon as most
// of what was sent is rejected. Repeated ones do not, although they may state a longer time: their tenant or resource may always be
// rejected. A hold that went on with each of those, and with the first one although others were under way, made all others wait for
// minutes.
func TestHold_continuesAfterItsStatedEnd(t *testing.T) {
	for _, tt := range []struct {
		rejected  []uint64 // claims; 3 is the latest one that was sent before the end
		repeated  bool
		continues bool
	}{
		{[]uint64{4}, false, true},
		{[]uint64{3}, false, false}, // sent before
		{[]uint64{4}, true, false},
		{[]uint64{4, 5, 6, 7, 8}, true, false},
		{[]uint64{5}, false, false}, // half
		{[]uint64{5, 6}, false, true},
		{[]uint64{6, 7}, false, false},
		{[]uint64{4, 6, 8, 10, 12}, false, true}, // with the first one
		{[]uint64{6, 8, 10, 12}, false, false},
	} {
		for after, wait := range map[time.Duration]time.Duration{0: 0, 3 * time.Second: 3 * time.Second} {
			h := Hold{right: trusted}
			require.True(t, h.Add(Rejection{Claim: 1, Sent: 1, After: time.Second}, start))
			end := start.Add(time.Second)
			_, waits := h.Waits(end)
			require.False(t, waits)
			h.Lapse(3)
			for _, n := range tt.rejected {
				if h.Ending {
					require.False(t, h.Add(Rejection{Claim: n, Sent: 20, After: after, Repeated: tt.repeated}, end))
				}
			}
			require.Equal(t, tt.continues, !h.Ending, "%+v", tt)
			got, waits := h.Waits(end)
			require.Equal(t, tt.continues, waits, "%+v", tt)
			require.Equal(t, start, h.Since)
			if tt.continues {
				require.Equal(t, wait, got)
				require.Equal(t, 1, h.Rejected)
			}
			ended, _ := h.Accepted(30, end)
			require.True(t, ended)
			h.Add(Rejection{Claim: 40, Sent: 40}, end)
			require.Zero(t, h.Rejected, "of another hold")
		}
	}
}

// What is accepted after the stated end ends the hold, although others were rejected before, because a server may reject faster than it
// accepts. Otherwise the hold would remain, and hide what is rejected later.
func TestHold_endsAfterItsStatedEnd(t *testing.T) {
	h := Hold{right: trusted}
	require.True(t, h.Add(Rejection{Claim: 1, Sent: 1, After: time.Second}, start))
	end := start.Add(time.Second)
	h.Lapse(3)
	for n := uint64(5); n < 50; n += 3 {
		h.Add(Rejection{Claim: n, Sent: n}, end)
	}
	require.True(t, h.Ending)
	ended, _ := h.Accepted(3, end)
	require.False(t, ended, "sent before the end")
	ended, right := h.Accepted(4, end)
	require.True(t, ended)
	require.True(t, right)
	require.False(t, h.Held)
}

// A hold that goes on lasts until the latest time that was stated after its end, also by the rejections that did not suffice.
func TestHold_goesOnUntilTheLatestStatedTime(t *testing.T) {
	const s = time.Second
	for name, tt := range map[string]struct {
		after []time.Duration // of claims 5, 6 and so on, of which two suffice
		wait  time.Duration
	}{
		"the first":  {[]time.Duration{30 * s, s}, 30 * s},
		"the second": {[]time.Duration{s, 30 * s}, 30 * s},
		"only one":   {[]time.Duration{30 * s, 0}, 30 * s},
		"none":       {[]time.Duration{0, 0}, 0},
		"not before": {[]time.Duration{2 * s, 3 * s}, 3 * s},
	} {
		h := Hold{right: trusted}
		require.True(t, h.Add(Rejection{Claim: 1, Sent: 1, After: 20 * s}, start))
		end := start.Add(20 * s)
		h.Lapse(3)
		for i, after := range tt.after {
			h.Add(Rejection{Claim: 5 + uint64(i), Sent: 10, After: after}, end)
		}
		wait, waits := h.Waits(end)
		require.True(t, waits, name)
		require.Equal(t, tt.wait, wait, name)
	}
}

// A hold whose stated end has passed, and for which nothing was sent since, is forgotten: the next rejection begins a suspicion.
func TestHold_isForgottenAfterItsStatedEnd(t *testing.T) {
	for later, held := range map[time.Duration]bool{time.Second: true, 9 * time.Second: true, 11 * time.Second: false, 3 * time.Hour: false} {
		var h Hold
		h.respond("xxxxx", .1)
		require.True(t, h.Held)
		h.Add(Rejection{Claim: 99, Sent: 99, After: time.Second}, start)
		h.Lapse(100)
		h.Add(Rejection{Claim: 101, Sent: 101, After: time.Minute, Share: .1}, start.Add(time.Second+later))
		_, waits := h.Waits(start.Add(time.Second + later))
		require.Equal(t, held, waits, later)
		require.Equal(t, held, h.Held, later)
	}
}

// A server may reject faster than it accepts. What is rejected first then shows nothing, unless it is most of what was sent.
func TestHold_fastRejectionsAreNotAll(t *testing.T) {
	for _, repeated := range []bool{false, true} {
		for others, held := range map[uint64]bool{0: true, 2: false, 10: false} {
			h := Hold{}
			for i, n := 0, uint64(sentBefore); i < 40; i++ {
				h.Add(Rejection{Claim: n, Sent: n + 20, After: time.Second, Share: .1}, start)
				n++
				if repeated { // does not count: neither for nor against
					h.Add(Rejection{Claim: n, Sent: n + 20, After: time.Second, Share: .1, Repeated: true}, start)
					n++
				}
				n += others
			}
			require.Equal(t, held, h.Held, "one of %d is rejected, and none accepted yet", 1+others)
		}
	}
}

// Begin holds others without a rejection, and Release ends that. What earlier holds have shown remains.
func TestHold_beginAndRelease(t *testing.T) {
	const s = time.Second
	at := func(d time.Duration) time.Time { return start.Add(d) }
	h := Hold{right: 1, doubt: 2}
	h.respond("xx", .1)
	h.Begin(20, time.Time{}, at(s))
	require.Equal(t, Hold{Suspected: true, Held: true, Since: at(s), Latest: at(s), Highest: 20, first: 20, sentBy: 20, from: 20, right: 1, doubt: 2}, h)
	for n, ended := range map[uint64]bool{20: false, 21: true} {
		c := h
		got, right := c.Accepted(n, at(2*s))
		require.Equal(t, []bool{ended, false}, []bool{got, right}, "claim %d", n)
	}
	h.Begin(15, at(9*s), at(2*s))
	h.Begin(30, at(5*s), at(3*s))
	h.Begin(25, time.Time{}, at(4*s))
	require.Equal(t, Hold{Suspected: true, Held: true, Since: at(s), Latest: at(4 * s), Until: at(9 * s), Highest: 25, first: 25, sentBy: 25, from: 25, right: 1, doubt: 2}, h)

	h.Ending = true
	h.Begin(40, at(20*s), at(9*s))
	require.False(t, h.Ending, "it has another end")
	h.Add(Rejection{Claim: 41, Sent: 41}, at(10*s))
	require.Equal(t, at(20*s), h.Until)

	h.Ending = true
	h.Begin(50, time.Time{}, at(20*s))
	wait, waits := h.Waits(at(20 * s))
	require.Equal(t, []any{time.Duration(0), true, false}, []any{wait, waits, h.Ending}, "it goes on, and no end is known")

	h.Ending = true
	h.Release()
	require.Equal(t, []bool{false, false, false}, []bool{h.Held, h.Suspected, h.Ending})
	_, waits = h.Waits(at(20 * s))
	require.False(t, waits)
	require.Equal(t, []uint8{1, 2}, []uint8{h.right, h.doubt}, "another process knows whether it was right")
	h.Add(Rejection{Claim: 51, Sent: 51}, at(21*s))
	require.Zero(t, h.Rejected)
}

// The zero Hold delays nothing, and what is accepted does not change it.
func TestHold_zero(t *testing.T) {
	var h Hold
	_, waits := h.Waits(start)
	require.False(t, waits)
	require.False(t, h.Trusted())
	ended, right := h.Accepted(7, start)
	require.Equal(t, []bool{false, false}, []bool{ended, right})
	require.Equal(t, Hold{}, h)
}

// After a right hold few responses are known that it does not explain. That does not make the next hold right by
// a test that is rejected by chance, as half of the requests were before.
func TestHold_shareOutlivesARightHold(t *testing.T) {
	hold := func(h *Hold, share float64, rejectedTests int, elsewhere bool) (right bool) {
		sent := h.Highest + 1
		if elsewhere {
			h.Begin(sent, time.Time{}, start)
		} else {
			sent = h.respond("xxxxxxxxx", share)
		}
		require.True(t, h.Held)
		h.Rejected = rejectedTests
		ended, right := h.Accepted(sent+1, start)
		require.True(t, ended)
		return right
	}
	for _, elsewhere := range []bool{false, true} { // another process has found it
		h := &Hold{}
		require.True(t, hold(h, .5, 4, false))
		require.False(t, hold(h, .06, 1, elsewhere), "half of the requests are rejected at random")
		require.EqualValues(t, 0, h.right)
		require.True(t, hold(h, .06, 1, false), "after a wrong one, the latest responses count")

		h = &Hold{}
		require.True(t, hold(h, .06, 1, false))
		require.True(t, hold(h, .06, 2, elsewhere), "requests are seldom rejected")
	}
}

// A rejection that begins no hold, in an outage with failures, does not change what the next holds have to show.
func TestHold_shareOfASuspicionIsForgotten(t *testing.T) {
	h := Hold{right: 1, before: .06}
	h.Add(Rejection{Claim: 50, Sent: 50, Share: .85}, start)
	h.Accepted(51, start)
	require.False(t, h.Suspected)
	sent := h.respond("xxxxx", .06)
	require.True(t, h.Held)
	h.Rejected = 1
	_, right := h.Accepted(sent+1, start)
	require.True(t, right)
}
