package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kubelot.dev/test/e2e/kit"
)

// troubles are pods that have the daemons show what they count: probes, limits, ends, and failures of each step. The
// volume of one can't be set up, again and again.
const troubles = `apiVersion: v1
kind: Pod
metadata: {name: well}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - {name: app, image: "busybox:1.36", command: [sleep, "1000000"], resources: {limits: {cpu: 100m}},
    readinessProbe: {exec: {command: ["true"]}, periodSeconds: 1, timeoutSeconds: 60}}
---
apiVersion: v1
kind: Pod
metadata: {name: short}
spec:
  restartPolicy: Never
  containers: [{name: app, image: "busybox:1.36", command: ["false"]}]
---
apiVersion: v1
kind: Pod
metadata: {name: large}
spec:
  nodeName: testbed
  containers: [{name: app, image: "busybox:1.36", resources: {requests: {cpu: "1000"}}}]
---
apiVersion: v1
kind: Pod
metadata: {name: mistaken}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: app, image: "busybox:1.36", command: [/no/such/command]}]
---
apiVersion: v1
kind: Pod
metadata: {name: boxless}
spec:
  terminationGracePeriodSeconds: 0
  runtimeClassName: none
  containers: [{name: app, image: "busybox:1.36"}]
---
apiVersion: v1
kind: Pod
metadata: {name: mapless}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: app, image: "busybox:1.36", volumeMounts: [{name: map, mountPath: /map}]}]
  volumes: [{name: map, configMap: {name: none}}]
`

// noRuntime is a handler that no runtime has.
const noRuntime = `apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: none}
handler: none
`

// alertsFire has a real Prometheus with the rules of deploy/ scrape the crew, and breaks what the rules are for.
func alertsFire(t *testing.T, own *kit.Bed) {
	own.NotCompact(t, "one process of a daemon is stopped")
	p := startPrometheus(t, own)
	rules := readRules(t, filepath.Join(own.Tools.Root, rulesPath))
	commandsRun(t, own, rules)
	apply(t, own, noRuntime)
	ns := own.Namespace(t)
	ns.Apply(troubles)
	ns.Wait("well", "ready", kit.Ready)
	metricsExist(t, own, p, rules)

	failed := `storage_operation_duration_seconds_count{status="fail-unknown",operation_name="volume_mount"}`
	kit.Eventually(t, "a scrape with a volume that can't be mounted", func() error {
		if values, err := p.values(t.Context(), failed); err != nil || len(values) == 0 {
			return fmt.Errorf("no scrape has %s, %w", failed, err)
		}
		return nil
	})
	more(ns, "mapless")
	kit.Eventually(t, "the alert of the volume", func() error {
		return p.fires(t.Context(), `KubelotVolumesFail",operation_name="volume_mount`, "")
	})
	p.noneFires(t, "KubelotDaemonDown", "KubelotRuntimeFails", "KubelotNodeUnreachable", "KubelotNodeNotReady",
		"KubelotFiguresUnreadable")
	own.Signal(t, "gc", syscall.SIGSTOP)
	kit.Eventually(t, "the alert of a daemon that is stopped", func() error {
		return p.fires(t.Context(), `KubelotDaemonDown",daemon="gc`, "The daemon gc of ")
	})
	own.Signal(t, "gc", syscall.SIGCONT)
	p.noneFires(t, `KubelotDaemonDown",daemon="gc`)
	restartOften(t, own, p)
	podsFail(t, ns, p)
	devicesFail(t, own, p)
	claimsFail(t, own, ns, p)
	filesRunOut(t, own, p)
	volumesStay(t, own, p)
	probesPause(t, own, p)
	misconfigured(t, own, p)
	pressed(t, own, p)
	serverHangs(t, own, ns, p)
	own.CRI.Stop()
	p.fireAll(t, map[string]string{
		"KubelotRuntimeFails": "", "KubelotNodeNotReady": "is not Ready", "KubelotDaemonUnhealthy": "can't do its job",
		"KubelotRuntimeEventsBreak": "breaks off its stream of events", "KubelotPLEGOld": "what runs on",
	})
	figuresMissing(t, own, p)
	if err := own.CRI.Launch(t.Context()); err != nil {
		t.Fatal(err)
	}
	own.Signal(t, "api", syscall.SIGSTOP)
	defer own.Signal(t, "api", syscall.SIGCONT)
	kit.Eventually(t, "the alert of a node that isn't there", func() error {
		return p.fires(t.Context(), "KubelotNodeUnreachable", "can't be read")
	})
}

