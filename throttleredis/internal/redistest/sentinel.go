package redistest

// SentinelMaster is the name of the master in the configuration of StartSentinel.
const SentinelMaster = "master"

// StartSentinel starts a master, a replica that is in sync with it, and a sentinel that
// monitors both. Only the sentinel decides on a failover: send it "SENTINEL", "FAILOVER",
// SentinelMaster.
func StartSentinel(t T) (sentinel, master, replica *Server) {
	t.Helper()
	master = Start(t, "--repl-diskless-sync-delay", "0")
	host, port := master.HostPort()
	replica = Start(t, "--replicaof", host+" "+port, "--replica-announce-ip", host)
	Await(t, "the replica to be in sync", func() bool {
		role, _ := replica.do(t, "ROLE").([]any)
		return len(role) > 3 && role[3] == "connected"
	})
	configuration := "sentinel monitor " + SentinelMaster + " " + host + " " + port + " 1\n"
	sentinel = start(t, configuration, []string{"--sentinel"})
	Await(t, "the sentinel to know of the replica", func() bool {
		known, _ := sentinel.do(t, "SENTINEL", "REPLICAS", SentinelMaster).([]any)
		return len(known) == 1
	})
	return sentinel, master, replica
}
