package metrics

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/services/podsync/internal/worker/plan"
)

func newMetrics(t *testing.T) (*Metrics, *prometheus.Registry) {
	t.Helper()
	r := prometheus.NewRegistry()
	m, err := New(r, 0)
	if err != nil {
		t.Fatal(err)
	}
	return m, r
}

// expect compares whole families.
func expect(t *testing.T, r *prometheus.Registry, text string, names ...string) {
	t.Helper()
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, strings.TrimLeft(line, "\t"))
	}
	if err := testutil.GatherAndCompare(r, strings.NewReader(strings.Join(lines, "")), names...); err != nil {
		t.Error(err)
	}
}

func testPod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "u1", CreationTimestamp: metav1.Now()},
		Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{{Name: "first"}},
			Containers:     []corev1.Container{{Name: "app", VolumeMounts: []corev1.VolumeMount{{Name: "model"}}}},
		},
	}
}

func TestTwoOnOneRegistry(t *testing.T) {
	_, r := newMetrics(t)
	if _, err := New(r, 0); err == nil || !strings.Contains(err.Error(), "metrics of podsync") {
		t.Errorf("error %v, want one that names the metrics", err)
	}
}

// The time of a start that counts for the SLI is without pulls, which may overlap, and without init containers.
func TestStartDurations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, r := newMetrics(t)
		p := testPod()
		m.Appeared(p)
		began := time.Now()
		time.Sleep(3 * time.Second)
		m.Pulled(p, began.Add(time.Second), 20<<20) // 1 s to 3 s
		time.Sleep(time.Second)
		m.Pulled(p, began.Add(2*time.Second), 0) // 2 s to 4 s
		time.Sleep(6 * time.Second)

		now := metav1.Now()
		running := p.DeepCopy()
		running.Status.StartTime = &now
		running.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name:  "app",
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}},
		}}
		obs := &topic.PodObservation{Containers: []topic.Container{
			{
				Name: "first", State: topic.ContainerExited, StartedAt: began.Add(4 * time.Second),
				FinishedAt: began.Add(6 * time.Second),
			},
			{Name: "app", State: topic.ContainerRunning, StartedAt: began.Add(6 * time.Second)},
		}}
		m.Seen(running, obs)
		expect(t, r, ``, "kubelet_pod_start_total_duration_seconds_count")
		running.Status.ContainerStatuses[0].State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{
			StartedAt: now,
		}}
		m.Seen(running, obs)
		m.Seen(running, obs)
		if total, sli, first := sum(t, r, "kubelet_pod_start_total_duration_seconds"),
			sum(t, r, "kubelet_pod_start_sli_duration_seconds"), m.first.WithLabelValues(); total != 10 || sli != 5 ||
			testutil.ToFloat64(first) != 5 {
			t.Errorf("it took %v s, %v s for the SLI, %v s for the first; want 10, 5 and 5", total, sli,
				testutil.ToFloat64(first))
		}
		if n := testutil.CollectAndCount(m.pulls); n != 2 {
			t.Errorf("%d sizes of pulled images, want 2", n)
		}
	})
}

// What isn't the node's doing, or has begun before this daemon, doesn't count.
func TestStartsThatDontCount(t *testing.T) {
	now := metav1.Now()
	for name, change := range map[string]func(p *corev1.Pod){
		"failed": func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed },
		"unschedulable": func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse}}
		},
		"no containers": func(p *corev1.Pod) { p.Status.ContainerStatuses = nil },
	} {
		m, r := newMetrics(t)
		p := testPod()
		m.Appeared(p)
		p.Status.StartTime = &now
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name:  "app",
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
		}}
		change(p)
		m.Seen(p, &topic.PodObservation{})
		if n := count(t, r, "kubelet_pod_start_total_duration_seconds"); n != 0 {
			t.Errorf("%s: counted %d times", name, n)
		}
	}
	m, r := newMetrics(t)
	p := testPod()
	p.Status.StartTime = &now
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name:  "app",
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
	}}
	m.Appeared(p)
	m.Seen(p, &topic.PodObservation{})
	stateful := testPod()
	stateful.UID = "u2"
	stateful.Spec.Volumes = []corev1.Volume{{
		Name:         "host",
		VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}},
	}}
	m.Appeared(stateful)
	stateful.Status = p.Status
	m.Seen(stateful, &topic.PodObservation{})
	if total, sli := count(t, r, "kubelet_pod_start_total_duration_seconds"),
		count(t, r, "kubelet_pod_start_sli_duration_seconds"); total != 1 || sli != 0 {
		t.Errorf("%d starts and %d of the SLI, want the stateful pod's only, and none", total, sli)
	}
}

