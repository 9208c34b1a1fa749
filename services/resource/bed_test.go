package resource

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"k8s.io/utils/cpuset"

	"kubelot.dev/bus"
	"kubelot.dev/bus/bustest"
	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon"
	"kubelot.dev/services/resource/internal/cpus"
	"kubelot.dev/services/resource/internal/deviceplugin"
	"kubelot.dev/services/resource/internal/devices"
	"kubelot.dev/services/resource/internal/machine"
	"kubelot.dev/services/resource/internal/memory"
	"kubelot.dev/services/resource/internal/metrics"
	"kubelot.dev/services/resource/internal/numa"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const gpu, nic = "vendor.example/gpu", "vendor.example/nic"

// bed is the daemon on a bus in memory, on a machine of four CPUs, all in a synctest bubble. The test is podsync and
// the device plugins.
type bed struct {
	t       *testing.T
	bus     *bustest.Bus
	others  *bus.Conn
	pods    *bus.Writer[topic.Pod]
	sources *bus.Writer[topic.Sources]
	dir     string
	policy  string // of the CPU manager
	// memory is how much of it the machine has, in bytes, under the policy Static of the memory manager; 0 is None.
	memory uint64
	// reserved are the CPUs that nobody gets under the policy static.
	reserved cpuset.CPUSet
	// align is the topology manager's; its nodes are the machine's NUMA nodes, of which the first has the CPUs. With
	// perNode each has so many.
	align    numa.Config
	perNode  int
	registry *prometheus.Registry
	// booted is when the machine was, by its clock; zero for long ago.
	booted time.Time
	// claims are those of the next start; nil for none.
	claims Claims
	// sleeper is that of the next start; nil for none.
	sleeper sleeper
	// announce is that of the next start.
	announce announced

	service *Service
	stop    func()

	mu        sync.Mutex
	asked     []string // "Allocate RESOURCE IDS"
	hang      map[string]chan struct{}
	deaf      chan struct{} // until it is closed Allocate doesn't return, whatever its context says
	fail      error
	written   error          // what writing the state files fails with
	preparing time.Duration  // how long PreStart takes
	strange   bool           // whether nobody knows yet what plugins want to be asked
	options   map[string]int // how often it was looked what they want, by resource
	events    []string
	health    string
}

func inBubble(t *testing.T, test func(b *bed)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		b := &bed{
			t: t, bus: bustest.New(), dir: dir, policy: cpus.PolicyNone, hang: map[string]chan struct{}{},
			options: map[string]int{}, announce: nowhere{},
			reserved: cpuset.New(0), align: numa.Config{Policy: numa.PolicyNone, Nodes: []machine.Node{{ID: 0}}},
		}
		b.others = b.bus.Conn("podsync")
		b.pods, b.sources = topic.PodUpdate.Writer(b.others), topic.PodSources.Writer(b.others)
		b.start()
		b.settle()
		test(b)
		b.stop()
		b.others.Close()
	})
}

// start starts the daemon, on what an earlier one has left.
func (b *bed) start() {
	conn := b.bus.Conn("resource")
	env := daemon.Env{Bus: conn, Log: slog.New(slog.NewTextHandler(b.t.Output(), nil)), Health: b, Events: b}
	h := &holdings{devices: devices.New(), policies: policies{cpu: b.policy, memory: memory.PolicyNone}}
	topology := machine.Topology{CPUs: map[int]machine.CPU{}, Nodes: b.align.Nodes}
	for _, n := range topology.Nodes {
		h.nodes = append(h.nodes, n.ID)
		h.remembering = h.nodes
	}
	for id := range max(4, b.perNode*len(topology.Nodes)) {
		topology.CPUs[id] = machine.CPU{Core: id, Node: id / max(b.perNode, 4)}
	}
	var errs [3]error
	h.policy, errs[0] = numa.New(b.align)
	config := cpus.Config{Machine: topology, Policy: b.policy}
	if b.policy == cpus.PolicyStatic {
		config.Reserved = b.reserved
	}
	h.cpus, errs[1] = cpus.New(config)
	if b.memory > 0 {
		h.policies.memory = memory.PolicyStatic
		reserved := memory.Reserved{0: {corev1.ResourceMemory: 1 << 20}}
		h.memory, errs[2] = memory.New(memory.PolicyStatic, []memory.Node{{ID: 0, Memory: b.memory}}, reserved)
	} else {
		h.memory, errs[2] = memory.New(memory.PolicyNone, nil, nil)
	}
	if err := errors.Join(errs[:]...); err != nil {
		b.t.Fatal(err)
	}
	files := filesOf(b.dir, b.dir)
	before, err := readBefore(b.t.Context(), env)
	if err != nil {
		b.t.Fatal(err)
	}
	b.registry = prometheus.NewRegistry()
	if h.metrics, err = metrics.New(b.registry); err != nil {
		b.t.Fatal(err)
	}
	found := h.recall(files, before, b.booted, env.Log)
	w := newWriter(files, h, found)
	b.service = New(env, h, func(s snapshot) error {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.written != nil {
			return b.written
		}
		return w.write(s)
	})
	b.service.plugins, b.service.claims = b, b.claims
	b.service.found, b.service.announce = found, b.announce
	b.service.nap = nap{sleeper: b.sleeper, kept: keeps(h, nil)}
	ctx, cancel := context.WithCancelCause(b.t.Context())
	ended := make(chan error)
	go func() { ended <- b.service.Run(ctx) }()
	b.stop = func() {
		cancel(errors.New("the test is over"))
		if err := <-ended; err != nil {
			b.t.Error(err)
		}
		conn.Close()
	}
	synctest.Wait()
}

