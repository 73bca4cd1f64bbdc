package quota

import (
	"math"
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota/headers"
	"github.com/heed-go/heed/throttle"
)

// What a server states to be used is own use if it exceeds what was counted by at most a twentieth
// of the limit, or two requests. Otherwise there are other clients.
func TestEstimate_attributesUseToOtherClients(t *testing.T) {
	now := time.Unix(1000, 0)
	for name, tt := range map[string]struct {
		limit, counted, open, used int64
		own                        bool
	}{
		"all is counted":            {400, 50, 0, 50, true},
		"a twentieth is not":        {400, 50, 0, 70, true},
		"more is not":               {400, 50, 0, 71, false},
		"one is in flight":          {400, 50, 1, 71, true},
		"two of few are not":        {10, 3, 0, 5, true},
		"three of few are not":      {10, 3, 0, 6, false},
		"nothing was ever counted":  {400, 0, 0, 100, false},
		"less is used than counted": {400, 50, 0, 20, true},
	} {
		e := estimate{limit: tt.limit, refill: refill{kind: refillsEach, window: time.Minute, log: newSendLog(now.Add(-time.Second), tt.counted)}}
		l := throttle.RemoteLimit{Limit: tt.limit, Remaining: tt.limit - tt.used}
		require.Equal(t, tt.own, e.explains(l, now, &inFlight{open: tt.open}), name)
	}
}

// A limit that was contradicted by accepted requests is believed again when it states that units
// are left, be it one.
func TestEarlyTest_unitsThatAreLeftEndIt(t *testing.T) {
	now := time.Unix(1000, 0)
	for left, distrusted := range map[int64]bool{0: true, 1: false, 2: false} {
		e := estimate{limit: 100, early: earlyTest{end: now.Add(time.Hour), since: now, contradicted: contradictions}}
		e.early.update(&e, now.Add(time.Hour), left, 1, now)
		require.Equal(t, distrusted, e.distrusted(), "%d left", left)
	}
}

// A rejection while more than an eighth of a counted window is left, and more than one request, shows
// that units come back in another way.
func TestCountedWindows_earlyRejectionRefutesThem(t *testing.T) {
	for name, tt := range map[string]struct {
		left, limit int64
		refuted     bool
	}{
		"used up":                   {0, 100, false},
		"an eighth is left":         {12, 100, false},
		"more is left":              {13, 100, true},
		"one of few is left":        {1, 4, false},
		"two of few are left":       {2, 4, true},
		"nothing was used so far":   {100, 100, true},
		"more was sent than stated": {-3, 100, false},
	} {
		c := countedWindows{on: true, length: time.Minute}
		c.rejected(tt.left, tt.limit)
		require.Equal(t, tt.refuted, c.refuted, name)
		require.Equal(t, !tt.refuted, c.on, name)
	}
	off := countedWindows{}
	off.rejected(100, 100)
	require.False(t, off.refuted)
}

// The last unit is kept for a moment while it is not known how units come back, but not that of a
// limit of one, and not if the reset is near.
func TestEstimate_keepsTheLastUnit(t *testing.T) {
	now := time.Unix(1000, 0)
	for name, tt := range map[string]struct {
		limit int64
		reset time.Duration
		kind  refillKind
		want  bool
	}{
		"not known":     {2, time.Minute, refillUnknown, true},
		"limit of one":  {1, time.Minute, refillUnknown, false},
		"window":        {2, time.Minute, refillsAtReset, false},
		"near":          {2, 100 * time.Millisecond, refillUnknown, true},
		"nearer":        {2, 99 * time.Millisecond, refillUnknown, false},
		"token bucket":  {2, time.Minute, refillsEvenly, false},
		"several units": {100, time.Minute, refillUnknown, true},
	} {
		e := estimate{limit: tt.limit, at: now, reset: now.Add(tt.reset), refill: refill{kind: tt.kind}}
		require.Equal(t, tt.want, e.delaysLastUnit(), name)
	}
}

// Two responses are of the same bucket if their missing units and the times until it is full show
// about the same rate: here, 40 of 100 units are missing and return within 20 seconds.
func TestEstimate_mayBeTheSameBucket(t *testing.T) {
	start := time.Unix(1000, 0)
	for name, tt := range map[string]struct {
		after     time.Duration
		remaining int64
		reset     time.Duration
		want      bool
	}{
		"the same":                     {0, 60, 20 * time.Second, true},
		"later":                        {10 * time.Second, 80, 10 * time.Second, true},
		"later, others used units":     {10 * time.Second, 40, 30 * time.Second, true},
		"more than can have come back": {time.Second, 65, 17 * time.Second, false},
		"far too slow":                 {0, 60, 10 * time.Minute, false},
		"far too fast":                 {0, 20, 2 * time.Second, false},
		"before":                       {-time.Second, 100, time.Minute, true},
		"before, more than the limit":  {-time.Second, 101, time.Minute, false},
	} {
		e := estimate{limit: 100, remaining: 60, at: start, reset: start.Add(20 * time.Second)}
		now := start.Add(tt.after)
		l := throttle.RemoteLimit{Limit: 100, Remaining: tt.remaining, ResetAfter: tt.reset}
		require.Equal(t, tt.want, e.mayBeBucket(l, 0, now), name)
	}
}

