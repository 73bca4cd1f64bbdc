package redistest

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A Server is a separate redis-server on a loopback address. Its methods must not be called
// concurrently.
type Server struct {
	// Addr is host:port. It stays the same after a restart.
	Addr string

	t       T
	program string
	args    []string
	process *process // nil: it was killed
}

// A process is one run of a server.
type process struct {
	cmd    *exec.Cmd
	output bytes.Buffer    // readable when the process has ended
	ended  <-chan struct{} // closed when the process has ended
}

// Start runs a redis-server until the test ends. args are options of redis-server. By
// default the server stores nothing on disk; with "--appendonly", "yes", "--appendfsync",
// "always" a killed server keeps all writes that it has responded to.
//
// If redis-server is not installed, Start skips the test, or fails it in CI.
func Start(t T, args ...string) *Server {
	t.Helper()
	return start(t, "", args)
}

// start runs a redis-server with the text of a configuration file, which may be empty. The
// server may write to the file.
func start(t T, configuration string, args []string) *Server {
	t.Helper()
	s := &Server{t: t, program: installed(t, "redis-server")}
	dir, err := os.MkdirTemp("", "redistest")
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	t.Cleanup(func() {
		s.Kill()
		_ = os.RemoveAll(dir)
	})
	file := filepath.Join(dir, "redis.conf")
	if err := os.WriteFile(file, []byte(configuration), 0o600); err != nil {
		t.Fatalf("redistest: %v", err)
	}
	options := []string{"--bind", host, "--dir", dir, "--save", "", "--appendonly", "no", "--daemonize", "no"}
	for range 20 {
		port := freePort()
		s.Addr = address(port)
		s.args = slices.Concat([]string{file, "--port", port}, options, args)
		if s.run() {
			return s
		}
		if output := s.process.output.String(); !strings.Contains(output, "Address already in use") {
			t.Fatalf("redistest: the server ended: %s", output)
		}
	}
	t.Fatalf("redistest: found no free port in 20 attempts")
	return nil
}

// StartN starts n independent servers, such as those of a redis.Ring.
func StartN(t T, n int, args ...string) (all []*Server) {
	t.Helper()
	for range n {
		all = append(all, Start(t, args...))
	}
	return all
}

// HostPort returns the host and the port of Addr.
func (s *Server) HostPort() (host, port string) {
	host, port, _ = net.SplitHostPort(s.Addr)
	return host, port
}

// Kill ends the server as kill -9 does, and returns when it has ended. It has no effect on
// a server that was already killed.
func (s *Server) Kill() {
	if s.process == nil {
		return
	}
	_ = s.process.cmd.Process.Kill()
	<-s.process.ended
	s.process = nil
}

// Restart starts a killed server again at the same address, and returns when it responds.
func (s *Server) Restart() {
	s.t.Helper()
	if s.process != nil {
		s.t.Fatalf("redistest: Restart: the server at %s is running: kill it first", s.Addr)
	}
	if !s.run() {
		s.t.Fatalf("redistest: Restart: the server ended: %s", &s.process.output)
	}
}

// run starts the program and waits until it responds. It returns false if the program has
// ended.
func (s *Server) run() bool {
	s.t.Helper()
	p := &process{cmd: exec.Command(s.program, s.args...)}
	p.cmd.Stdout, p.cmd.Stderr = &p.output, &p.output
	var err error
	if p.ended, err = StartProcess(p.cmd); err != nil {
		s.t.Fatalf("redistest: %v", err)
	}
	s.process = p
	Await(s.t, "an answer of the server at "+s.Addr, func() bool { return p.hasEnded() || ping(s.Addr) })
	return !p.hasEnded()
}

func (p *process) hasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// ping reports whether a server at addr responds and has loaded its data.
func ping(addr string) bool {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return false
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return false
	}
	reply := make([]byte, 16)
	n, _ := conn.Read(reply)
	return strings.HasPrefix(string(reply[:n]), "+PONG")
}

// installed returns the path of a program.
func installed(t T, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil && os.Getenv("CI") == "true" {
		t.Fatalf("%s must be installed in CI: %v", program, err)
	} else if err != nil {
		t.Skipf("%s is not installed: %v", program, err)
	}
	return path
}