// static starts the daemon again, with the CPU manager's policy static.
func (b *bed) static() {
	b.stop()
	b.policy = cpus.PolicyStatic
	b.start()
}

// settle says that all sources of pods have delivered these.
func (b *bed) settle(pods ...string) {
	b.t.Helper()
	if err := b.sources.Set("", topic.Sources{Ready: true, Pods: pods}); err != nil {
		b.t.Fatal(err)
	}
	synctest.Wait()
}

// Set implements daemon.HealthReporter.
func (b *bed) Set(state topic.HealthState, message string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.health = string(state) + " " + message
}

// Record implements daemon.EventRecorder.
func (b *bed) Record(e topic.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events = append(b.events, e.Name+" "+e.Reason+": "+e.Message)
}

// Options implements Plugins.
func (b *bed) Options(name string) (deviceplugin.Options, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.options[name]++
	if b.strange {
		return deviceplugin.Options{}, false
	}
	return deviceplugin.Options{PreStart: name != nic}, true
}

// Preferred implements Plugins.
func (b *bed) Preferred(ctx context.Context, name string, available, _ []string, size int) ([]string, error) {
	if err := b.wait(ctx, "preferred "+name); err != nil {
		return nil, err
	}
	slices.Reverse(available)
	return available[:size], nil
}

// wait waits for the end of what hangs, if it does.
func (b *bed) wait(ctx context.Context, what string) error {
	b.mu.Lock()
	wait := b.hang[what]
	b.mu.Unlock()
	if wait == nil {
		return nil
	}
	select {
	case <-wait:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Allocate implements Plugins.
func (b *bed) Allocate(ctx context.Context, name string, ids []string) ([]byte, error) {
	b.mu.Lock()
	b.asked = append(b.asked, "Allocate "+name+" "+strings.Join(ids, ","))
	deaf, fail := b.deaf, b.fail
	b.mu.Unlock()
	if deaf != nil {
		<-deaf
	}
	if err := b.wait(ctx, name); err != nil {
		return nil, err
	}
	if fail != nil {
		return nil, fail
	}
	return proto.Marshal(&pluginapi.ContainerAllocateResponse{Envs: map[string]string{"IDS": strings.Join(ids, ",")}})
}

// PreStart implements Plugins.
func (b *bed) PreStart(_ context.Context, name string, ids []string) error {
	time.Sleep(b.preparing)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked = append(b.asked, "PreStart "+name+" "+strings.Join(ids, ","))
	return nil
}

func (b *bed) calls() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.asked)
}

// lists has the plugin of a resource list healthy devices.
func (b *bed) lists(name string, ids ...string) {
	r := deviceplugin.Report{Resource: name}
	for _, id := range ids {
		r.Devices = append(r.Devices, devices.Device{ID: id, Healthy: true})
	}
	b.service.report(b.t.Context(), r)
	synctest.Wait()
}

// wants states a pod with one container that has these limits.
func (b *bed) wants(uid string, limits map[corev1.ResourceName]string) *corev1.Pod {
	list := corev1.ResourceList{}
	for name, q := range limits {
		list[name] = resource.MustParse(q)
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: uid, UID: types.UID(uid)},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "app", Resources: corev1.ResourceRequirements{Limits: list, Requests: list},
		}}},
	}
	b.state(pod, topic.Syncing)
	return pod
}

func (b *bed) state(pod *corev1.Pod, lifecycle topic.Lifecycle) {
	b.t.Helper()
	if err := b.pods.Set(string(pod.UID), topic.Pod{Pod: pod, Lifecycle: lifecycle, Allocates: true}); err != nil {
		b.t.Fatal(err)
	}
	synctest.Wait()
}

// allocation is what the bus says of a pod.
func (b *bed) allocation(uid string) topic.Allocation {
	b.t.Helper()
	synctest.Wait()
	all, err := topic.PodAllocation.Read(b.t.Context(), b.others)
	if err != nil {
		b.t.Fatal(err)
	}
	return all[uid]
}

// unsaid has the bus lose what it says of a pod, as in a reboot.
func (b *bed) unsaid(uid string) {
	b.t.Helper()
	if err := topic.PodAllocation.Writer(b.others).Delete(uid); err != nil {
		b.t.Fatal(err)
	}
	synctest.Wait()
}

// says fails unless the bus says of the pod "PHASE REASON: MESSAGE", where an empty reason or message is left out.
func (b *bed) says(uid, want string) {
	b.t.Helper()
	if got := b.said(uid); got != want {
		b.t.Errorf("pod %s: %q, want %q", uid, got, want)
	}
}

// said is what the bus says of a pod, in short.
func (b *bed) said(uid string) string {
	b.t.Helper()
	a := b.allocation(uid)
	return strings.TrimSuffix(strings.TrimSpace(fmt.Sprintf("%s %s", a.Phase, a.Reason))+": "+a.Message, ": ")
}

// node is what the bus says of the node.
func (b *bed) node() topic.NodeResources {
	b.t.Helper()
	synctest.Wait()
	all, err := topic.ResourcesOfNode.Read(b.t.Context(), b.others)
	if err != nil {
		b.t.Fatal(err)
	}
	return all[""]
}

// file is the content of a state file.
func (b *bed) file(name string) string {
	data, err := os.ReadFile(filepath.Join(b.dir, name))
	if err != nil {
		b.t.Fatal(err)
	}
	return string(data)
}