// Resets that are stated in seconds differ by little more than one, rougher ones by more.
func TestEstimate_toleranceGrowsWithTheResolution(t *testing.T) {
	for resolution, want := range map[time.Duration]time.Duration{
		0: tolerance, time.Millisecond: tolerance, time.Second: tolerance, time.Minute: time.Minute + tolerance - time.Second,
	} {
		require.Equal(t, want, toleranceOf(throttle.RemoteLimit{Resolution: resolution}), "%v", resolution)
	}
}

// Each test of a reset that is far away is planned from the one before, and those that moved the
// reset by more than a minute are counted.
func TestEarlyTest_countsTests(t *testing.T) {
	start := time.Unix(1000, 0)
	end := start.Add(240 * time.Hour)
	e := estimate{limit: 100, lastSent: 5}
	e.early.update(&e, end, 0, 1, start)
	require.Equal(t, earlyTest{end: end, since: start}, e.early, "nothing is left")
	now := start.Add(time.Minute)
	e.early.update(&e, end, 0, 6, now)
	require.Equal(t, earlyTest{end: end, since: start}, e.early, "no test")
	e.probe = true
	e.early.update(&e, end, 0, 5, now)
	require.Equal(t, earlyTest{end: end, since: start}, e.early, "a request before the test")
	e.early.update(&e, end.Add(movedBy), 0, 6, now)
	require.Equal(t, earlyTest{end: end.Add(movedBy), since: now, tests: 1}, e.early)
	moved := end.Add(2*movedBy + 1)
	e.early.update(&e, moved, 0, 6, now.Add(time.Minute))
	require.Equal(t, earlyTest{end: moved, since: now.Add(time.Minute), tests: 2, moved: 1}, e.early)
	e.early.update(&e, end, 0, 6, now.Add(time.Hour))
	require.Equal(t, earlyTest{end: moved, since: now.Add(time.Hour), tests: 3, moved: 1}, e.early, "the reset never becomes earlier")
}

// A response corrects the state as the documentation of estimate says.
func TestEstimate_appliesResponses(t *testing.T) {
	start := time.Unix(1000, 0)
	now, end := start.Add(10*time.Second), start.Add(time.Minute)
	for name, tt := range map[string]struct {
		n          uint64        // 10 claims had been sent at the latest update
		left       int64         // 50 of 100 were left then
		reset      time.Duration // from now on; 50 s: as before
		resolution time.Duration
		kind       refillKind
		over       bool // the reset has passed
		want       int64
		wantReset  time.Time
		replaced   bool // the state is that of this response
	}{
		"newer":                           {11, 45, 50 * time.Second, 0, refillUnknown, false, 45, end, true},
		"newer, more":                     {11, 55, 50 * time.Second, 0, refillUnknown, false, 55, end, true},
		"newer, earlier reset":            {11, 45, 40 * time.Second, 0, refillUnknown, false, 45, end.Add(-10 * time.Second), true},
		"newer, later reset":              {11, 45, 60 * time.Second, 0, refillUnknown, false, 45, end.Add(10 * time.Second), true},
		"newer, in seconds":               {11, 45, 51 * time.Second, time.Second, refillUnknown, false, 45, end, true},
		"newer, in seconds, earlier":      {11, 45, 49500 * time.Millisecond, time.Second, refillUnknown, false, 45, end.Add(-500 * time.Millisecond), true},
		"newer, exact":                    {11, 45, 51 * time.Second, 0, refillUnknown, false, 45, end.Add(time.Second), true},
		"newer, sliding":                  {11, 45, 51 * time.Second, time.Second, refillsEach, false, 45, end.Add(time.Second), true},
		"newer, bucket":                   {11, 45, 40 * time.Second, time.Second, refillsEvenly, false, 45, end.Add(-10 * time.Second), true},
		"older, fewer":                    {10, 49, 50 * time.Second, 0, refillUnknown, false, 49, end, true},
		"older, as many":                  {10, 50, 49500 * time.Millisecond, 0, refillUnknown, false, 50, end.Add(-500 * time.Millisecond), false},
		"older, as many, sliding":         {10, 50, 49500 * time.Millisecond, 0, refillsEach, false, 50, end.Add(-500 * time.Millisecond), false},
		"older, as many, bucket":          {10, 50, 49500 * time.Millisecond, 0, refillsEvenly, false, 50, end, false},
		"older, as many, fuller":          {10, 50, 55 * time.Second, 0, refillsEvenly, false, 50, end.Add(5 * time.Second), false},
		"older, of a window that is over": {10, 5, 50*time.Second - tolerance - 1, 0, refillUnknown, false, 50, end, false},
		"older, hardly earlier":           {10, 5, 50*time.Second - tolerance, 0, refillUnknown, false, 5, end.Add(-tolerance), true},
		"older, of a fuller bucket":       {10, 51, 50*time.Second + tolerance + 1, 0, refillUnknown, false, 50, end, false},
		"older, later reset":              {10, 50, 50*time.Second + tolerance + 1, 0, refillUnknown, false, 50, end.Add(tolerance + 1), true},
		"older, hardly later":             {10, 50, 50*time.Second + tolerance, 0, refillUnknown, false, 50, end.Add(tolerance), false},
		"older, over, fewer":              {10, 49, 50 * time.Second, 0, refillUnknown, true, 49, end, true},
		"older, over, more":               {10, 99, 50 * time.Second, 0, refillUnknown, true, 50, now, false},
		"from another quota":              {0, 50, 50 * time.Second, 0, refillUnknown, false, 50, end, false},
	} {
		e := estimate{limit: 100, remaining: 50, at: start, reset: end, lastSent: 10, openAtUpdate: 3, probe: true, refill: refill{kind: tt.kind}}
		if tt.over {
			e.reset = now
		}
		f := &inFlight{sent: 12, open: 2}
		e.update(throttle.RemoteLimit{Limit: 100, Remaining: tt.left, ResetAfter: tt.reset, Resolution: tt.resolution, Per: e.per}, tt.n, now, f)
		require.Equal(t, tt.want, e.remaining, name)
		require.Equal(t, tt.wantReset, e.reset, name)
		require.Equal(t, tt.replaced, e.at.Equal(now), name)
		require.Equal(t, !tt.replaced, e.probe, name)
		switch {
		case tt.replaced:
			require.Equal(t, []int64{12, 2, 100}, []int64{int64(e.lastSent), e.openAtUpdate, e.limit}, name)
		case tt.over || tt.wantReset.Equal(end) && tt.kind == refillUnknown && tt.n > 0: // ignored
			require.EqualValues(t, 3, e.openAtUpdate, name)
		default:
			require.EqualValues(t, 2, e.openAtUpdate, "%s: one of those in flight had been counted", name)
		}
	}
	e := estimate{limit: 100, remaining: 50, at: start, reset: end}
	e.update(throttle.RemoteLimit{Limit: 80, Remaining: 90, ResetAfter: time.Second, Per: time.Hour}, 1, now, &inFlight{sent: 1})
	require.Equal(t, []int64{90, 90}, []int64{e.limit, e.remaining}, "more are left than the limit")
	require.Equal(t, time.Hour, e.per)
	e.update(throttle.RemoteLimit{Limit: 80, Remaining: -7, ResetAfter: time.Second}, 2, now, &inFlight{sent: 2})
	require.Equal(t, []int64{80, 0}, []int64{e.limit, e.remaining})
}

