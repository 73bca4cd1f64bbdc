package throttleredis

import (
	"context"
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/*.lua
var luaFiles embed.FS

// A script decides on one or several limits. There is one script for each list of
// algorithms, independent of the configuration of the limits, so that Redis stores few
// scripts.
type script struct{ text, sha any } // arguments of commands

// algorithms describes the files of that name.
var algorithms = map[string]struct {
	arguments int    // number of arguments of a limit
	needs     string // other files, separated by spaces
	format    int    // version of the stored data; raised when a script cannot read the previous one
}{
	"tokenbucket":    {arguments: 3, needs: "rescale", format: 2},
	"refillbucket":   {arguments: 4, format: 2},
	"leakybucket":    {arguments: 6, needs: "rescale", format: 2},
	"tickqueue":      {arguments: 4, needs: "division"},
	"nginx":          {arguments: 3},
	"fixedwindow":    {arguments: 7},
	"slidinglog":     {arguments: 5, needs: "division monotonic", format: 2},
	"slidingcounter": {arguments: 3, needs: "division"},
	"concurrency":    {arguments: 2, needs: "monotonic", format: 2},
	"warmup":         {arguments: 9},
	"ban":            {arguments: 5, format: 2},
}

var scripts sync.Map // from lists of algorithms to *script

// scriptOf returns the script for limits of the given algorithms, in their order. Each
// algorithm is a file with functions: see lua/head.lua.
func scriptOf(names ...string) *script {
	list := strings.Join(names, ", ")
	if s, ok := scripts.Load(list); ok {
		return s.(*script)
	}
	text := compose(names, list)
	sum := sha1.Sum([]byte(text))
	s, _ := scripts.LoadOrStore(list, &script{text, hex.EncodeToString(sum[:])})
	return s.(*script)
}

func compose(names []string, list string) string {
	var text strings.Builder
	sizes, size := make([]string, len(names)), 0
	for i, name := range names {
		sizes[i] = strconv.Itoa(algorithms[name].arguments)
		size += algorithms[name].arguments
	}
	fmt.Fprintf(&text, "%s\nlocal args, parts = {unpack('<%s', ARGV[1])}, %d\n", readLua("head"), strings.Repeat("d", size), len(names))
	for i, name := range names {
		a := algorithms[name]
		for _, file := range strings.Fields(a.needs) {
			if !strings.Contains(text.String(), readLua(file)) {
				text.WriteString("\n" + readLua(file))
			}
		}
		if !slices.Contains(names[:i], name) {
			fmt.Fprintf(&text, "\nlocal %s = (function()\n%send)()\n", name, readLua(name))
		}
	}
	if len(names) == 1 {
		fmt.Fprintf(&text, "\nlocal limit = %s\n\n%s", list, readLua("single"))
	} else {
		fmt.Fprintf(&text, "\nlocal limits, sizes = {%s}, {%s}\n\n%s", list, strings.Join(sizes, ", "), readLua("multi"))
	}
	return text.String() + "\n" + readLua("tail")
}

// readLua returns the text of an embedded Lua file.
func readLua(name string) string {
	text, err := luaFiles.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic("throttleredis: " + err.Error()) // a programming error, which every test detects
	}
	return string(text)
}

// A processor is a client that processes a command. All clients of go-redis implement it.
type processor interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

// run runs s for one claim. A StringCmd takes fewer allocations than a Cmd, whose reply is of
// unknown type: these, and the copies of Eval, are a third of the cost of a decision on the client.
func (s *script) run(ctx context.Context, st *Store, k *call) (reply string, err error) {
	if _, ok := st.Client.(processor); !ok {
		all, err := s.runAll(ctx, st, k.command())
		return redis.NewCmdResult(all, err).Text()
	}
	args := k.command()
	err = s.send(args, func() error {
		cmd := redis.NewStringCmd(ctx, args...)
		cmd.SetFirstKeyPos(3)
		st.process(ctx, cmd)
		reply, err = cmd.Result()
		return err
	})
	return reply, err
}

// runAll runs s for one or several claims. args are the command, of which runAll sets the first two.
func (s *script) runAll(ctx context.Context, st *Store, args []any) (reply any, err error) {
	err = s.send(args, func() error {
		cmd := redis.NewCmd(ctx, args...)
		cmd.SetFirstKeyPos(3)
		st.process(ctx, cmd)
		reply, err = cmd.Result()
		return err
	})
	return reply, err
}

var evalSHA, eval any = "evalsha", "eval"

// send calls process for args with the hash of s, and if the server does not have s, with its text.
func (s *script) send(args []any, process func() error) error {
	args[0], args[1] = evalSHA, s.sha
	err := process()
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		args[0], args[1] = eval, s.text
		err = process()
	}
	return err
}

// process processes cmd, which holds the error. In Mode Leased the client does not repeat it, because
// units that are returned twice would exceed the limit.
func (s *Store) process(ctx context.Context, cmd redis.Cmder) {
	switch p, ok := s.Client.(processor); {
	case !ok:
		s.eval(ctx, cmd.(*redis.Cmd))
	case s.Mode == Leased:
		_ = p.Process(ctx, sentOnce(cmd))
	default:
		_ = p.Process(ctx, cmd)
	}
}

// eval processes cmd by a client that is no processor.
func (s *Store) eval(ctx context.Context, cmd *redis.Cmd) {
	run, args := s.Client.EvalSha, cmd.Args()
	if args[0] == eval {
		run = s.Client.Eval
	}
	first := 3 + args[2].(int)
	var keys []string
	for _, key := range args[3:first] {
		keys = append(keys, key.(string))
	}
	rest := slices.Clone(args[first:])
	if claim, ok := rest[1].(*claimArg); ok {
		rest[1], _ = claim.MarshalBinary()
	}
	reply, err := run(ctx, args[1].(string), keys, rest...).Result()
	cmd.SetVal(reply)
	cmd.SetErr(err)
}

// sentOnce returns cmd as a command that the client does not repeat after an error. Clients use methods
// of commands that redis.Cmder does not have.
func sentOnce(cmd redis.Cmder) redis.Cmder {
	if text, ok := cmd.(*redis.StringCmd); ok {
		return sentOnceStringCmd{text}
	}
	return sentOnceCmd{cmd.(*redis.Cmd)}
}

type sentOnceCmd struct{ *redis.Cmd }

// NoRetry implements redis.Cmder.
func (sentOnceCmd) NoRetry() bool { return true }

type sentOnceStringCmd struct{ *redis.StringCmd }

// NoRetry implements redis.Cmder.
func (sentOnceStringCmd) NoRetry() bool { return true }