func TestActions(t *testing.T) {
	m, r := newMetrics(t)
	p, no := testPod(), false
	p.Spec.HostUsers = &no
	p.Spec.Volumes = []corev1.Volume{{
		Name:         "model",
		VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "r"}},
	}}
	m.Done(Action{Pod: p, Kind: plan.CreateSandbox, Code: "Error", Err: errors.New("no network")})
	m.Done(Action{Pod: p, Kind: plan.CreateSandbox})
	m.Done(Action{
		Pod: p, Kind: plan.EnsureImage, Container: "app", Code: "ErrImagePull",
		Err: errors.New("no such image"),
	})
	m.Done(Action{Pod: p, Kind: plan.EnsureImage, Container: "app"})
	m.Done(Action{Pod: p, Kind: plan.StartContainer, Container: "first"})
	m.Done(Action{
		Pod: p, Kind: plan.StartContainer, Container: "app", Code: "CreateContainerError",
		Err: errors.New("ImageVolumeMountFailed: not an image"),
	})
	m.Done(Action{Pod: p, Kind: plan.StartContainer, Container: "app"})
	m.Done(Action{Pod: p, Kind: plan.StopContainer, Container: "app"})
	m.Done(Action{Pod: p, Kind: plan.ResizePod, Took: time.Second, Err: errors.New("no")})
	expect(t, r, `
		# HELP kubelet_started_pods_total Tries to start a pod: sandboxes begun.
		# TYPE kubelet_started_pods_total counter
		kubelet_started_pods_total 2
		# HELP kubelet_started_user_namespaced_pods_errors_total Sandboxes with a user namespace that could not be made.
		# TYPE kubelet_started_user_namespaced_pods_errors_total counter
		kubelet_started_user_namespaced_pods_errors_total 1
		# HELP kubelet_started_containers_total Tries to start a container, by its type.
		# TYPE kubelet_started_containers_total counter
		kubelet_started_containers_total{container_type="container"} 3
		kubelet_started_containers_total{container_type="init_container"} 1
		# HELP kubelet_started_containers_errors_total Containers that could not be started, by their type and the waiting reason.
		# TYPE kubelet_started_containers_errors_total counter
		kubelet_started_containers_errors_total{code="CreateContainerError",container_type="container"} 1
		kubelet_started_containers_errors_total{code="ErrImagePull",container_type="container"} 1
		# HELP kubelet_image_volume_mounted_errors_total Image volumes that could not be mounted.
		# TYPE kubelet_image_volume_mounted_errors_total counter
		kubelet_image_volume_mounted_errors_total 1
		# HELP kubelet_image_volume_mounted_succeed_total Image volumes mounted into containers.
		# TYPE kubelet_image_volume_mounted_succeed_total counter
		kubelet_image_volume_mounted_succeed_total 1
	`, "kubelet_started_pods_total", "kubelet_started_user_namespaced_pods_errors_total", "kubelet_started_containers_total",
		"kubelet_started_containers_errors_total", "kubelet_image_volume_mounted_errors_total",
		"kubelet_image_volume_mounted_succeed_total")
}

