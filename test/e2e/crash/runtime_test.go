package crash

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/test/e2e/kit"
	"kubelot.dev/test/testbed/criproxy"
	"kubelot.dev/test/testbed/node"
)

// ownBed is a bed for one test, whose node runs with these arguments.
func ownBed(t *testing.T, args func(*kit.Bed) []string) *kit.Bed {
	t.Helper()
	own := kit.StartWithoutNode(t)
	if err := own.StartNode(t.Context(), node.Kubelot, args(own)...); err != nil {
		t.Fatal(err)
	}
	return own
}

// journal reads what a bed's kubelot logs from now on.
type journal struct {
	path string
	from int
}

func newJournal(t *testing.T, b *kit.Bed) *journal {
	t.Helper()
	j := &journal{path: b.Node.LogPath()}
	j.from = len(j.read(t))
	return j
}

func (j *journal) read(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile(j.path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data[min(j.from, len(data)):])
}

// lines are those of the daemon that have all the texts.
func (j *journal) lines(t *testing.T, daemon string, texts ...string) []string {
	t.Helper()
	var found []string
	for line := range strings.Lines(j.read(t)) {
		has := strings.Contains(line, "daemon="+daemon+" ")
		for _, text := range texts {
			has = has && strings.Contains(line, text)
		}
		if has {
			found = append(found, line)
		}
	}
	return found
}

// says waits until the daemon has logged a line with all the texts.
func (j *journal) says(t *testing.T, daemon string, texts ...string) {
	t.Helper()
	kit.Eventually(t, fmt.Sprintf("%s to log %q", daemon, texts), func() error {
		if len(j.lines(t, daemon, texts...)) == 0 {
			return fmt.Errorf("it didn't; kubelot's log since then:\n%s", j.read(t))
		}
		return nil
	})
}

// TestHangingRuntime freezes containerd for longer than its calls may take and the node stays Ready without it. One
// error says what hangs and what to do, pods run on, and what is asked for meanwhile is done afterwards, once.
func TestHangingRuntime(t *testing.T) {
	t.Parallel()
	const patience = "28s" // enough for a busy machine, and less than the node's
	own := ownBed(t, func(*kit.Bed) []string { return []string{"--runtime-request-timeout=" + patience} })
	ns := own.Namespace(t)
	ns.Apply(settings)
	before, going := newHerd(t, ns, "before", 3), newHerd(t, ns, "going", 3)
	before.running(3)
	going.running(3)
	log := newJournal(t, own)
	signal := func(s syscall.Signal) {
		if err := syscall.Kill(own.CRI.PID(), s); err != nil {
			t.Fatal(err)
		}
	}
	signal(syscall.SIGSTOP)
	thawed := false
	defer func() {
		if !thawed {
			signal(syscall.SIGCONT)
		}
	}()
	h := newHerd(t, ns, "meanwhile", 3)
	going.delete()
	nodeReady(t, own, corev1.ConditionFalse, "container runtime is down", own.CRI.Socket,
		"gave no answer", "crictl info")
	log.says(t, "pleg", own.CRI.Socket, "gave no answer within "+patience, "crictl info")
	own.NodeSays(t, "the container runtime of this node hangs: it doesn't answer in time")
	signal(syscall.SIGCONT)
	thawed = true
	nodeReady(t, own, corev1.ConditionTrue)
	going.gone()
	h.running(3)
	h.delete()
	h.gone()
	unchanged(t, ns, before)
}

// nonsense is no message of protocol buffers.
var nonsense = []byte("\xff\xff\xff\xff not a message")

// fault is a call of the runtime with what becomes of it, and where that must show.
type fault struct {
	call string
	criproxy.Fault
	// reason and text are of the pods' Event.
	reason, text string
	// log is what the daemon logs.
	daemon, log string
	// ending is true where it is the end of pods that meets the fault.
	ending bool
}

// The errors that a runtime answers with.
var (
	unavailable   = status.Error(codes.Unavailable, "the plug-in is loading")
	internal      = status.Error(codes.Internal, "disk on fire")
	unimplemented = status.Error(codes.Unimplemented, "unknown method")
)

// TestRuntimeAnswersErrors has the runtime's socket answer some calls with errors and with nonsense for a while: those
// that start pods, before the runtime was asked and after it has done what it was asked for.
func TestRuntimeAnswersErrors(t *testing.T) {
	t.Parallel()
	meetAll(t, map[string]fault{
		"sandbox unavailable": {
			call: "RunPodSandbox", Fault: criproxy.Fault{Err: unavailable},
			reason: "FailedCreatePodSandBox", text: "the plug-in is loading",
		},
		"sandbox made then error": {
			call: "RunPodSandbox", Fault: criproxy.Fault{Err: internal, Done: true},
			reason: "FailedCreatePodSandBox", text: "disk on fire",
		},
		"sandbox made then nonsense": {
			call: "RunPodSandbox", Fault: criproxy.Fault{Garbage: nonsense, Done: true},
			reason: "FailedCreatePodSandBox", text: "unmarshal",
		},
		"sandbox unimplemented": {
			call: "RunPodSandbox", Fault: criproxy.Fault{Err: unimplemented},
			reason: "FailedCreatePodSandBox", text: "unknown method",
		},
		"container internal": {
			call: "CreateContainer", Fault: criproxy.Fault{Err: internal}, reason: "Failed",
			text: "disk on fire",
		},
		"container made then error": {
			call: "CreateContainer", Fault: criproxy.Fault{Err: unavailable, Done: true},
			reason: "Failed", text: "the plug-in is loading",
		},
		"container made then nonsense": {
			call: "CreateContainer", Fault: criproxy.Fault{Garbage: nonsense, Done: true},
			reason: "Failed", text: "unmarshal",
		},
		"start unavailable": {
			call: "StartContainer", Fault: criproxy.Fault{Err: unavailable}, reason: "Failed",
			text: "the plug-in is loading",
		},
		"started then error": {
			call: "StartContainer", Fault: criproxy.Fault{Err: internal, Done: true},
			reason: "Failed", text: "disk on fire",
		},
	})
}

