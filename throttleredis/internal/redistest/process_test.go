package redistest_test

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttleredis/internal/redistest"
)

// crashEnv is set in the process of a test that panics.
const crashEnv = "REDISTEST_CRASHES"

// A test that panics on another goroutine ends the process without any cleanup. The servers
// that it has started end as well.
func TestStart_killsServersWhenATestPanics(t *testing.T) {
	if os.Getenv(crashEnv) != "" {
		s := redistest.Start(t)
		println("address " + s.Addr)
		go panic("as a test may")
		select {}
	}
	if runtime.GOOS != "linux" {
		t.Skip("only Linux ties a process to its parent")
	}
	redistest.Start(t) // skips the test if there is no redis-server
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.timeout=1m")
	cmd.Env = append(os.Environ(), crashEnv+"=1", "GORACE=", "TMPDIR="+t.TempDir())
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	addr := ""
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		if a, ok := strings.CutPrefix(lines.Text(), "address "); ok {
			addr = a
		}
	}
	require.Error(t, cmd.Wait())
	require.NotEmpty(t, addr)
	redistest.Await(t, "the server to end", func() bool {
		c, err := net.DialTimeout("tcp", addr, time.Second)
		if err == nil {
			c.Close()
		}
		return err != nil
	})
}