// restartOften ends a daemon four times. Prometheus must have seen each life.
func restartOften(t *testing.T, own *kit.Bed, p *prometheus) {
	t.Helper()
	const query = `process_start_time_seconds{daemon="gc"}`
	for range 5 {
		before, err := p.values(t.Context(), query)
		if err != nil {
			t.Fatal(err)
		}
		own.Signal(t, "gc", syscall.SIGKILL)
		kit.Eventually(t, "the next life of gc", func() error {
			now, err := p.values(t.Context(), query)
			if err == nil && (len(now) == 0 || slices.Equal(now, before)) {
				err = fmt.Errorf("prometheus has %v still", before)
			}
			return err
		})
	}
	kit.Eventually(t, "the alert of a daemon that ends again and again", func() error {
		return p.fires(t.Context(), `KubelotDaemonRestarts",daemon="gc`, "The daemon gc of ")
	})
}

// fireAll waits until all these alerts fire.
func (p *prometheus) fireAll(t *testing.T, alerts map[string]string) {
	t.Helper()
	for alert, text := range alerts {
		kit.Eventually(t, "the alert "+alert, func() error { return p.fires(t.Context(), alert, text) })
	}
}

// noneFires waits until none of these alerts fires: a busy machine may have caused one for a moment.
func (p *prometheus) noneFires(t *testing.T, alerts ...string) {
	t.Helper()
	kit.Eventually(t, "none of these alerts", func() error {
		for _, alert := range alerts {
			if p.fires(t.Context(), alert, "") == nil {
				return fmt.Errorf("%s fires without its cause", alert)
			}
		}
		return nil
	})
}

// podsFail applies more of the pods that can't start. Prometheus has seen the first of each kind, so that the counts
// increase.
func podsFail(t *testing.T, ns *kit.Namespace, p *prometheus) {
	t.Helper()
	more(ns, "large")
	more(ns, "boxless")
	p.fireAll(t, map[string]string{
		`KubelotPodsRefused",reason="OutOfcpu`: "refuses pods", "KubelotSandboxesFail": "sandboxes could not be made",
	})
}

// more applies eight more of the pods of troubles with the name.
func more(ns *kit.Namespace, name string) {
	for m := range strings.SplitSeq(troubles, "---\n") {
		for i := range 8 {
			if strings.Contains(m, "name: "+name+"}") {
				ns.Apply(strings.Replace(m, "name: "+name+"}", fmt.Sprintf("name: %s-%d}", name, i), 1))
			}
		}
	}
}

// devicesFail has a device plugin whose only device is broken, and which registers again and again.
func devicesFail(t *testing.T, own *kit.Bed, p *prometheus) {
	t.Helper()
	plugin := own.DevicePlugin(t, "alerts.test/device", "one")
	plugin.SetHealth("one", false)
	plugin.Serve()
	p.fireAll(t, map[string]string{"KubelotDevicesUnhealthy": "1 devices alerts.test/device of "})
	for range 5 {
		before := plugin.Registrations()
		plugin.Stop()
		kit.Eventually(t, "the next registration", func() error {
			if plugin.Registrations() == before {
				return fmt.Errorf("it has registered %d times", before)
			}
			return nil
		})
	}
	p.fireAll(t, map[string]string{"KubelotDevicePluginRestarts": "alerts.test/device"})
}

// claimsFail has a driver of claims that fails. Prometheus has seen the first failure, so that their count increases.
func claimsFail(t *testing.T, own *kit.Bed, ns *kit.Namespace, p *prometheus) {
	t.Helper()
	devices := []string{"d0", "d1", "d2", "d3"}
	driver := own.DRADriver(t, "alerts.test", devices...)
	driver.Fail(errors.New("the device is broken"))
	t.Cleanup(driver.Serve())
	ns.Apply(strings.ReplaceAll(claimOfOne, "$DRIVER", driver.Name))
	for i, device := range devices {
		ns.Apply(strings.ReplaceAll(claimant, "$POD", device))
		if i > 0 {
			continue
		}
		kit.Eventually(t, "the first failure", func() error {
			values, err := p.values(t.Context(), `dra_operations_duration_seconds_count{is_error="true"}`)
			if err == nil && len(values) == 0 {
				err = errors.New("prometheus has seen none")
			}
			return err
		})
	}
	p.fireAll(t, map[string]string{"KubelotDevicesFail": "PrepareResources of devices"})
	driver.Fail(nil)
	for _, device := range devices {
		ns.Delete(device, 0)
	}
}

const claimOfOne = `apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: one}
spec: {spec: {devices: {requests: [{name: one, exactly: {deviceClassName: $DRIVER}}]}}}
`

