package throttleredis

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
)

// The commands that docs/redis-down.md states suffice for a user of Redis, with keys and channels of the prefix of the Store alone.
func TestLimiters_needFewRights(t *testing.T) {
	const name = "limits"
	commands := strings.Fields("eval evalsha del exists get getrange hdel hexists hget hlen hmget hscan hset pexpire pttl set setrange time unlink zadd zlexcount zrange zrangebylex zrem zremrangebyscore")
	requireCommands(t, commands)
	s := newTestStore(t)
	rights := []any{
		"ACL", "SETUSER", name, "reset", "on", ">secret", "-@all", "~" + s.Prefix + ":*",
		"+publish", "+subscribe", "+ping", "~{" + s.Prefix + ":usage}*", "&{" + s.Prefix + ":usage}*", // for Mode Eventual
	}
	for _, c := range commands {
		rights = append(rights, "+"+c)
	}
	require.NoError(t, client(t).Do(t.Context(), rights...).Err())
	defer client(t).Do(t.Context(), "ACL", "DELUSER", name)
	o := *client(t).Options()
	o.Username, o.Password = name, "secret"
	c := redis.NewClient(&o)
	defer c.Close()
	require.ErrorContains(t, c.Do(t.Context(), "CONFIG", "GET", "*").Err(), "NOPERM")
	require.ErrorContains(t, c.Set(t.Context(), "another", 1, 0).Err(), "NOPERM")
	for i, mode := range []Mode{Grouped, Synchronous, Leased} {
		limited := &Store{Client: c, Prefix: s.Prefix + ":" + strconv.Itoa(i), Mode: mode}
		eachWorksOn(t, limited)
		if mode == Leased {
			require.NoError(t, limited.Close(t.Context()))
			continue
		}
		ban := limited.Ban(keyed.BanConfig{Rejections: 2, Within: time.Hour, Duration: time.Hour}, limited.TokenBucket(throttle.PerHour(1)))
		for n := range 5 {
			require.Equal(t, n == 0, take(t, ban, "a").OK)
		}
		settled := limited.SlidingLog(throttle.SlidingLogConfig{Limit: throttle.PerHour(10)})
		claim := throttle.Claim{Key: "a", Cost: 5}
		d, err := settled.Reserve(t.Context(), claim)
		require.NoError(t, err)
		settled.Report(t.Context(), claim, d, throttle.Feedback{State: throttle.Unused})
		require.Equal(t, int64(9), take(t, settled, "a").Remaining)
	}
	var hosts []throttle.Limiter
	for range 2 {
		host := &Store{Client: c, Prefix: s.Prefix, Mode: Eventual}
		defer host.Close(t.Context())
		hosts = append(hosts, host.FixedWindow(daily(100)))
	}
	take(t, hosts[0], "k")
	require.Eventually(t, func() bool {
		d, err := hosts[1].Reserve(t.Context(), throttle.Claim{Key: "k", DryRun: true})
		return err == nil && d.Remaining < 100
	}, 30*time.Second, 10*time.Millisecond)
}

// requireCommands checks that the scripts call no others, besides PUBLISH, and that the documentation states them.
func requireCommands(t *testing.T, commands []string) {
	called := []string{"eval", "evalsha"}
	files, err := filepath.Glob("lua/*.lua")
	require.NoError(t, err)
	for _, f := range files {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`\('([A-Z]+)'`).FindAllStringSubmatch(string(text), -1) {
			called = append(called, strings.ToLower(m[1]))
		}
	}
	slices.Sort(called)
	called = slices.DeleteFunc(slices.Compact(called), func(c string) bool { return c == "publish" })
	require.ElementsMatch(t, called, commands)
	docs, err := os.ReadFile("../docs/redis-down.md")
	require.NoError(t, err)
	require.Contains(t, string(docs), "+"+strings.Join(commands, " +"))
}