// What a log of own requests contains, and the measurement of a rate, follow the responses.
func TestEstimate_responsesCorrectTheRefill(t *testing.T) {
	start := time.Unix(1000, 0)
	now := start.Add(10 * time.Second)
	update := func(e *estimate, left int64, open int64) {
		e.update(throttle.RemoteLimit{Limit: 100, Remaining: left, ResetAfter: 50 * time.Second}, 11, now, &inFlight{sent: 12, open: open})
	}
	e := estimate{limit: 100, remaining: 50, at: start, reset: start.Add(time.Minute), lastSent: 10}
	e.refill = refill{kind: refillsEach, window: time.Minute, log: newSendLog(start, 50)}
	update(&e, 60, 0)
	require.EqualValues(t, 40, e.refill.log.count(start.Add(-1), now), "ten have come back")
	e.accepted(0, now)
	require.EqualValues(t, 41, e.refill.log.count(start.Add(-1), now))
	require.EqualValues(t, 1, e.refill.responses)

	e = estimate{limit: 100, remaining: 50, at: start, reset: start.Add(time.Minute), lastSent: 10, refill: refill{kind: refillsAtReset}}
	update(&e, 45, 2)
	require.Equal(t, refill{kind: refillsAtReset, left: 45, open: 2, at: now}, e.refill, "a measurement begins")
	e = estimate{limit: 100, remaining: 50, at: start, reset: now, lastSent: 10, refill: refill{left: 50, responses: 3, at: start, open: 1}}
	update(&e, 99, 2)
	require.Equal(t, refill{together: true, left: 99, open: 2, at: now}, e.refill, "and again after the reset, at which all came back")
}