const claimant = `apiVersion: v1
kind: Pod
metadata: {name: $POD}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: app, image: "busybox:1.36", command: [sleep, "1000000"], resources: {claims: [{name: one}]}}]
  resourceClaims: [{name: one, resourceClaimTemplateName: one}]
`

// filesRunOut leaves a daemon few more files than it has open.
func filesRunOut(t *testing.T, own *kit.Bed, p *prometheus) {
	t.Helper()
	pid, err := own.Daemon("lease")
	if err != nil {
		t.Fatal(err)
	}
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	var before unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &before); err != nil {
		t.Fatal(err)
	}
	fewer := before
	fewer.Cur = uint64(len(open)) + 2
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &fewer, nil); err != nil {
		t.Fatal(err)
	}
	p.fireAll(t, map[string]string{`KubelotDaemonFilesRunOut",daemon="lease`: "of the files open"})
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &before, nil); err != nil {
		t.Error(err)
	}
}

// volumesStay leaves a volume of a pod that is gone and that can't be removed. It is looked for when the daemon starts.
func volumesStay(t *testing.T, own *kit.Bed, p *prometheus) {
	t.Helper()
	dir := filepath.Join(own.Node.RootDir, "pods", "0a1b2c3d-0000-4000-8000-000000000000", "volumes",
		"kubernetes.io~empty-dir", "data")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	immutable := func(flag string) error { return exec.CommandContext(context.Background(), "chattr", flag, dir).Run() }
	if err := immutable("+i"); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := immutable("-i"); err != nil {
			t.Error(err)
		}
	}()
	own.Signal(t, "volume", syscall.SIGKILL)
	p.fireAll(t, map[string]string{"KubelotVolumesLeft": "The volumes of 1 pods"})
}

// probesPause has probes begin late, until Prometheus has read how late right before and after.
func probesPause(t *testing.T, own *kit.Bed, p *prometheus) {
	t.Helper()
	kit.Eventually(t, "the alert of probes that begin late", func() (err error) {
		own.Signal(t, "probe", syscall.SIGSTOP)
		time.Sleep(9 * time.Second)
		own.Signal(t, "probe", syscall.SIGCONT)
		for range 15 {
			time.Sleep(time.Second)
			if err = p.fires(t.Context(), `KubelotProbesLate",handler="exec`, "begin late"); err == nil {
				return nil
			}
		}
		return err
	})
}

// misconfigured gives the daemons a configuration that they don't take.
func misconfigured(t *testing.T, own *kit.Bed, p *prometheus) {
	t.Helper()
	original, err := os.ReadFile(own.Node.ConfigFile())
	if err != nil {
		t.Fatal(err)
	}
	own.Reconfigure(t, string(original)+"nodeStatusMaxImages: -7\n")
	own.NodeBecause(t, "daemon-degraded", "the daemon status is degraded: the changed configuration is not taken: ")
	p.fireAll(t, map[string]string{`KubelotDaemonDegraded",daemon="status`: "only a part of its job"})
	own.Reconfigure(t, string(original))
}

// pressed has the node lack memory.
func pressed(t *testing.T, own *kit.Bed, p *prometheus) {
	t.Helper()
	relieve := own.LackMemory(t)
	p.fireAll(t, map[string]string{
		"KubelotEvictions": "because it lacks resources",
		`KubelotNodeUnderPressure",condition="MemoryPressure`: "has MemoryPressure",
	})
	relieve()
}

// serverHangs has the API server answer nobody. kubelot-api asks it who may read metrics, and remembers the answer for
// two minutes; so it is started again right before. What happens to a pod meanwhile gets there late.
func serverHangs(t *testing.T, own *kit.Bed, ns *kit.Namespace, p *prometheus) {
	t.Helper()
	ns.Apply(pod("later", container("", "")))
	later := ns.Running("later")
	const query = `timestamp(process_start_time_seconds{daemon="lease"}) > %d`
	own.Signal(t, "api", syscall.SIGKILL)
	begun := time.Now().Unix() + 1
	kit.Eventually(t, "a scrape of the next kubelot-api", func() error {
		values, err := p.values(t.Context(), fmt.Sprintf(query, begun))
		if err == nil && len(values) == 0 {
			err = fmt.Errorf("there is none since %d", begun)
		}
		return err
	})
	if err := own.ControlPlane.SignalAPIServer(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	resume := sync.OnceFunc(func() {
		if err := own.ControlPlane.SignalAPIServer(syscall.SIGCONT); err != nil {
			t.Error(err)
		}
	})
	defer resume()
	own.KillContainer(t, later, "app")
	p.fireAll(t, map[string]string{"KubelotLeaseBehind": "was last renewed"})
	resume()
	p.fireAll(t, map[string]string{"KubelotStatusBehind": "one in twenty after"})
}
