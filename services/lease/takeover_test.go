package lease

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
)

// A node that another agent has kept is Ready when kubelot takes it over, and nobody has said anything on the bus yet.
// This daemon may be the first to start. The others have a while to come.
func TestATakeoverDoesNotTurnReady(t *testing.T) {
	server := &server{}
	run(t, server, func(r *rig) {
		stop := r.start()
		r.must(r.machine.Set("", *testMachine()), r.runtime.Set("", *testRuntime()))
		r.beats()
		stop()
		r.events.take()
		r.onAnotherBus()
		defer r.start()()
		// One daemon after the other comes. Each of them wakes this one.
		r.must(r.machine.Set("", *testMachine()))
		for _, name := range append([]string{"stats"}, vital...) {
			time.Sleep(4 * time.Second)
			r.must(r.health[name].Set(name, topic.DaemonHealth{State: topic.Healthy, Beat: time.Now()}))
		}
		time.Sleep(4 * time.Second)
		if got := r.events.take(); slices.Contains(got, "NodeNotReady") {
			t.Errorf("Events %v", got)
		}
		// Nobody says anything of the runtime.
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if node, _ := server.get(); readyOf(node) != corev1.ConditionFalse {
			t.Errorf("without a word of the runtime Ready is %+v", condition(node.Status.Conditions, corev1.NodeReady))
		}
	})
}