// A limit is obeyed with what is left, less what is in flight and reserved. Without units the wait is
// until one comes back.
func TestEstimate_freeUnits(t *testing.T) {
	start := time.Unix(1000, 0)
	sliding := refill{kind: refillsEach, window: 30 * time.Second, log: newSendLog(start, 100)}
	for name, tt := range map[string]struct {
		e          estimate
		open       int64
		headroom   float64
		after      time.Duration
		free       int64
		wait       time.Duration
		needsProbe bool
	}{
		"some":                          {estimate{remaining: 50}, 20, .1, 0, 20, 0, false},
		"none":                          {estimate{remaining: 30}, 20, .1, time.Second, 0, 59 * time.Second, false},
		"all in flight":                 {estimate{remaining: 20}, 20, 0, time.Second, 0, 59 * time.Second, false},
		"bucket":                        {estimate{remaining: 20, refill: refill{kind: refillsEvenly, rate: 2}}, 20, 0, 200 * time.Millisecond, 0, 300 * time.Millisecond, false},
		"slow bucket":                   {estimate{remaining: 20, refill: refill{kind: refillsEvenly, rate: .001}}, 20, 0, time.Second, 0, 59 * time.Second, false},
		"sliding log":                   {estimate{remaining: 0, refill: sliding}, 0, 0, time.Second, 0, 29 * time.Second, false},
		"after the reset":               {estimate{remaining: 1, refill: refill{kind: refillsAtReset}}, 1, 0, time.Minute, 1, 0, true},
		"after the reset, all reserved": {estimate{remaining: 10}, 0, .1, time.Minute, 1, 0, true},
		"after the reset, some left":    {estimate{remaining: 9}, 1, 0, time.Minute, 8, 0, false},
		"the last":                      {estimate{remaining: 1}, 0, 0, time.Second, 0, 4 * time.Second, false},
		"the last, after a while":       {estimate{remaining: 1}, 0, 0, 5 * time.Second, 1, 0, false},
		"the last, of a window":         {estimate{remaining: 1, refill: refill{kind: refillsAtReset}}, 0, 0, 0, 1, 0, false},
		"the last, with one in flight":  {estimate{remaining: 2}, 1, 0, time.Second, 0, 4 * time.Second, false},
		"two":                           {estimate{remaining: 2}, 0, 0, 0, 2, 0, false},
		"not believed":                  {estimate{remaining: 0, early: earlyTest{contradicted: 3}}, 0, 0, 0, math.MaxInt64, 0, false},
		"believed":                      {estimate{remaining: 0, early: earlyTest{contradicted: 2}}, 0, 0, 0, 0, time.Minute, false},
		"probe":                         {estimate{remaining: 50, probe: true}, 0, 0, 0, 1, 0, false},
		"other clients, after reset":    {estimate{remaining: 50, others: otherClients{present: true}}, 1, 0, time.Minute, 1, 0, true},
		"and a bucket that is full":     {estimate{remaining: 50, numUnused: minUnused, others: otherClients{present: true, share: .5}}, 1, 0, time.Minute, 49, 0, false},
	} {
		e := tt.e
		e.limit, e.at, e.reset = 100, start, start.Add(time.Minute)
		f := inFlight{open: tt.open, sent: 100}
		free, wait := e.free(start.Add(tt.after), &f, pacing{burst: true, headroom: tt.headroom})
		require.Equal(t, tt.free, free, name)
		require.Equal(t, tt.wait, wait, name)
		require.Equal(t, tt.needsProbe, e.needsProbe(start.Add(tt.after), &f, pacing{headroom: tt.headroom}), name)
		e.granted(start.Add(tt.after), &f, pacing{headroom: tt.headroom}, 0)
		require.Equal(t, tt.needsProbe || tt.e.probe, e.probe, name)
		if tt.needsProbe {
			require.EqualValues(t, 100, e.lastSent, name)
			free, wait = e.free(start.Add(tt.after), &f, pacing{})
			require.Equal(t, []int64{1, 0}, []int64{free, int64(wait)}, "%s: the probe", name)
			f.add()
			free, wait = e.free(start.Add(tt.after), &f, pacing{})
			require.Equal(t, []int64{0, 0}, []int64{free, int64(wait)}, "%s: its response decides", name)
		}
	}
	e := estimate{limit: 100, remaining: 9, at: start, reset: start.Add(time.Minute), next: start.Add(3 * time.Second), refill: refill{kind: refillsAtReset}}
	free, wait := e.free(start, &inFlight{}, pacing{})
	require.Equal(t, []int64{0, int64(3 * time.Second)}, []int64{free, int64(wait)}, "spread over the time until the reset")
	free, _ = e.free(start.Add(3*time.Second), &inFlight{}, pacing{})
	require.EqualValues(t, 9, free)
	free, wait = e.free(start, &inFlight{open: 8}, pacing{})
	require.Equal(t, []int64{0, int64(3 * time.Second)}, []int64{free, int64(wait)}, "so is the last one")
	e.others = otherClients{present: true, share: 1, jitter: 1}
	free, wait = e.free(start, &inFlight{open: 2}, pacing{burst: true, headroom: .01})
	require.Zero(t, free)
	require.Equal(t, e.others.wait(8, 2, e.at, start, e.reset), wait, "paced because of other clients")
	require.Positive(t, wait)
	e.refill, e.others.jitter = refill{kind: refillsEvenly, rate: 2}, .5
	for _, after := range []time.Duration{0, 5 * time.Second} {
		_, wait = e.free(start.Add(after), &inFlight{}, pacing{burst: true})
		require.Equal(t, e.others.wait(9, 0, e.at, start.Add(after), e.reset), wait, "what returns meanwhile is left to the next statement")
	}
}

// The last unit is delayed by an eighth of the time until the reset, 50 ms to 5 s.
func TestEstimate_delayOfTheLastUnit(t *testing.T) {
	start := time.Unix(1000, 0)
	for reset, want := range map[time.Duration]time.Duration{
		100 * time.Millisecond: 50 * time.Millisecond, 400 * time.Millisecond: 50 * time.Millisecond, 8 * time.Second: time.Second,
		40 * time.Second: 5 * time.Second, 41 * time.Second: 5 * time.Second,
	} {
		require.Equal(t, want, (&estimate{at: start, reset: start.Add(reset)}).lastUnitDelay(), "%v", reset)
	}
}