// TestRuntimeAnswersErrorsToLooksAndStops is the same with the other calls, on a bed of its own.
func TestRuntimeAnswersErrorsToLooksAndStops(t *testing.T) {
	t.Parallel()
	meetAll(t, map[string]fault{
		"image status unavailable": {
			call: "ImageStatus", Fault: criproxy.Fault{Err: unavailable},
			reason: "InspectFailed", text: "the plug-in is loading",
		},
		"image status nonsense": {
			call: "ImageStatus", Fault: criproxy.Fault{Garbage: nonsense},
			reason: "InspectFailed", text: "unmarshal",
		},
		"lists internal": {
			call: "ListContainers", Fault: criproxy.Fault{Err: internal}, daemon: "pleg",
			log: "disk on fire",
		},
		"lists nonsense": {
			call: "ListPodSandbox", Fault: criproxy.Fault{Garbage: nonsense},
			daemon: "pleg", log: "unmarshal",
		},
		"inspection unimplemented": {
			call: "ContainerStatus", Fault: criproxy.Fault{Err: unimplemented}, daemon: "pleg",
			log: "can't be inspected; see the errors in their pleg.event",
		},
		"status nonsense": {
			call: "Status", Fault: criproxy.Fault{Garbage: nonsense},
			daemon: "pleg", log: "unmarshal",
		},
		"stop internal": {
			call: "StopContainer", Fault: criproxy.Fault{Err: internal}, ending: true,
			daemon: "podsync", log: "disk on fire",
		},
		"stopped then unavailable": {
			call: "StopPodSandbox", Fault: criproxy.Fault{Err: unavailable, Done: true},
			ending: true, daemon: "podsync", log: "the plug-in is loading",
		},
		"sandbox removed then nonsense": {
			call: "RemovePodSandbox", Fault: criproxy.Fault{Garbage: nonsense, Done: true},
			ending: true, daemon: "podsync", log: "unmarshal",
		},
	})
}

// meetAll has a node meet one fault after the other.
func meetAll(t *testing.T, faults map[string]fault) {
	t.Helper()
	var proxy *criproxy.Proxy
	own := ownBed(t, func(b *kit.Bed) []string {
		var err error
		socket := b.Bed.Path("proxy.sock")
		if proxy, err = criproxy.Start(socket, b.CRI.Socket); err != nil {
			t.Fatal(err)
		}
		return []string{"--container-runtime-endpoint=unix://" + socket}
	})
	t.Cleanup(func() {
		if err := proxy.Stop(); err != nil {
			t.Error(err)
		}
	})
	for name, f := range faults {
		t.Run(name, func(t *testing.T) { f.meet(t, own, proxy) })
	}
}

// meet lets pods start or end while the fault is there.
func (f fault) meet(t *testing.T, own *kit.Bed, proxy *criproxy.Proxy) {
	const size = 2
	ns := own.Namespace(t)
	ns.Apply(settings)
	watchFlips(t, ns)
	before := newHerd(t, ns, "before", 1)
	before.running(1)
	var h *herd
	if f.ending {
		h = newHerd(t, ns, "meets", size)
		h.running(size)
	}
	log := newJournal(t, own)
	began := time.Now()
	proxy.Spoil(f.call, f.Fault)
	defer proxy.Heal()
	if f.ending {
		h.delete()
	} else {
		h = newHerd(t, ns, "meets", size)
	}
	if f.reason != "" {
		for i := range size {
			ns.Event(fmt.Sprintf("meets-%d", i), f.reason, f.text)
		}
	} else {
		log.says(t, f.daemon, f.log)
	}
	time.Sleep(2 * time.Second) // for which it fails again and again
	spoilt := proxy.Heal()[f.call]
	lasted := time.Since(began)
	t.Logf("%d answers were spoilt in %v", spoilt, lasted)
	if spoilt > 40+20*int(lasted.Seconds()) {
		t.Errorf("%s was tried %d times in %v; want a pause between tries", f.call, spoilt, lasted)
	}
	f.quiet(t, log, 10+int(lasted.Seconds()))
	began = time.Now()
	if !f.ending {
		h.running(size)
		t.Logf("healed after %v", time.Since(began))
		h.delete()
	}
	h.gone()
	t.Logf("gone after %v", time.Since(began))
	unchanged(t, ns, before)
}

// quiet checks that no daemon fills the log with the fault, in more lines than most.
func (f fault) quiet(t *testing.T, log *journal, most int) {
	t.Helper()
	for _, daemon := range daemons {
		if lines := log.lines(t, daemon, f.call); len(lines) > most {
			t.Errorf("%s says it in %d lines:\n%s", daemon, len(lines), strings.Join(lines, ""))
		}
	}
}
