package rules

import (
	"context"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/warmup"
)

// each algorithm, with every number that a file can say.
var specs = map[string]Spec{
	"token_bucket":    throttle.Limit{Count: 10, Per: time.Minute, Burst: 5},
	"refill":          throttle.Refill{Limit: throttle.Limit{Count: 10, Per: time.Minute, Burst: 5}},
	"leaky_bucket":    throttle.Leak{Limit: throttle.Limit{Count: 10, Per: time.Minute, Burst: 5}, Queue: 3},
	"fixed_window":    throttle.Quota{Count: 10, Per: time.Minute},
	"calendar":        throttle.Quota{Count: 10, Anchor: throttle.EachDay, Zone: time.UTC},
	"sliding_log":     throttle.Log{Limit: throttle.Limit{Count: 10, Per: time.Minute}, MinGap: time.Second},
	"sliding_counter": throttle.Counter{Limit: throttle.Limit{Count: 10, Per: time.Minute}},
	"sub_windows":     throttle.Parts{Limit: throttle.Limit{Count: 10, Per: time.Minute}, Parts: 6},
	"nginx":           throttle.LimitReq{Rate: 10, Per: time.Second, Burst: 5, Delay: 2},
	"in_flight":       throttle.Capacity{Count: 10, MaxAge: time.Minute},
	"warm_up":         warmup.Curve{Limit: throttle.Limit{Count: 10, Per: time.Minute}, Over: time.Minute, Cold: 2, Outage: time.Hour},
}

// TestDefinition_missesNothing changes each field of a limit, and of what it allows,
// and looks whether that can be seen.
func TestDefinition_missesNothing(t *testing.T) {
	noWords := []string{"Name", "Missing", "Refill.Anchor", "Split", "Floor"} // a file cannot say these of a spec
	for name, s := range specs {
		changed(reflect.ValueOf(s), func(field string, v reflect.Value) {
			if name == "fixed_window" && field == "Zone" {
				return // only the calendar has one
			}
			if !slices.Contains(noWords, field) && !slices.Contains(noWords, v.Type().Name()+"."+field) {
				require.NotEqual(t, describe(s), describe(v.Interface().(Spec)), "%s %s", name, field)
			}
		})
	}
	nowhere := []string{"Place", "Line", "Column", "Keyed", "Blocked", "Unlimited"} // the last three show in others
	l := Limit{Name: "a", Spec: specs["token_bucket"], Penalty: &throttle.Sentence{}, Active: []Period{{Spec: specs["token_bucket"]}}, Cost: 1, Keyed: true}
	changed(reflect.ValueOf(l), func(field string, v reflect.Value) {
		if !slices.Contains(nowhere, field) {
			other := v.Interface().(Limit)
			require.NotEqual(t, l.definition(), other.definition(), field)
		}
	})
	p := Period{From: time.Hour, To: 2 * time.Hour, Days: EveryDay, Zone: time.UTC, Spec: specs["refill"]}
	changed(reflect.ValueOf(p), func(field string, v reflect.Value) {
		other := v.Interface().(Period)
		require.NotEqual(t, p.text(), other.text(), field)
	})
	blocked, unlimited := Limit{Blocked: true}, Limit{Unlimited: true}
	require.NotEqual(t, blocked.definition(), unlimited.definition())
	s := throttle.Sentence{After: 1, Within: time.Second, For: time.Minute}
	changed(reflect.ValueOf(s), func(field string, v reflect.Value) {
		other := v.Interface().(throttle.Sentence)
		require.NotEqual(t, penaltyText(&s), penaltyText(&other), field)
	})
}

// changed tells copies of a struct, each with another field changed; of a struct in
// it, each of its fields.
func changed(s reflect.Value, tell func(field string, v reflect.Value)) {
	for i := range s.NumField() {
		f := s.Type().Field(i)
		with := reflect.New(s.Type()).Elem()
		with.Set(s)
		if !f.IsExported() {
			continue
		}
		if f.Anonymous {
			changed(s.Field(i), func(field string, v reflect.Value) {
				with.Field(i).Set(v)
				tell(field, with)
			})
			continue
		}
		at := with.Field(i)
		switch at.Interface().(type) {
		case time.Duration:
			at.SetInt(at.Int() + int64(7*time.Second))
		case int64, int:
			at.SetInt(at.Int() + 7)
		case Weekdays:
			at.SetUint(1)
		case float64:
			at.SetFloat(at.Float() + 1)
		case bool:
			at.SetBool(!at.Bool())
		case string:
			at.SetString(at.String() + "x")
		case throttle.Anchor:
			at.Set(reflect.ValueOf(throttle.AtFirst))
		case *time.Location:
			at.Set(reflect.ValueOf(time.FixedZone("elsewhere", 3600)))
		case time.Time:
			at.Set(reflect.ValueOf(time.Unix(7, 0)))
		default:
			if at.Kind() == reflect.Slice {
				at.Set(reflect.Append(at, reflect.New(at.Type().Elem()).Elem()))
			} else if at.Kind() == reflect.Interface {
				at.Set(reflect.ValueOf(Spec(throttle.Quota{Count: 3, Per: time.Second})))
			} else if at.Kind() == reflect.Pointer {
				at.Set(reflect.Zero(at.Type()))
			}
		}
		tell(f.Name, with)
	}
}

// larger returns s with another count.
func larger(s Spec) Spec {
	v := reflect.New(reflect.TypeOf(s)).Elem()
	v.Set(reflect.ValueOf(s))
	f := v.FieldByName("Count")
	if !f.IsValid() {
		f = v.FieldByName("Rate")
	}
	f.SetInt(f.Int() * 2)
	return v.Interface().(Spec)
}

// TestResize_doesWhatResizableSays resizes each limiter that says it can, and looks
// whether what was taken stays taken.
func TestResize_doesWhatResizableSays(t *testing.T) {
	ctx := context.Background()
	fixed := map[string]bool{"nginx": true, "in_flight": true}
	for name, s := range specs {
		for other, o := range specs {
			same := name == other && !fixed[name]
			require.Equal(t, same, resizable(s, o), "%s to %s", name, other)
		}
		if fixed[name] {
			continue
		}
		require.True(t, resizable(s, larger(s)), name)
		now := time.Now()
		l := newLimiter(s, nil)
		first, err := l.Reserve(ctx, throttle.Claim{Now: now})
		require.NoError(t, err)
		require.True(t, first.OK, name)
		require.NoError(t, resize(l, larger(s)), name)
		d, err := l.Reserve(ctx, throttle.Claim{Now: now, DryRun: true})
		require.NoError(t, err)
		require.Positive(t, d.ResetAfter, name)
		require.GreaterOrEqual(t, d.Limit, first.Limit, name)
	}
}