// A limit without units opens at its reset, when the next unit of its log comes back, or at a test.
func TestEstimate_opensAt(t *testing.T) {
	start := time.Unix(1000, 0)
	end := start.Add(10 * time.Hour)
	sliding := func(first time.Duration) refill {
		return refill{kind: refillsEach, window: time.Hour, log: newSendLog(start.Add(first-time.Hour), 5)}
	}
	p := pacing{maxHold: 15 * time.Minute}
	for name, tt := range map[string]struct {
		e    estimate
		want time.Duration
	}{
		"window":                       {estimate{}, 10 * time.Hour},
		"log":                          {estimate{refill: sliding(time.Hour)}, time.Hour},
		"log, later than stated":       {estimate{refill: sliding(11 * time.Hour)}, 10*time.Hour + openingDelay},
		"log, hardly later":            {estimate{refill: sliding(10*time.Hour + openingDelay)}, 10*time.Hour + openingDelay},
		"log without a later unit":     {estimate{refill: sliding(-time.Hour)}, 10 * time.Hour},
		"test":                         {estimate{early: earlyTest{end: end, since: start}}, 15 * time.Minute},
		"second test":                  {estimate{early: earlyTest{end: end, since: start, tests: 1}}, 45 * time.Minute},
		"third test, one moved":        {estimate{early: earlyTest{end: end, since: start, tests: 2, moved: 1}}, 135 * time.Minute},
		"two moved":                    {estimate{early: earlyTest{end: end, since: start, tests: 2, moved: 2}}, 10 * time.Hour},
		"later than the end":           {estimate{early: earlyTest{end: end, since: start, tests: 4}}, 10 * time.Hour},
		"contradicted":                 {estimate{early: earlyTest{end: end, since: start, contradicted: 1}}, 0},
		"within the stated window":     {estimate{per: 10 * time.Hour, early: earlyTest{end: end, since: start}}, 10 * time.Hour},
		"not within the stated window": {estimate{per: 10*time.Hour - 1, early: earlyTest{end: end, since: start}}, 15 * time.Minute},
		"an hour":                      {estimate{early: earlyTest{end: end, since: end.Add(-time.Hour)}}, 10 * time.Hour},
		"more than an hour":            {estimate{early: earlyTest{end: end, since: end.Add(-time.Hour - 1)}}, 9*time.Hour + 15*time.Minute - 1},
	} {
		e := tt.e
		e.at, e.reset = start, end
		require.Equal(t, tt.want, e.opensAt(p).Sub(start), name)
	}
}

// Accepted requests contradict a statement that no units are left if they were sent after it and
// responded to before the reset, where nothing returns meanwhile.
func TestEarlyTest_isContradicted(t *testing.T) {
	start := time.Unix(1000, 0)
	for name, tt := range map[string]struct {
		e     estimate
		n     uint64
		after time.Duration
		want  int32
	}{
		"sent after it":   {estimate{}, 6, time.Minute - 1, 1},
		"window":          {estimate{refill: refill{kind: refillsAtReset}}, 6, 0, 1},
		"sent before it":  {estimate{}, 5, 0, 0},
		"after the reset": {estimate{}, 6, time.Minute, 0},
		"units are left":  {estimate{remaining: 1}, 6, 0, 0},
		"bucket":          {estimate{refill: refill{kind: refillsEvenly}}, 6, 0, 0},
		"sliding log":     {estimate{refill: refill{kind: refillsEach}}, 6, 0, 0},
		"in flight":       {estimate{concurrency: concurrencyTest{confirmed: true}}, 6, 0, 0},
	} {
		e := tt.e
		e.lastSent, e.reset, e.early.end = 5, start.Add(time.Minute), start.Add(time.Minute)
		e.accepted(tt.n, start.Add(tt.after))
		require.Equal(t, tt.want, e.early.contradicted, name)
		e.early = earlyTest{}
		e.accepted(tt.n, start.Add(tt.after))
		require.Zero(t, e.early.contradicted, "%s: nothing was stated", name)
	}
	e := estimate{early: earlyTest{contradicted: 2}}
	e.early.update(&e, start, 0, 1, start)
	require.Equal(t, earlyTest{end: start, since: start, contradicted: 2}, e.early, "it is contradicted again and again")
}

// Responses that do not state a limit use one unit of it. If the response to the probe does not state
// it either, a window begins that is counted, or the limit is out of date.
func TestEstimate_countsResponsesThatStateNothing(t *testing.T) {
	start := time.Unix(1000, 0)
	now := start.Add(time.Minute)
	for name, tt := range map[string]struct {
		e        estimate
		n        uint64
		accepted bool
		outdated bool
		left     int64
		counted  bool
	}{
		"no probe":                 {estimate{remaining: 5}, 11, true, false, 4, false},
		"nothing is left":          {estimate{}, 11, true, false, 0, false},
		"in flight":                {estimate{remaining: 5, concurrency: concurrencyTest{confirmed: true}}, 11, true, false, 5, false},
		"before the probe":         {estimate{remaining: 5, probe: true}, 10, true, false, 5, false},
		"before it, counted":       {estimate{remaining: 5, probe: true, counted: countedWindows{on: true}}, 10, true, false, 4, true},
		"the probe":                {estimate{probe: true}, 11, true, false, 99, true},
		"the probe, not accepted":  {estimate{probe: true}, 11, false, true, 0, false},
		"the probe, refuted":       {estimate{probe: true, counted: countedWindows{refuted: true}}, 11, true, true, 0, false},
		"the probe, without limit": {estimate{limit: -100, probe: true}, 11, true, true, 0, false},
	} {
		e := tt.e
		e.limit, e.lastSent, e.reset = e.limit+100, 10, start
		require.Equal(t, tt.outdated, e.countUnstated(tt.n, tt.accepted, now, &inFlight{sent: 12, open: 1}), name)
		require.Equal(t, tt.left, e.remaining, name)
		require.Equal(t, tt.counted, e.counted.on, name)
	}
	e := estimate{limit: 100, probe: true, lastSent: 10, early: earlyTest{tests: 3}, counted: countedWindows{end: start, length: 40 * time.Second}}
	e.refill, e.others = refill{kind: refillsEvenly, rate: 7}, otherClients{window: time.Hour, share: .5, present: true}
	e.countUnstated(11, true, now, &inFlight{sent: 12, open: 1})
	want := estimate{limit: 100, remaining: 99, at: now, lastSent: 12, openAtUpdate: 1, reset: start.Add(80 * time.Second), refill: refill{kind: refillsAtReset}}
	want.counted, want.others = countedWindows{end: start, length: 40 * time.Second, windows: 1, on: true}, otherClients{window: time.Hour}
	require.Equal(t, want, e)
}

