package fleet

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var start = time.Unix(1_700_000_000, 0)

// A value is valid until its end, and its account is forgotten when it has none.
func TestStore_keepsTheLatestValue(t *testing.T) {
	var s store[int]
	s.put("a", "1", 1, start.Add(time.Minute), start)
	s.put("a", "1", 2, start.Add(time.Second), start)
	for after, valid := range map[time.Duration]bool{0: true, time.Second - 1: true, time.Second: false, time.Minute: false} {
		value, found := s.find("a", "1", start.Add(after))
		require.Equal(t, valid, found, after)
		require.Equal(t, 2, value)
		require.Equal(t, valid, len(s.get("a", start.Add(after))) == 1, after)
	}
	s.put("a", "2", 3, start.Add(time.Second), start)
	s.remove("a", "1")
	require.Equal(t, []int{3}, s.get("a", start))
	s.remove("a", "2")
	s.remove("b", "1")
	require.Empty(t, s.accounts)
}

// A ninth quota of an account replaces one that is no longer valid, or any one if all are valid.
func TestStore_replacesAQuotaThatIsOver(t *testing.T) {
	for range 50 {
		var s store[int]
		for i := range 8 {
			until := start.Add(time.Hour)
			if i == 3 {
				until = start.Add(time.Second)
			}
			s.put("a", fmt.Sprint(i), i, until, start)
		}
		now := start.Add(time.Second)
		s.put("a", "8", 8, start.Add(time.Hour), now)
		require.ElementsMatch(t, []int{0, 1, 2, 4, 5, 6, 7, 8}, s.get("a", now))
		s.put("a", "8", 9, start.Add(time.Hour), now)
		require.ElementsMatch(t, []int{0, 1, 2, 4, 5, 6, 7, 9}, s.get("a", now), "not one more")
		s.put("a", "10", 10, start.Add(time.Hour), now)
		require.Len(t, s.get("a", now), 8)
		require.Contains(t, s.get("a", now), 10)
	}
}

// One more account than are kept replaces one without valid values, if it is found.
func TestStore_replacesAnAccountThatIsOver(t *testing.T) {
	var s store[int]
	s.put("valid", "1", 1, start.Add(time.Hour), start)
	for i := range 1023 {
		s.put(fmt.Sprint(i), "1", i, start.Add(time.Second), start)
	}
	require.Len(t, s.accounts, 1024)
	now := start.Add(time.Second)
	for i := range 500 {
		s.put(fmt.Sprint("other", i), "1", i, now, now) // never valid
		require.Len(t, s.accounts, 1024)
		require.Equal(t, []int{1}, s.get("valid", now))
	}
}
