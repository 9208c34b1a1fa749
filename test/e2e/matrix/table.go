package matrix

import (
	"fmt"
	"slices"
	"time"

	"kubelot.dev/test/testbed/controlplane"
)

// action is what is done to a part.
type action string

const (
	kill    action = "SIGKILL"
	freeze  action = "SIGSTOP"
	restart action = "restart"
	absence action = "away"
	version action = "other version"
)

var actions = []action{kill, freeze, restart, absence, version}

// The parts that aren't one of kubelot's daemons.
const (
	crew       = "all daemons"
	containerd = "containerd"
	apiserver  = "API server"
)

var (
	daemons = []string{"bus", "podsync", "pleg", "status", "lease", "probe", "gc", "volume", "resource", "stats", "api"}
	parts   = append(slices.Clone(daemons), crew, containerd, apiserver)
)

// Times are how long a part is frozen and away.
type Times struct{ Frozen, Away time.Duration }

var (
	full  = Times{Frozen: time.Minute, Away: 5 * time.Minute}
	short = Times{Frozen: 5 * time.Second, Away: 15 * time.Second}
)

// missing says why a cell can't be, or where it is instead; empty for a cell of this table.
func missing(part string, a action) string {
	if a != version {
		return ""
	}
	switch part {
	case containerd:
		return "TestRuntimeUpgrade of test/e2e/crash has it"
	case apiserver:
		return "the API server's version is the cluster's affair"
	}
	return ""
}

// vital are the daemons without which a node isn't Ready (docs/adr/0011). resource isn't one of them here: the node has
// neither a policy by which it gives pods CPUs or memory, nor a plugin.
var vital = []string{"podsync", "pleg", "volume", "probe", "status", crew}

const (
	// vitalGrace is how long a vital daemon may be stopped.
	vitalGrace = 30 * time.Second
	// runtimeGrace is how long the runtime may give no answer; the kubelet's is the same.
	runtimeGrace = 30 * time.Second
	// clientGrace is how long kubectl waits for an answer to its pings (client-go's remotecommand).
	clientGrace = time.Minute
)

// Allows says why the node may be not Ready while something happens to a part ("podsync", "all daemons"), and why
// sessions through the API may end; empty where neither may be. What happens is called as in the table: "SIGSTOP",
// "away".
func Allows(part, happens string, t Times) (turns, ends string) {
	return nodeTurns(part, action(happens), t), sessionsEnd(part, action(happens), t)
}

// nodeTurns says why the node may be not Ready for a while, as it must where nobody does a vital daemon's work; empty
// where it must stay Ready.
func nodeTurns(part string, a action, t Times) string {
	switch {
	case a == absence && slices.Contains(vital, part) && t.Away > vitalGrace:
		return fmt.Sprintf("a vital daemon is away for more than %s", vitalGrace)
	case a == freeze && part == containerd && t.Frozen > runtimeGrace,
		a == absence && part == containerd && t.Away > runtimeGrace:
		return fmt.Sprintf("the runtime gives no answer for more than %s, as with the kubelet", runtimeGrace)
	case a == absence && (part == "lease" || part == apiserver) && t.Away > controlplane.NodeMonitorGracePeriod:
		return "nobody renews the lease"
	}
	return ""
}

// renewed reports whether the lease must be renewed all the time.
func renewed(part string, a action) bool {
	holds := part == "lease" || part == crew || part == apiserver
	return !holds || a != freeze && a != absence
}

// sessionsEnd says why a session ends; empty where it must live on.
func sessionsEnd(part string, a action, t Times) string {
	through := part == "api" || part == crew || part == apiserver
	switch {
	case a == freeze && through && t.Frozen >= clientGrace:
		return fmt.Sprintf("kubectl ends one without an answer for %s", clientGrace)
	case a == freeze:
		return ""
	case through:
		return "the session goes through it"
	case part == containerd:
		return "the runtime carries the session"
	}
	return ""
}

// cell is one field of the table with what a run showed.
type cell struct {
	Part   string `json:"part"`
	Action action `json:"action"`
	// Converged is how long after the part's return all was as wanted, in milliseconds, and Limit what was allowed.
	Converged int64 `json:"converged"`
	Limit     int64 `json:"limit"`
	// Full is true for a run with the times of the requirement.
	Full bool `json:"full"`
	// Note says what the cell allows, or why it was left out.
	Note string `json:"note"`
}