// The length of counted windows is the time between two of their ends, or from the first request of
// one. After twenty windows it is measured again.
func TestCountedWindows_learnTheirLength(t *testing.T) {
	base := time.Unix(1000, 0)
	at := func(d time.Duration) time.Time { return base.Add(d) }
	for name, tt := range map[string]struct {
		c      countedWindows
		end    time.Duration
		start  time.Duration
		length time.Duration
		off    bool
	}{
		"the second of two in a row":   {countedWindows{end: base}, 20500 * time.Millisecond, time.Second, 20 * time.Second, false},
		"one later":                    {countedWindows{end: base}, 60 * time.Second, 30 * time.Second, 30 * time.Second, false},
		"begun later":                  {countedWindows{end: base}, 25 * time.Second, tolerance, 25*time.Second - tolerance, false},
		"between two usual ones":       {countedWindows{end: base}, 1600 * time.Millisecond, 0, 2 * time.Second, false},
		"late":                         {countedWindows{end: base}, 22 * time.Second, 2 * time.Second, 20 * time.Second, false},
		"unusual":                      {countedWindows{end: base}, 17 * time.Second, 0, 17 * time.Second, false},
		"not far from usual":           {countedWindows{end: base}, 20*time.Second - tolerance + 1, 0, 20 * time.Second, false},
		"longer than usual":            {countedWindows{end: base}, 20*time.Second + tolerance, 0, 20*time.Second + tolerance, false},
		"far from usual":               {countedWindows{end: base}, 20*time.Second - tolerance, 0, 20*time.Second - tolerance, false},
		"the same end":                 {countedWindows{end: base, length: time.Minute}, tolerance, -time.Hour, time.Minute, false},
		"a multiple of the length":     {countedWindows{end: base, length: 10 * time.Second}, 30*time.Second + tolerance, 20*time.Second + tolerance, 10 * time.Second, false},
		"almost a multiple":            {countedWindows{end: base, length: 10 * time.Second}, 30*time.Second - tolerance, 20*time.Second - tolerance, 10 * time.Second, false},
		"no multiple":                  {countedWindows{end: base, length: 10 * time.Second}, 35 * time.Second, 25 * time.Second, 10 * time.Second, true},
		"no multiple, by little":       {countedWindows{end: base, length: 10 * time.Second}, 30*time.Second + tolerance + 1, 20*time.Second + tolerance + 1, 10 * time.Second, true},
		"no multiple, less, by little": {countedWindows{end: base, length: 10 * time.Second}, 30*time.Second - tolerance - 1, 20*time.Second - tolerance - 1, 10 * time.Second, true},
	} {
		c := tt.c
		c.on, c.windows = true, 7
		c.stateEnd(at(tt.end), at(tt.start))
		want := countedWindows{on: true, end: at(tt.end), length: tt.length, offGrid: tt.off}
		if name == "the same end" {
			want.windows = 7
		}
		require.Equal(t, want, c, name)
	}
	c := countedWindows{end: base}
	c.stateEnd(at(time.Minute), base)
	require.Equal(t, countedWindows{end: at(time.Minute)}, c, "windows are not counted")
	for name, tt := range map[string]struct {
		c    countedWindows
		want time.Duration
	}{
		"length not known":  {countedWindows{end: base}, 25 * time.Second},
		"after the last":    {countedWindows{end: base, length: 10 * time.Second}, 30 * time.Second},
		"end not known":     {countedWindows{length: 10 * time.Second}, 35 * time.Second},
		"not on that grid":  {countedWindows{end: base, length: 10 * time.Second, offGrid: true}, 35 * time.Second},
		"length of seconds": {countedWindows{end: base, length: time.Second}, 26 * time.Second},
	} {
		require.Equal(t, at(tt.want), tt.c.nextEnd(at(25*time.Second)), name)
	}
	for windows, length := range map[int32]time.Duration{19: time.Minute, 20: 0} {
		e := estimate{limit: 100, counted: countedWindows{length: time.Minute, windows: windows, on: true}}
		e.beginWindow(base, &inFlight{})
		require.Equal(t, length, e.counted.length, "after %d windows", windows)
	}
}

// Counted windows are waited out a little longer, because requests of the last one may be in flight.
func TestEstimate_countedWindowsEndLate(t *testing.T) {
	start := time.Unix(1000, 0)
	for name, tt := range map[string]struct {
		remaining int64
		length    time.Duration
		open      int64
		after     time.Duration
		free      int64
		wait      time.Duration
	}{
		"the window is over":          {0, 0, 0, time.Minute, 1, 0},
		"one is in flight":            {0, 0, 1, time.Minute, 0, tolerance},
		"one is in flight, later":     {0, 0, 1, time.Minute + tolerance, 1, 0},
		"units are left":              {50, 0, 0, time.Minute, 50, 0},
		"units are left, of a length": {50, time.Minute, 0, time.Minute, 1, 0},
		"before its end":              {50, time.Minute, 0, time.Minute - 1, 50, 0},
	} {
		e := estimate{limit: 100, remaining: tt.remaining, at: start, reset: start.Add(time.Minute), refill: refill{kind: refillsAtReset}}
		e.counted = countedWindows{on: true, length: tt.length}
		free, wait := e.free(start.Add(tt.after), &inFlight{open: tt.open, sent: 9}, pacing{burst: true})
		require.Equal(t, []int64{tt.free, int64(tt.wait)}, []int64{free, int64(wait)}, name)
	}
}