// An end is counted once, also where the container runs again by the time that it is recorded.
func TestEnds(t *testing.T) {
	m, r := newMetrics(t)
	seen := time.Now()
	status := func(ends ...corev1.ContainerState) *corev1.PodStatus {
		s := &corev1.PodStatus{
			Phase:             corev1.PodRunning,
			ContainerStatuses: []corev1.ContainerStatus{{Name: "app", State: ends[0]}},
		}
		if len(ends) > 1 {
			s.ContainerStatuses[0].LastTerminationState = ends[1]
		}
		return s
	}
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}
	end := func(id string, code int32, reason string) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ContainerID: id,
			ExitCode:    code, Reason: reason,
		}}
	}
	last := &corev1.PodStatus{}
	for _, next := range []*corev1.PodStatus{
		status(running), status(end("a", 1, "Error")), status(running, end("a", 1, "Error")), // told while it is down
		status(running, end("b", 137, "OOMKilled")), // told when it is up again
		status(running, end("b", 137, "OOMKilled")),
	} {
		m.Stated("u1", seen, last, next)
		last = next
	}
	expect(t, r, `
		# HELP kubelet_terminated_containers_total Containers that ended, by their type, exit code and reason.
		# TYPE kubelet_terminated_containers_total counter
		kubelet_terminated_containers_total{container_type="container",exit_code="1",reason="Error"} 1
		kubelet_terminated_containers_total{container_type="container",exit_code="137",reason="OOMKilled"} 1
	`, "kubelet_terminated_containers_total")
	if n := count(t, r, "kubelet_pod_start_duration_seconds"); n != 1 {
		t.Errorf("the pod began to run %d times, want once", n)
	}
}

func TestImages(t *testing.T) {
	m, r := newMetrics(t)
	m.ImageAsked(corev1.PullIfNotPresent, new(true), new(false))
	m.ImageAsked(corev1.PullNever, new(false), nil)
	m.PullChecked("mustAuthenticate")
	m.PullRecords(1, 5)
	m.PullRecords(0, 6)
	expect(t, r, `
		# HELP kubelet_image_manager_ensure_image_requests_total Requests of containers for their image, by pull policy, by whether it was there, and by whether it had to be pulled.
		# TYPE kubelet_image_manager_ensure_image_requests_total counter
		kubelet_image_manager_ensure_image_requests_total{present_locally="false",pull_policy="never",pull_required="unknown"} 1
		kubelet_image_manager_ensure_image_requests_total{present_locally="true",pull_policy="ifnotpresent",pull_required="false"} 1
		# HELP kubelet_imagemanager_image_mustpull_checks_total Checks whether a pod may use an image that is there without its credentials being tried, by result: credentialPolicyAllowed, credentialRecordFound, mustAuthenticate or error.
		# TYPE kubelet_imagemanager_image_mustpull_checks_total counter
		kubelet_imagemanager_image_mustpull_checks_total{result="mustAuthenticate"} 1
		# HELP kubelet_imagemanager_ondisk_pulledrecords Records of images that were pulled.
		# TYPE kubelet_imagemanager_ondisk_pulledrecords gauge
		kubelet_imagemanager_ondisk_pulledrecords 6
		# HELP kubelet_imagemanager_ondisk_pullintents Records of image pulls that are under way, or whose end wasn't seen.
		# TYPE kubelet_imagemanager_ondisk_pullintents gauge
		kubelet_imagemanager_ondisk_pullintents 0
	`, "kubelet_image_manager_ensure_image_requests_total", "kubelet_imagemanager_image_mustpull_checks_total",
		"kubelet_imagemanager_ondisk_pulledrecords", "kubelet_imagemanager_ondisk_pullintents")
}

func TestRejections(t *testing.T) {
	m, r := newMetrics(t)
	for _, reason := range []string{
		"OutOfcpu", "OutOfexample.com/gpu", "OutOfexample.com/nic",
		"Evicted", "NodeAffinity", "PodFeatureUnsupported", "NodeShutdown", "TopologyAffinityError", "SMTAlignmentError",
	} {
		m.Rejected(reason)
	}
	expect(t, r, `
		# HELP kubelet_admission_rejections_total Pods that weren't admitted, by the reason.
		# TYPE kubelet_admission_rejections_total counter
		kubelet_admission_rejections_total{reason="Evicted"} 1
		kubelet_admission_rejections_total{reason="NodeShutdown"} 1
		kubelet_admission_rejections_total{reason="Other"} 2
		kubelet_admission_rejections_total{reason="OutOfExtendedResources"} 2
		kubelet_admission_rejections_total{reason="OutOfcpu"} 1
		kubelet_admission_rejections_total{reason="PodFeatureUnsupported"} 1
		kubelet_admission_rejections_total{reason="TopologyAffinityError"} 1
	`, "kubelet_admission_rejections_total")
}