// The pause between probes of a limit without a reset halves when many units are found, and begins
// anew when half of the limit is left.
func TestEstimate_adaptsThePauseBetweenProbes(t *testing.T) {
	for name, tt := range map[string]struct {
		pause time.Duration
		left  int64
		n     uint64
		want  time.Duration
	}{
		"none":                    {time.Second, 0, 6, time.Second},
		"many units":              {2 * time.Second, 8, 6, time.Second},
		"few units":               {2 * time.Second, 7, 6, 2 * time.Second},
		"many units, first":       {0, 8, 6, time.Second / 2},
		"few units, first":        {0, 7, 6, 0},
		"many units, often":       {60 * time.Millisecond, 8, 6, 50 * time.Millisecond},
		"no probe":                {2 * time.Second, 8, 5, 2 * time.Second},
		"half is left":            {2 * time.Second, 50, 5, 0},
		"almost half is left":     {2 * time.Second, 49, 5, 2 * time.Second},
		"half is left, the probe": {2 * time.Second, 50, 6, time.Second / 2},
	} {
		e := estimate{limit: 100, probe: true, lastSent: 5, probePause: tt.pause}
		e.adaptProbePause(throttle.RemoteLimit{Limit: 100, Remaining: tt.left}, tt.n)
		require.Equal(t, tt.want, e.probePause, name)
	}
	e := estimate{limit: 100, lastSent: 5}
	e.adaptProbePause(throttle.RemoteLimit{Limit: 100, Remaining: 20}, 6)
	require.Zero(t, e.probePause, "it was no probe")
	now := time.Unix(1000, 0)
	for name, tt := range map[string]struct {
		pause time.Duration
		l     throttle.RemoteLimit
		want  time.Duration
	}{
		"nothing is stated":            {0, throttle.RemoteLimit{}, time.Second},
		"the pause":                    {7 * time.Second, throttle.RemoteLimit{}, 7 * time.Second},
		"reset":                        {7 * time.Second, throttle.RemoteLimit{ResetAfter: 3, Per: 5}, 3},
		"window":                       {7 * time.Second, throttle.RemoteLimit{Per: 5}, 5},
		"hostile":                      {0, throttle.RemoteLimit{ResetAfter: math.MaxInt64}, headers.MaxDelay},
		"hostile window":               {0, throttle.RemoteLimit{ResetAfter: math.MinInt64, Per: math.MaxInt64}, headers.MaxDelay},
		"hostile window, negative too": {0, throttle.RemoteLimit{ResetAfter: -1, Per: -1}, time.Second},
	} {
		e := estimate{probePause: tt.pause}
		require.Equal(t, tt.want, e.resetOf(tt.l, now).Sub(now), name)
	}
}

// A response may be of the window that is known if its reset differs by little and it states no more
// units. One of another size is of another limit if its window ends at another time.
func TestEstimate_comparesWindows(t *testing.T) {
	now := time.Unix(1000, 0)
	rough := 2 * tolerance
	for name, tt := range map[string]struct {
		over, bucket bool
		left         int64
		apart        time.Duration
		want         bool
	}{
		"the same":              {false, false, 50, 0, true},
		"more units":            {false, false, 51, 0, false},
		"later":                 {false, false, 50, rough - 1, true},
		"too late":              {false, false, 50, rough, false},
		"earlier":               {false, false, 50, -rough + 1, true},
		"too early":             {false, false, 50, -rough, false},
		"bucket":                {false, true, 50, time.Hour, true},
		"bucket, more units":    {false, true, 51, time.Hour, false},
		"the window is over":    {true, false, 100, time.Hour, true},
		"the windows are equal": {true, false, 50, 0, true},
	} {
		e := estimate{limit: 100, remaining: 50, at: now, reset: now.Add(time.Minute)}
		l := throttle.RemoteLimit{Limit: 100, Remaining: tt.left, ResetAfter: time.Minute + tt.apart}
		if tt.over {
			e.reset = now
		}
		if tt.bucket {
			e.refill.kind = refillsEvenly
		}
		require.Equal(t, tt.want, e.mayBeSameWindow(l, now), name)
	}
	for name, tt := range map[string]struct {
		over   bool
		window time.Duration // the longest that was stated
		reset  time.Duration // 0: not stated
		want   bool
	}{
		"ends at that time":     {false, time.Minute, time.Minute + rough, false},
		"ends later":            {false, time.Minute, time.Minute + rough + 1, true},
		"ends earlier":          {false, time.Minute, time.Minute - rough - 1, true},
		"nothing is stated":     {false, time.Minute, 0, false},
		"next window":           {true, time.Minute, 2*time.Minute + rough, false},
		"a much longer one":     {true, time.Minute, 2*time.Minute + rough + 1, true},
		"longer than not known": {true, 0, time.Hour, false},
	} {
		e := estimate{reset: now.Add(time.Minute), others: otherClients{window: tt.window}}
		if tt.over {
			e.reset = now
		}
		require.Equal(t, tt.want, e.isOtherWindow(throttle.RemoteLimit{ResetAfter: tt.reset}, now), name)
	}
	for name, tt := range map[string]struct {
		l              throttle.RemoteLimit
		counts, resets bool
	}{
		"requests":    {throttle.RemoteLimit{Unit: "requests"}, true, false},
		"no unit":     {throttle.RemoteLimit{ResetAfter: 1}, true, true},
		"concurrency": {throttle.RemoteLimit{Unit: unitConcurrent, Per: 1}, true, true},
		"tokens":      {throttle.RemoteLimit{Unit: "tokens"}, false, false},
		"not known":   {throttle.RemoteLimit{RemainingUnknown: true}, false, false},
	} {
		require.Equal(t, tt.counts, countsRequests(tt.l), name)
		require.Equal(t, tt.resets, statesReset(tt.l), name)
	}
}

// Of a bucket, no more than its limit is left. Three responses in a row that state an unused limit
// about to reset show one that is full; a response that states less than half of it ends that.
func TestEstimate_fullBuckets(t *testing.T) {
	start := time.Unix(1000, 0)
	e := estimate{limit: 100, remaining: 90, at: start, refill: refill{kind: refillsEvenly, rate: 10}}
	require.EqualValues(t, 95, e.left(start.Add(500*time.Millisecond)))
	require.EqualValues(t, 100, e.left(start.Add(time.Hour)))
	for _, step := range []struct {
		limit, left int64
		reset       time.Duration
		want        uint8
	}{
		{100, 99, 49 * time.Millisecond, 1}, {100, 98, time.Millisecond, 1}, {100, 100, time.Millisecond, 2}, {100, 99, 50 * time.Millisecond, 2},
		{100, 99, time.Millisecond, 3}, {100, 99, time.Millisecond, 3}, {100, 50, time.Millisecond, 3}, {100, 49, time.Millisecond, 0},
		{1, 1, time.Millisecond, 0}, {2, 2, time.Millisecond, 1},
	} {
		e.lastSent = 0
		e.update(throttle.RemoteLimit{Limit: step.limit, Remaining: step.left, ResetAfter: step.reset}, 1, start, &inFlight{})
		require.Equal(t, step.want, e.numUnused, "%+v", step)
	}
}

// describedInRejections serves 20 requests per 10 s and states that in rejections only. Its windows
// begin with the first request or, if aligned, at multiples of ten seconds.
func describedInRejections(aligned bool) server {
	const limit, per = 20, 10 * time.Second
	var end time.Time
	used := 0
	return func(now time.Time) (int, http.Header) {
		if !now.Before(end) {
			end, used = now.Add(per), 0
			if aligned {
				end = now.Truncate(per).Add(per)
			}
		}
		if used++; used <= limit {
			return 200, nil
		}
		left := strconv.Itoa(int((end.Sub(now) + time.Second - 1) / time.Second))
		return 429, http.Header{"Ratelimit-Limit": {"20"}, "Ratelimit-Remaining": {"0"}, "Ratelimit-Reset": {left}}
	}
}

// A limit that only rejections describe is counted: in jobs with pauses between them, a few requests
// are rejected, and no window is waited for longer than it lasts.
func TestTracker_countsWindowsThatRejectionsDescribe(t *testing.T) {
	for name, tt := range map[string]struct {
		aligned  bool
		idle     time.Duration // after each of 12 jobs of 50 requests
		rejected int
		elapsed  time.Duration // without idle time
	}{
		"one after another":          {false, 0, 13, 295 * time.Second},
		"one after another, aligned": {true, 0, 13, 295 * time.Second},
		"pauses":                     {false, 13 * time.Second, 15, 245 * time.Second},
		"pauses, aligned":            {true, 13 * time.Second, 13, 215 * time.Second},
		"long pauses":                {false, 47300 * time.Millisecond, 15, 245 * time.Second},
		"long pauses, aligned":       {true, 47300 * time.Millisecond, 13, 165 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			tr, s := seeded(1), describedInRejections(tt.aligned)
			rejected, elapsed := 0, time.Duration(0)
			for range 12 {
				j := play(t, tr, s, 50, 10, 20*time.Millisecond)
				require.Zero(t, j.failed, name)
				rejected, elapsed = rejected+j.throttled, elapsed+j.elapsed
				time.Sleep(tt.idle)
			}
			require.LessOrEqual(t, rejected, tt.rejected, name)
			require.LessOrEqual(t, elapsed, tt.elapsed, name)
		})
	}
}

// A rejection of a newer claim, long before a counted window is used up, shows that units come back in
// another way.
func TestEstimate_rejectionsRefuteCountedWindows(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	usedUp := throttle.RemoteLimit{Limit: 10, ResetAfter: time.Minute}
	for n, newer := range map[uint64]bool{5: false, 6: true} {
		for _, rejected := range []bool{false, true} {
			e := estimate{limit: 10, remaining: 9, at: now, reset: now.Add(time.Minute), lastSent: 5, counted: countedWindows{on: true, length: time.Minute}}
			e.updateByResponse(usedUp, n, rejected, false, now, &inFlight{sent: 6})
			require.Equal(t, newer && rejected, e.counted.refuted, "%d, %v", n, rejected)
		}
	}
	for _, accepted := range []bool{false, true} {
		e := estimate{limit: 10, remaining: 9, at: now, reset: now.Add(time.Minute), counted: countedWindows{on: true, length: time.Minute}}
		e.updateByResponse(usedUp, 1, false, accepted, now, &inFlight{sent: 1})
		require.Equal(t, !accepted, e.counted.on, "responses to accepted requests state the limit")
	}
}