func TestResizeRequests(t *testing.T) {
	m, r := newMetrics(t)
	list := func(cpu, memory string) corev1.ResourceList {
		l := corev1.ResourceList{}
		if cpu != "" {
			l[corev1.ResourceCPU] = resource.MustParse(cpu)
		}
		if memory != "" {
			l[corev1.ResourceMemory] = resource.MustParse(memory)
		}
		return l
	}
	pod := func(first, second corev1.ResourceRequirements, others ...corev1.Container) *corev1.Pod {
		return &corev1.Pod{Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{{Name: "second", Resources: second}},
			Containers:     append(others, corev1.Container{Name: "first", Resources: first}),
		}}
	}
	m.ResizeAsked(
		pod(corev1.ResourceRequirements{Requests: list("1", "1Gi"), Limits: list("", "2Gi")},
			corev1.ResourceRequirements{Limits: list("1", "")}),
		pod(corev1.ResourceRequirements{Requests: list("1500m", "512Mi"), Limits: list("2", "2048Mi")},
			corev1.ResourceRequirements{},
			corev1.Container{Name: "new", Resources: corev1.ResourceRequirements{Requests: list("1", "1Gi")}}))
	expect(t, r, `
		# HELP kubelet_container_requested_resizes_total Changes of resources asked for by container, resource (cpu or memory), requirement (requests or limits) and operation (add, remove, increase or decrease).
		# TYPE kubelet_container_requested_resizes_total counter
		kubelet_container_requested_resizes_total{operation="add",requirement="limits",resource="cpu"} 1
		kubelet_container_requested_resizes_total{operation="decrease",requirement="requests",resource="memory"} 1
		kubelet_container_requested_resizes_total{operation="increase",requirement="requests",resource="cpu"} 1
		kubelet_container_requested_resizes_total{operation="remove",requirement="limits",resource="cpu"} 1
	`, "kubelet_container_requested_resizes_total")
}

func TestSizes(t *testing.T) {
	for bytes, want := range map[uint64]string{
		0: "N/A", 1: "0-10MB", 10 << 20: "0-10MB", 10<<20 + 1: "10MB-100MB", 1 << 30: "500MB-1GB", 70 << 30: "60GB-100GB",
		101 << 30: "GT100GB",
	} {
		if got := sizeLabel(bytes); got != want {
			t.Errorf("%d bytes are %s, want %s", bytes, got, want)
		}
	}
}

// sum and count are those of a histogram without labels.
func sum(t *testing.T, r *prometheus.Registry, name string) float64 {
	t.Helper()
	s, _ := histogram(t, r, name)
	return s
}

func count(t *testing.T, r *prometheus.Registry, name string) uint64 {
	t.Helper()
	_, n := histogram(t, r, name)
	return n
}

func histogram(t *testing.T, r *prometheus.Registry, name string) (sum float64, n uint64) {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			h := f.GetMetric()[0].GetHistogram()
			return h.GetSampleSum(), h.GetSampleCount()
		}
	}
	t.Fatalf("there is no %s", name)
	return 0, 0
}

// The metrics of MemoryQoS show under the gate only, which has them get values.
func TestMemoryProtected(t *testing.T) {
	m, r := newMetrics(t)
	const hard, soft = "kubelet_memory_qos_node_memory_min_bytes", "kubelet_memory_qos_node_memory_low_bytes"
	if n, err := testutil.GatherAndCount(r, hard, soft); n != 0 || err != nil {
		t.Errorf("%d series without the gate, %v", n, err)
	}
	m.MemoryProtected(5, 7)
	expect(t, r, `
	# HELP kubelet_memory_qos_node_memory_low_bytes Memory that burstable pods request and the kernel takes from them last (memory.low).
	# TYPE kubelet_memory_qos_node_memory_low_bytes gauge
	kubelet_memory_qos_node_memory_low_bytes 7
	# HELP kubelet_memory_qos_node_memory_min_bytes Memory that guaranteed pods request and the kernel doesn't take from them (memory.min).
	# TYPE kubelet_memory_qos_node_memory_min_bytes gauge
	kubelet_memory_qos_node_memory_min_bytes 5
	`, hard, soft)
}
